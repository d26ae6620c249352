"""Hooks on the scheduler: when a batch was launched and when its result was there.

``ModelRunner.forward`` returns as soon as the work is on the device, so a step's own time needs
both ends from the scheduler: ``run_batch`` and ``process_batch_result``.
"""

from __future__ import annotations

import os
import time
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.recorder import TRACE_VARIABLE
from graphdiag_collectors.sglang_config import tell_run
from graphdiag_collectors.sglang_steps import THREAD, Batch
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
    def run_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on:
            return original(self, *args, **kwargs)
        batch = None
        try:
            batch = _open(self, args[0] if args else kwargs["batch"])
            tracker.batch = batch
        except Exception as error:
            guard.failed(error)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            if batch is not None:
                guard.run(tracker.abandon, batch)
            raise
        finally:
            tracker.batch = None
        if batch is not None:
            try:
                tracker.launched(batch, result)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return result

    return run_batch


def _open(scheduler: Any, batch: Any) -> Batch:
    waiting = getattr(scheduler, "waiting_queue", None)
    kind = None
    requests = batch.reqs
    if requests is not None and len(requests) == 1:
        name = getattr(requests[0], "rid", None)
        if isinstance(name, str) and name.startswith(_HEALTH_CHECK):
            kind = "dummy"
    return Batch(None if waiting is None else len(waiting), kind)


def _result(original: Function, guard: Guard) -> Function:
    def process_batch_result(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        output = original(self, *args, **kwargs)
        if not guard.on:
            return output
        try:
            result = args[1] if len(args) > 1 else kwargs.get("result")
            tracker.finished(result, _tokens_out(result))
            _write_where_idle(self, args[0] if args else kwargs["batch"])
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return output

    return process_batch_result


def _tokens_out(result: Any) -> int | None:
    """Return tokens a verified batch produced: the accepted drafts, and one more for each."""
    accepted = getattr(result, "num_correct_drafts_per_req_cpu", None)
    if not accepted:
        return None
    own = getattr(result, "num_non_draft_tokens_per_req", 1)
    return int(sum(accepted)) + int(own) * len(accepted)


def _write_where_idle(scheduler: Any, batch: Any) -> None:
    """Have everything written when the last request is done."""
    recorder = session.current()
    if recorder is None or scheduler.waiting_queue:
        return
    if all(request.finished() for request in batch.reqs or ()):
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
