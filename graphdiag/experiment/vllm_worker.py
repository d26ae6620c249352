"""``python -m graphdiag.experiment.vllm_worker PLAN.json RESULT.json``: run a plan on vLLM.

It runs in the engine's own environment, with vLLM as it is installed there, in one process, so that
its scheduler can be timed; the collector records its steps as it does in any other vLLM.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from graphdiag.experiment.engine.worker import process_start
from graphdiag.experiment.orphan import end_with_parent
from graphdiag.experiment.plan import Request, RunPlan, RunResult
from graphdiag_collectors import plugin, session
from graphdiag_collectors.recorder import TRACE_VARIABLE

INTERRUPTED = 130
_NAP_S = 0.02
_PREPARING = ("_update_states", "_prepare_inputs")
"""What the model runner does on the CPU before a step's forward."""


def main(arguments: Sequence[str]) -> int:
    """Run the plan that the arguments name; return the exit code."""
    end_with_parent()
    started = process_start()
    plan_file, result_file = map(Path, arguments)
    plan = msgspec.json.decode(plan_file.read_bytes(), type=RunPlan)
    os.environ[TRACE_VARIABLE] = plan.trace
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    plugin.vllm()
    session.recorder(plan.identity)  # before the engine, so that its start is on record
    stops: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stops.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    llm = import_module("vllm").LLM(**_engine_arguments(plan))
    serving = _Serving(plan, llm)
    ready = time.time()
    serving.run(lambda: bool(stops))
    session.close()
    result_file.write_bytes(msgspec.json.encode(serving.result(started, ready, bool(stops))))
    return INTERRUPTED if stops else 0


def _engine_arguments(plan: RunPlan) -> dict[str, Any]:
    """Return the engine's arguments: its limits are the plan's, the rest is its own."""
    compilation: dict[str, Any] = {}
    if plan.mode == "compiled":
        compilation["cudagraph_mode"] = "NONE"
    if plan.mode == "graphs" and plan.buckets:
        compilation["cudagraph_capture_sizes"] = list(plan.buckets)
    told = {"compilation_config": compilation} if compilation else {}
    return {
        "model": plan.model,
        "skip_tokenizer_init": True,
        "max_num_seqs": plan.size.max_requests,
        "max_num_batched_tokens": plan.size.token_budget,
        "max_model_len": plan.size.max_context,
        "enable_prefix_caching": False,
        "enforce_eager": plan.mode == "eager",
        "seed": plan.seed,
        **told,
    }


class _Serving:
    """Feeds requests to the engine as their time comes; a lot comes when the one before is done."""

    def __init__(self, plan: RunPlan, llm: Any) -> None:
        self.plan, self.engine = plan, llm.llm_engine
        vllm = import_module("vllm")
        self.parameters = vllm.SamplingParams
        self.words = int(self.engine.model_config.get_vocab_size())
        self.coming: deque[tuple[int, Request]] = deque(enumerate(plan.requests))
        self.tokens: dict[str, list[int]] = {}
        self.steps = 0
        self.first_step_at: float | None = None
        self.prepare_ns = 0
        self.missing = self._time_preparation()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until all requests are done, or ``stopped`` says so."""
        start = time.time()
        while not stopped() and (self.coming or self.engine.has_unfinished_requests()):
            self._admit(start)
            if not self.engine.has_unfinished_requests():
                time.sleep(min(_NAP_S, max(0.0, start + self.coming[0][1].at - time.time())))
                continue
            outputs = self.engine.step()
            self.steps += 1
            self.first_step_at = self.first_step_at or time.time()
            for output in outputs:
                self.tokens[output.request_id] = list(output.outputs[0].token_ids)

    def result(self, started: float, ready: float, stopped: bool) -> RunResult:
        """Return what the run tells of itself."""
        unknown = [f"CPU preparation: this vLLM has no {name}." for name in self.missing]
        if not import_module("torch").cuda.is_available():
            unknown.append("GPU gaps and graph memory: vLLM ran on a CPU, which has neither.")
        measured = self.steps and not self.missing
        return RunResult(
            mode=self.plan.mode,
            ready_s=ready - started,
            first_step_s=None if self.first_step_at is None else self.first_step_at - started,
            ended_s=time.time() - started,
            prepare_ms=self.prepare_ns / 1e6 / self.steps if measured else None,
            graph_bytes=None,
            steps=self.steps,
            tokens_out=sum(map(len, self.tokens.values())),
            tokens_digest=self._digest(),
            versions={"vllm": import_module("vllm").__version__, "torch": version("torch")},
            not_measured=tuple(unknown),
            interrupted=stopped,
        )

    def _admit(self, start: float) -> None:
        lot: int | None = None
        while self.coming:
            number, request = self.coming[0]
            if request.step is None:
                if start + request.at > time.time():
                    return
            elif request.step != lot:
                if self.engine.has_unfinished_requests():
                    return
                lot = request.step
            self.coming.popleft()
            self._add(number, request)

    def _add(self, number: int, request: Request) -> None:
        chance = random.Random(f"{self.plan.seed}/{number}")
        prompt = [chance.randrange(self.words) for _ in range(request.prompt_tokens)]
        parameters = self.parameters(
            max_tokens=request.output_tokens, ignore_eos=True, detokenize=False, temperature=0
        )
        self.engine.add_request(str(number), {"prompt_token_ids": prompt}, parameters)

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for number, tokens in sorted(self.tokens.items()):
            digest.update(repr((number, tokens)).encode())
        return digest.hexdigest()

    def _time_preparation(self) -> list[str]:
        """Time what prepares a step on the CPU; return what this vLLM does not have of it."""
        try:
            core = self.engine.engine_core.engine_core
            scheduler = core.scheduler
            runner = core.model_executor.driver_worker.worker.model_runner
        except AttributeError as error:
            return [str(error)]
        wanted = [(scheduler, "schedule"), *((runner, name) for name in _PREPARING)]
        missing = [name for owner, name in wanted if not hasattr(owner, name)]
        if not missing:
            for owner, name in wanted:
                self._time(owner, name)
        return missing

    def _time(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter_ns()
            try:
                return original(*arguments, **named)
            finally:
                self.prepare_ns += time.perf_counter_ns() - begun

        setattr(owner, name, timed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
