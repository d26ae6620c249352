"""Hooks on graph capture: one event for each graph, and one for what no single graph cost.

A session is one runner's ``capture()``, at start-up or later when the engine captures again. The
graphs' own time and memory and the remainder of the session add up to what the session cost.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from time import perf_counter, time_ns
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.sglang_config import identity_of, open_recorder, tell_again
from graphdiag_collectors.sglang_runners import KNOWN, patch_backend, runner_of
from graphdiag_collectors.sglang_steps import THREAD
from graphdiag_collectors.sglang_words import (
    PREFILL_PHASES,
    artifact,
    counts_tokens,
    graph_mode,
    is_draft,
    key_columns,
    role,
)

_ONE = ("capture_one_batch_size", "_capture_one")


def patch_capture(hooks: Hooks, owner: type) -> None:
    """Patch ``capture`` of a runner class, and its capture of one size where it has that."""
    if "capture" in vars(owner):
        hooks.patch(owner, "capture", partial(_session, hooks=hooks))
    for name in _ONE:
        if name in vars(owner):
            one = hooks.guard("sglang.capture")
            hooks.patch(owner, name, partial(_capture_size, guard=one))


def patch_backend_class(hooks: Hooks, owner: type) -> None:
    """Patch a graph backend class and those it inherits from: capture and replay of one graph."""
    for one in owner.__mro__:
        if inspect.isabstract(one) or one is object:
            continue
        patch_backend(hooks, one)
        if "capture_one" in vars(one):
            guard = hooks.guard("sglang.capture")
            hooks.patch(one, "capture_one", partial(_capture_key, guard=guard))


class _Session:
    """The capture session under way: what its graphs took so far."""

    def __init__(self) -> None:
        self.start = perf_counter()
        self.t_ns = time_ns()
        self.free = free_bytes()
        self.graphs_ns = 0
        self.graphs_bytes = 0


_OPEN: list[_Session] = []


def _session(original: Function, hooks: Hooks) -> Function:
    begins = hooks.guard("sglang.capture_begin")
    ends = hooks.guard("sglang.capture_end")

    def capture(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        nested = tracker.capturing > 0  # a subclass's capture calls the one it inherits
        begins.run(_begin, self, hooks, nested)
        tracker.capturing += 1
        tracker.usual = None
        try:
            return original(self, *args, **kwargs)
        finally:
            tracker.capturing -= 1
            ends.run(_end, self, nested)

    return capture


def _begin(runner: Any, hooks: Hooks, nested: bool) -> None:
    if nested:
        return
    backend = getattr(runner, "backend", None)
    if backend is not None:  # whoever made it: another platform, or one we have never seen
        patch_backend_class(hooks, type(backend))
    open_recorder(getattr(runner, "model_runner", None))
    _OPEN.append(_Session())


def _end(runner: Any, nested: bool) -> None:
    if nested or not _OPEN:
        return
    done = _OPEN.pop()
    tell_again(getattr(runner, "model_runner", None))
    recorder = session.current()
    if recorder is None:
        return
    took = round((perf_counter() - done.start) * 1e9)
    free = free_bytes()
    used = None
    if done.free is not None and free is not None:
        used = done.free - free - done.graphs_bytes
    recorder.capture(
        kind=role(runner),
        weight=0,
        t_ns=done.t_ns,
        dur_ns=max(took - done.graphs_ns, 0),
        pool_bytes=used,
        mem_before=done.free,
        mem_after=free,
        **_common(runner, graph_mode(getattr(runner, "backend", runner))),
    )


def _capture_key(original: Function, guard: Guard) -> Function:
    def capture_one(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _measured(guard)
        result = original(self, *args, **kwargs)
        guard.run(_tell_key, self, args[0] if args else kwargs.get("shape_key"), before)
        return result

    return capture_one


def _capture_size(original: Function, guard: Guard) -> Function:
    def capture_one_batch_size(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _measured(guard)
        result = original(self, *args, **kwargs)
        size = args[0] if args else next(iter(kwargs.values()), None)
        guard.run(_tell, self, self, size, before)
        return result

    return capture_one_batch_size


def _measured(guard: Guard) -> tuple[float, int, int | None] | None:
    """Return time and free memory before a capture; a success here is none of the hook's yet."""
    if not guard.on:
        return None
    try:
        return perf_counter(), time_ns(), free_bytes()
    except Exception as error:
        guard.failed(error)
        return None


def _tell_key(backend: Any, key: Any, before: tuple[float, int, int | None] | None) -> None:
    vars(backend).pop(KNOWN, None)  # captured again, a graph may have other segments
    _tell(runner_of(backend), backend, key, before)


def _tell(runner: Any, owner: Any, key: Any, before: tuple[float, int, int | None] | None) -> None:
    recorder = session.current()
    if recorder is None or before is None:
        return
    start, t_ns, free_before = before
    took = round((perf_counter() - start) * 1e9)
    free_after = free_bytes()
    used = None if free_before is None or free_after is None else free_before - free_after
    if _OPEN:
        _OPEN[-1].graphs_ns += took
        _OPEN[-1].graphs_bytes += used or 0
    tokens = counts_tokens(runner)
    recorder.capture(
        artifact=artifact(role(runner), key, tokens),
        size=int(getattr(key, "size", key)),
        kind=role(runner),
        t_ns=t_ns,
        dur_ns=took,
        mem_before=free_before,
        mem_after=free_after,
        pool_bytes=used,
        key={"runner": type(runner).__name__, **key_columns(key)},
        identity=identity_of(getattr(runner, "model_runner", None), owner),
        **_common(runner, graph_mode(owner)),
    )


def _common(runner: Any, mode: str) -> dict[str, Any]:
    prefill = "prefill" in role(runner)
    verify = getattr(getattr(runner, "capture_forward_mode", None), "name", "") == "TARGET_VERIFY"
    return {
        "mode": None if mode == "compiled" else mode,
        "runner": "draft" if is_draft(runner) else "target",
        "phase": PREFILL_PHASES[0] if prefill else "verify" if verify else "decode",
        "axis": "tokens" if prefill or counts_tokens(runner) else "requests",
    }


def free_bytes() -> int | None:
    """Return free device memory in bytes, or None where there is no device in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return int(cuda.mem_get_info()[0])
