"""Hooks on the scheduler: when a batch was launched and when its result was there.

``ModelRunner.forward`` returns as soon as the work is on the device, so a step's own time needs
both ends from the scheduler: ``run_batch`` and ``process_batch_result``.
"""

from __future__ import annotations

import os
import sys
import time
from time import perf_counter
from typing import Any

from graphdiag_collectors import profiler, session
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.recorder import TRACE_VARIABLE
from graphdiag_collectors.sglang_config import OVERLAP_THREAD, tell_run
from graphdiag_collectors.sglang_rows import Row
from graphdiag_collectors.sglang_steps import MOST_PENDING, THREAD, Batch, Tracker
from graphdiag_collectors.writer import FLUSH_SECONDS

_HEALTH_CHECK = "HEALTH_CHECK"
"""How the engine names the requests it sends itself to see whether it is alive."""

_WAITED = "_graphdiag_waited"


def patch_scheduler(hooks: Hooks, owner: type) -> None:
    """Patch the class ``Scheduler``."""
    started = hooks.guard("sglang.scheduler")
    hooks.patch(owner, "__init__", lambda original: _init(original, started, hooks))
    guard = hooks.guard("sglang.run_batch")
    hooks.patch(owner, "run_batch", lambda original: _run_batch(original, guard))
    result = hooks.guard("sglang.batch_result")
    hooks.patch(owner, "process_batch_result", lambda original: _result(original, result))


def patch_batch(hooks: Hooks, owner: type) -> None:
    """Patch the class ``ScheduleBatch``: requests that had to give their memory back."""
    guard = hooks.guard("sglang.retract")

    def wrap(original: Function) -> Function:
        def retract_decode(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            guard.run(_retracted, result)
            return result

        return retract_decode

    hooks.patch(owner, "retract_decode", wrap)


def _retracted(result: Any) -> None:
    requests = result[0] if isinstance(result, tuple) else result
    THREAD.tracker.retracted += len(requests)


def _init(original: Function, guard: Guard, hooks: Hooks) -> Function:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        guard.run(_started, self, hooks)

    return __init__


def _started(scheduler: Any, hooks: Hooks) -> None:
    """Tell the run's configuration before the first request comes."""
    worker = getattr(scheduler, "tp_worker", None)
    worker = getattr(worker, "worker", worker)
    model_runner = getattr(worker, "model_runner", None)
    if model_runner is not None:
        tell_run(model_runner, hooks)


def _run_batch(original: Function, guard: Guard) -> Function:
    def run_batch(self: Any, batch: Any, *more: Any, **named: Any) -> Any:
        if not guard.on:
            return original(self, batch, *more, **named)
        tracker = THREAD.tracker
        rows: list[Row] = []
        rest, queued = None, 0
        try:
            queued = len(self.waiting_queue)
            window = profiler.window
            if window is not None or len(batch.reqs or ()) == 1:
                rest = _rest(tracker, self, batch)
            tracker.usual = session.current() if window is None else None
            tracker.rows = rows
        except Exception as error:
            guard.failed(error)
        start = perf_counter()
        try:
            if more or named:
                result = original(self, batch, *more, **named)
            else:
                result = original(self, batch)
        except BaseException:
            tracker.rows = tracker.usual = None
            guard.run(_broken, tracker, (0, start, queued, rows, rest))
            raise
        tracker.rows = tracker.usual = None
        try:
            if rest is not None and rest[1] is not None:
                profiler.step_ended(rest[1])
            if rows:
                if rows[0][0].synchronous:
                    rest = (*(rest or (None, None))[:2], perf_counter())
                pending = tracker.pending
                pending.append((id(result), start, queued, rows, rest))
                if len(pending) > MOST_PENDING:
                    tracker.record(pending.popleft())
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return result

    return run_batch


def _rest(tracker: Tracker, scheduler: Any, batch: Any) -> tuple[str | None, Any, int] | None:
    """Return what only few batches have: a kind, and a step of a profile window that begins."""
    kind = step = None
    if len(batch.reqs or ()) == 1:
        kind = _kind(batch.reqs[0])
    if profiler.window is not None:
        step = _profiled(tracker, scheduler)
    return None if kind is None and step is None else (kind, step, 0)


def _broken(tracker: Tracker, batch: Batch) -> None:
    """Record what there was of a batch that raised."""
    rest = batch[4]
    if rest is not None and rest[1] is not None:
        profiler.step_ended(rest[1])
    tracker.record(batch)


def _kind(request: Any) -> str | None:
    name = getattr(request, "rid", None)
    return "dummy" if isinstance(name, str) and name.startswith(_HEALTH_CHECK) else None


def _profiled(tracker: Tracker, scheduler: Any) -> Any:
    """Begin a step of a profile window, unless another thread runs the model."""
    if tracker.capturing:
        return None
    if OVERLAP_THREAD in sys.modules and getattr(scheduler, "enable_overlap", False):
        return None
    return profiler.step_begun()


def _result(original: Function, guard: Guard) -> Function:
    def process_batch_result(self: Any, batch: Any, result: Any, *more: Any, **named: Any) -> Any:
        if more or named:
            output = original(self, batch, result, *more, **named)
        else:
            output = original(self, batch, result)
        if guard.on:
            try:
                THREAD.tracker.finished(result)
                requests = batch.reqs
                if not requests or requests[0].finished():
                    _write_where_idle(self, requests)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return output

    return process_batch_result


def _write_where_idle(scheduler: Any, requests: Any) -> None:
    """Have everything written when the last request is done."""
    recorder = session.current()
    if recorder is None or scheduler.waiting_queue:
        return
    if all(request.finished() for request in requests or ()):
        recorder.write_soon()


def patch_engine(hooks: Hooks, owner: type) -> None:
    """Patch ``shutdown`` of the class ``Engine``, which runs in the process of the engine's user.

    It ends the schedulers by SIGKILL, so what they have not written by then is lost: the first
    shutdown waits for one more turn of their writers.
    """
    guard = hooks.guard("sglang.shutdown")
    hooks.patch(owner, "shutdown", lambda original: _shutdown(original, guard))


def _shutdown(original: Function, guard: Guard) -> Function:
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard.run(_wait_for_writers, self)
        return original(self, *args, **kwargs)

    return shutdown


def _wait_for_writers(engine: Any) -> None:
    if os.environ.get(TRACE_VARIABLE) and _WAITED not in vars(engine):
        setattr(engine, _WAITED, True)
        time.sleep(1.2 * FLUSH_SECONDS)


def patch_profiler(hooks: Hooks, owner: type) -> None:
    """Patch ``start`` of torch's class ``profile``, which the engine uses when asked to profile.

    Torch allows one profiler a process: a second one raises, or takes the first one's events. So a
    window of ours gives way, and says so to who opened it.
    """
    guard = hooks.guard("sglang.profiler")

    def wrap(original: Function) -> Function:
        def start(self: Any, *args: Any, **kwargs: Any) -> Any:
            guard.run(_give_way)
            return original(self, *args, **kwargs)

        return start

    hooks.patch(owner, "start", wrap)


def _give_way() -> None:
    cancel = getattr(profiler.window, "cancel", None)
    if cancel is not None:
        cancel("the engine's own profiler was started in it")
