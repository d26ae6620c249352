"""A vLLM plugin for the tests: a log of the worker's real steps, apart from the collector.

Writes the worker's pid and then a line a step, time in ns and tokens, into ``STEP_LOG``. With
``STEP_PARTS`` the collector seals a part after so many rows.
"""

from __future__ import annotations

import os
import time
from typing import Any


def register() -> None:
    if "STEP_LOG" in os.environ:
        from graphdiag_collectors.import_hook import when_imported

        when_imported("vllm.v1.worker.gpu_model_runner", _log)


def _log(module: Any) -> None:
    owner = module.GPUModelRunner
    if "STEP_PARTS" in os.environ:
        from graphdiag_collectors import writer

        writer.PART_ROWS = int(os.environ["STEP_PARTS"])
    original = owner.execute_model
    log: list[int] = []

    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, scheduler_output, *args, **kwargs)
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens:
            if not log:
                log.append(os.open(os.environ["STEP_LOG"], os.O_CREAT | os.O_WRONLY | os.O_APPEND))
                os.write(log[0], f"{os.getpid()}\n".encode())
            os.write(log[0], f"{time.time_ns()} {tokens}\n".encode())
        return result

    owner.execute_model = execute_model
