"""Runs one plan: checks it, starts the engine, serves its requests, and tells what came of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import graphdiag
from graphdiag.experiment.engine.checks import check_machine, check_plan, in_words
from graphdiag.experiment.engine.errors import EngineError
from graphdiag.experiment.engine.faults import Setup, set_up
from graphdiag.experiment.engine.kv_cache import Blocks
from graphdiag.experiment.engine.scheduler import Scheduler
from graphdiag.experiment.engine.serving import Serving
from graphdiag.experiment.plan import RunPlan, RunResult
from graphdiag_collectors import Recorder, profiler, torch_hooks  #:

if TYPE_CHECKING:
    from graphdiag.experiment.engine.engine import Engine


def run_plan(plan: RunPlan, started: float) -> RunResult:
    """Run a plan in this process, which started at ``started`` on the clock of time.time().

    SIGINT and SIGTERM end it after the step, capture or compile under way.

    Raises
    ------
    EngineError
        When the plan cannot be run, or not on this machine.
    """
    setup = set_up(plan)
    blocks = Blocks(check_plan(plan), plan.size.block_tokens)
    with _stoppable() as stops:
        torch = check_machine(plan)
        torch.set_num_threads(plan.threads)
        from graphdiag.experiment.engine.engine import Engine

        with in_words(torch, plan), _recorder(plan) as recorder, torch.inference_mode():
            torch_hooks.install(recorder)  #:
            if plan.device == "cuda":
                profiler.time_steps(recorder, plan.time_every)  #:
            try:
                engine = Engine(plan, setup, blocks, recorder)
                recorder.run(_resolved(plan, setup, engine))  #:
                scheduler = Scheduler(blocks, plan.size.max_requests, plan.size.token_budget)
                serving = Serving(plan, scheduler, recorder, setup.reload_step)
                engine.warm_up(lambda: bool(stops))
                ready = time.time()
                serving.run(engine, lambda: bool(stops))
                engine.cleanup()
            finally:
                profiler.finish()  #:
                torch_hooks.uninstall()  #:
        return _result(plan, engine, serving, started, ready, bool(stops))


def process_start() -> float:
    """Return when this process started, on the clock of time.time(), to 10 ms."""
    try:
        # Field 22, after the name, which may hold spaces, in parentheses.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError, ValueError):
        return time.time() - time.process_time()
    return time.time() - (up - ticks / os.sysconf("SC_CLK_TCK"))


def _recorder(plan: RunPlan) -> Recorder:
    config = {"engine": "graphdiag experiment", "engine_version": graphdiag.__version__}
    try:
        return Recorder(plan.trace, {**config, **plan.identity}, axis="tokens")  #:
    except OSError as error:
        raise EngineError(f"{plan.trace}: no trace can be written there ({error}).") from error


def _resolved(plan: RunPlan, setup: Setup, engine: Engine) -> dict[str, Any]:
    """Return the configuration that came of the plan."""
    size, graphs = plan.size, engine.backends.graphs
    return {
        "mode": engine.graph_mode,
        "artifacts": graphs.kind if graphs is not None else engine.backends.floor["full"].kind,
        "capture_sizes": sorted({size for _, size in engine.keys}),
        "max_num_seqs": size.max_requests,
        "token_budget": size.token_budget,
        "graphs_off": engine.graphs_off,
        "kv_tokens": engine.blocks.free * size.block_tokens,
        "compiler": plan.compiler,
        "seed": plan.seed,
        **engine.machine,
    }


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """Gather the signals that ask to stop; the second of a sort does what it always does."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(number, before[number])

    asked: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in asked}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _result(
    plan: RunPlan, engine: Engine, serving: Serving, started: float, ready: float, stopped: bool
) -> RunResult:
    first, steps = serving.first_step_at, serving.steps
    not_measured = []
    if plan.device == "cpu":
        not_measured.append("GPU gaps: the run was on a CPU, which has none.")
    if engine.pool_bytes is None:
        not_measured.append(f"Graph memory: mode {plan.mode} holds no graphs.")
    elif plan.device == "cpu":
        not_measured.append(
            "Graph memory is that of the output pool alone: compiled code on a CPU holds no other."
        )
    prepared = engine.prepare_ns + serving.schedule_ns
    return RunResult(
        mode=plan.mode,
        ready_s=ready - started,
        first_step_s=None if first is None else first - started,
        ended_s=time.time() - started,
        prepare_ms=prepared / 1e6 / steps if steps else None,
        graph_bytes=engine.pool_bytes,
        steps=steps,
        tokens_out=serving.tokens_out,
        tokens_digest=serving.digest(),
        versions={"graphdiag": graphdiag.__version__, **engine.machine},
        not_measured=tuple(not_measured),
        interrupted=stopped,
    )
