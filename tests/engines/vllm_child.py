"""Drives the real vLLM in a process of its own; run by the Python that has it.

``vllm_child.py MODEL WHAT`` prints one line of JSON at the end: tokens by graph mode, the
dispatches as the engine made them, and what the faults did.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

SIZES = [1, 2, 4, 8, 16, 32]
MODES = ("FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL")


def main() -> None:
    model, what = sys.argv[1:3]
    many = what in ("shutdown", "kill")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(many))
    from vllm import LLM

    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        max_num_seqs=48,
        max_model_len=256,
        max_num_batched_tokens=256,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
    )
    print(json.dumps({"plain": plain, "forced": forced, "faults": faults}.get(what, several)(llm)))


def generate(llm: Any, requests: int = 40, seed: int = 0) -> list[list[int]]:
    """Greedy tokens of prompts that arrive together; their lengths make every batch size."""
    from vllm import SamplingParams

    rng = random.Random(seed)
    wanted = [
        SamplingParams(
            max_tokens=rng.randint(4, 40), ignore_eos=True, detokenize=False, temperature=0
        )
        for _ in range(requests)
    ]
    prompts = [
        {"prompt_token_ids": [rng.randint(3, 500) for _ in range(rng.randint(4, 30))]}
        for _ in range(requests)
    ]
    outputs = llm.generate(prompts, wanted, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def runner_of(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def force(llm: Any, mode: str) -> None:
    """Make the CPU engine pad to buckets as if it had graphs of ``mode``."""
    from vllm.config import CUDAGraphMode

    runner = runner_of(llm)
    config = runner.compilation_config
    config.cudagraph_capture_sizes = list(SIZES)
    config.max_cudagraph_capture_size = SIZES[-1]
    dispatcher = runner.cudagraph_dispatcher
    dispatcher.cudagraph_keys = {CUDAGraphMode.PIECEWISE: set(), CUDAGraphMode.FULL: set()}
    dispatcher.initialize_cudagraph_keys(CUDAGraphMode[mode], 1)


def plain(llm: Any) -> dict[str, Any]:
    return {"NONE": generate(llm), "modules": sorted(m for m in sys.modules if "graphdiag" in m)}


def forced(llm: Any) -> dict[str, Any]:
    """Run every mode, and note each dispatch apart from the collector."""
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    original = CudagraphDispatcher.dispatch
    truth: list[list[Any]] = []
    steps: list[list[int]] = []
    runner = runner_of(llm)
    execute = type(runner).execute_model

    def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
        mode, key = original(self, *args, **kwargs)
        truth.append([kwargs["num_tokens"], mode.name, key.num_tokens])
        return mode, key

    def execute_model(self: Any, plan: Any, *args: Any) -> Any:
        if plan.total_num_scheduled_tokens:
            steps.append([plan.total_num_scheduled_tokens, len(plan.num_scheduled_tokens)])
        return execute(self, plan, *args)

    CudagraphDispatcher.dispatch = dispatch
    type(runner).execute_model = execute_model
    found: dict[str, Any] = {"NONE": generate(llm)}
    runner._dummy_run(5)
    truth.pop()
    for mode in MODES:
        force(llm, mode)
        found[mode] = generate(llm)
    return {**found, "truth": truth, "steps": steps}


def faults(llm: Any) -> dict[str, Any]:
    """Break the collector in every way there is, one after the other, while it runs."""
    from vllm.plugins import load_general_plugins

    from graphdiag_collectors import session, vllm, vllm_steps

    found: dict[str, Any] = {}
    force(llm, "FULL")
    found["first"] = generate(llm)

    vllm.register()
    load_general_plugins()
    execute = type(runner_of(llm)).execute_model
    found["wrapped_once"] = not hasattr(execute.__wrapped__, "__graphdiag_original__")
    found["twice"] = generate(llm)

    finish = vllm_steps.Steps.finish

    def broken(*_: Any) -> None:
        raise RuntimeError("injected")

    vllm_steps.Steps.finish = broken  # type: ignore[method-assign]
    found["raising"] = generate(llm)
    guard = vllm.STATE.hooks.guards["vllm.v1.step"]
    found["guard"] = [guard.on, guard.failures, guard.last]
    vllm_steps.Steps.finish = finish  # type: ignore[method-assign]
    guard.on, guard.in_a_row = True, 0

    recorder = session.current()
    if recorder is not None:
        recorder.flush()
        shutil.copytree(os.environ["GRAPHDIAG_TRACE"], os.environ["GRAPHDIAG_TRACE"] + ".kept")
        shutil.rmtree(os.environ["GRAPHDIAG_TRACE"])
        found["deleted"] = generate(llm)
        time.sleep(1.2)
        found["status"] = str(recorder.status())
    return found


def several(llm: Any) -> dict[str, Any]:
    """Run an engine of several processes, to its end or to a ``kill -9`` of its worker."""
    tokens = generate(llm)
    if sys.argv[2] == "kill":
        time.sleep(1.2)
        worker = int(Path(os.environ["FORCED_LOG"]).read_text().split()[0])
        os.kill(worker, signal.SIGKILL)
        print(json.dumps({"FULL_AND_PIECEWISE": tokens, "worker": worker}), flush=True)
        os._exit(0)
    return {"FULL_AND_PIECEWISE": tokens}


if __name__ == "__main__":
    main()
