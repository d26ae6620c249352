"""A vLLM plugin for the tests: graph keys in the worker of a CPU engine, and a log of its steps.

Writes the worker's pid and then a line a real step, unbuffered, into ``FORCED_LOG``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def register() -> None:
    if "FORCED_LOG" not in os.environ:
        return
    from graphdiag_collectors.import_hook import when_imported

    when_imported("vllm.v1.cudagraph_dispatcher", _force)
    when_imported("vllm.v1.worker.gpu_model_runner", _log)


def _force(module: Any) -> None:
    original = module.CudagraphDispatcher.initialize_cudagraph_keys

    def initialize_cudagraph_keys(self: Any, mode: Any, *args: Any) -> Any:
        config = self.compilation_config
        config.cudagraph_capture_sizes = [1, 2, 4, 8, 16, 32]
        config.max_cudagraph_capture_size = 32
        return original(self, type(mode).FULL_AND_PIECEWISE, *args)

    module.CudagraphDispatcher.initialize_cudagraph_keys = initialize_cudagraph_keys


def _log(module: Any) -> None:
    original = module.GPUModelRunner.execute_model

    def execute_model(self: Any, plan: Any, *args: Any) -> Any:
        if not plan.total_num_scheduled_tokens:
            return original(self, plan, *args)
        path = Path(os.environ["FORCED_LOG"])
        first = "" if path.exists() else f"{os.getpid()}\n"
        result = original(self, plan, *args)
        with path.open("a") as log:
            log.write(f"{first}{plan.total_num_scheduled_tokens}\n")
        return result

    module.GPUModelRunner.execute_model = execute_model
