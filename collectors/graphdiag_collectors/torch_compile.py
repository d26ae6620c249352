"""Every compile of ``torch.compile`` in this process: what, why, how long, from which cache.

Two hooks, neither on the path of a call that compiles nothing. Dynamo hands its metrics of each
finished compile to ``log_compilation_event``, which we replace; and its start and end callbacks
say that a compile is running now. Those run under a lock of Dynamo's that lets no other compile
in, and what they raise breaks the engine's compile, so they set one attribute and no more.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graphdiag_collectors.guard import Function, Hooks
from graphdiag_collectors.import_hook import when_imported
from graphdiag_collectors.marks import (
    COMPILE_FAILED,
    CUDAGRAPH_SKIP,
    DYNAMO_RESET,
    RECOMPILE_LIMIT,
)
from graphdiag_collectors.torch_metrics import (
    Counters,
    Frame,
    cache_of,
    frame_being_compiled,
    frame_of,
    kind_of,
    short,
    time_of,
)

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

COMPILING = "compiling"
"""``kind`` of the mark of a compile that has run for a second and is not done: ``compile``."""

GRAPH_BREAK = "graph_break"
"""``kind`` of the mark of ``weight`` graph breaks: ``reason``, and ``frame`` where it is known."""

CUDAGRAPHIFY = "cudagraphify"
"""``kind`` of the mark of time inductor spent on CUDA graphs at run time: ``frame``. A mark,
since the captures within it are events of their own."""

MOST_FRAMES = 4096
_AT_LIMIT = re.compile(r"FailOnRecompileLimitHit|recompile.?limit|cache_size_limit", re.IGNORECASE)
_LIMIT_NAME = re.compile(r"(?:accumulated_)?(?:recompile_limit|cache_size_limit)")
_LONG_NS = 1_000_000_000
_RECORDED: deque[tuple[Any, ...]] = deque(maxlen=256)  # not twice in a run, however often attached


class Compiles:
    """The compiles of this process from :meth:`attach` on, and up to 64 from before.

    Parameters
    ----------
    hooks
        Where the patches and guards go.
    recorder
        Returns the recorder, or None where there is none.
    began
        Called when a compile starts, under Dynamo's lock.

    Attributes
    ----------
    count, total_ns
        Regions compiled so far, and the time (ns) that took, failed attempts' included.
    running
        Start (ns) and Dynamo's words for the compile that runs now, else None.
    eager
        The frames at the recompile limit, by :attr:`Frame.key`.
    identity
        All that influences what is compiled from now on, where somebody said so.
    on
        Whether compiles are counted.
    """

    def __init__(
        self, hooks: Hooks, recorder: Callable[[], Recorder | None], began: Callable[[], None]
    ) -> None:
        self._hooks = hooks
        self._recorder = recorder
        self._began = began
        self._attached = False
        self._counters = Counters({})
        self._handler: Any = None
        self._frames: dict[str, Frame] = {}
        self._told: tuple[int, str] | None = None
        self.count = 0
        self.total_ns = 0
        self.running: tuple[int, str] | None = None
        self.eager: set[str] = set()
        self.identity: Mapping[str, Any] | None = None
        self.on = False

    def attach(self) -> None:
        """Patch Dynamo: now if it is imported, else as soon as it is."""
        self._attached = True
        when_imported("torch._dynamo.utils", self._hook_metrics)
        when_imported("torch._dynamo.callback", self._hook_callbacks)

    def detach(self) -> None:
        """Take the callbacks back; the patches are undone by :meth:`Hooks.unpatch`."""
        self._attached = self.on = False
        handler, self._handler = self._handler, None
        if handler is not None and self._start in handler.start_callbacks:
            handler.remove_start_callback(self._start)
            handler.remove_end_callback(self._end)

    def tell(self) -> None:
        """Record a compile that has run for a second: the process may not see its end."""
        running = self.running
        if running is None or running == self._told or time.time_ns() - running[0] < _LONG_NS:
            return
        recorder = self._recorder()
        if recorder is not None:
            self._told = running
            recorder.mark(COMPILING, {"compile": running[1]}, t_ns=running[0])

    def _hook_metrics(self, utils: ModuleType) -> None:
        if not self._attached:
            return
        guard = self._hooks.guard("torch.compile")
        self._counters = Counters(getattr(utils, "counters", {}))

        def wrap(original: Function) -> Function:
            def log_compilation_event(*arguments: Any, **named: Any) -> Any:
                result = original(*arguments, **named)
                if guard.on:
                    guard.run(self._compiled, *arguments, *named.values())
                return result

            return log_compilation_event

        self.on = self._hooks.patch(utils, "log_compilation_event", wrap)
        guard.run(self._catch_up, utils)

    def _catch_up(self, utils: ModuleType) -> None:
        """Record what was compiled before we came: Dynamo keeps the last 64 metrics."""
        config = sys.modules.get("torch._dynamo.config")
        if getattr(config, "log_compilation_metrics", True) is False:
            self._hooks.missing["torch.compile"] = "log_compilation_metrics is off in Dynamo"
        for metrics in utils.get_compilation_metrics():
            self._compiled(metrics, history=True)
        self._breaks({})
        for group in ("inductor", "aot_autograd"):
            self._counters.all_grown(group)

    def _compiled(self, metrics: Any, history: bool = False) -> None:
        """Record one finished compile; runs in the thread that compiled."""

        def get(field: str) -> Any:
            return getattr(metrics, field, None)

        compile_id = str(get("compile_id") or "")
        start_ns, dur_ns = time_of(metrics)
        recorder = self._recorder()
        run = os.environ.get("GRAPHDIAG_RUN")
        once = (run, compile_id, start_ns, get("is_forward"), get("is_runtime"))
        if recorder is None or once in _RECORDED:
            return
        _RECORDED.append(once)
        frame = self._frame(metrics, compile_id, history)
        told = {"frame": frame.key, "compile_id": compile_id}
        kind, failed, weight = kind_of(metrics, compile_id), get("fail_type") is not None, 1
        if failed or get("has_guarded_code") is False:
            weight = 0  # time spent, but no region that anything runs
        if get("is_runtime"):
            tuned_us = get("runtime_triton_autotune_time_us")
            if tuned_us is None:
                recorder.mark(CUDAGRAPHIFY, told, t_ns=start_ns, dur_ns=dur_ns)
                return
            kind, dur_ns, weight = "autotune", tuned_us * 1000, 0
        recorder.compile(
            artifact=frame.name,
            t_ns=start_ns,
            dur_ns=dur_ns,
            kind=kind,
            key=told,
            identity=None if history else self.identity,
            cache=None if failed else cache_of(metrics, self._counters, history),
            reason=short(get("recompile_reason") or None),
            weight=weight,
        )
        self.count += weight
        self.total_ns += dur_ns or 0
        if failed:
            self._failed(recorder, metrics, told)
        if not history:
            self._breaks(told)
        reason, skips = get("cudagraph_skip_reason"), 0
        if not history:
            skips = self._counters.grown("inductor", "cudagraph_skips")
        if reason or skips:
            recorder.mark(CUDAGRAPH_SKIP, {**told, "reason": short(reason)}, weight=max(skips, 1))

    def _frame(self, metrics: Any, compile_id: str, history: bool) -> Frame:
        """Name the frame; a backward pass and a failure at the limit know it by number only."""
        number = compile_id.rpartition("/")[0]
        frame = frame_of(metrics) or self._frames.get(number)
        if frame is None and not history:
            frame = frame_being_compiled()
        if frame is None:
            return Frame(f"frame {number}", f"frame {number}")
        if len(self._frames) < MOST_FRAMES:
            self._frames[number] = frame
        return frame

    def _failed(self, recorder: Recorder, metrics: Any, told: dict[str, str]) -> None:
        kind, why = str(metrics.fail_type), str(metrics.fail_reason)
        if not _AT_LIMIT.search(f"{kind} {why}"):
            recorder.mark(COMPILE_FAILED, {**told, "type": kind, "reason": short(why)})
            return
        if told["frame"] in self.eager or len(self.eager) >= MOST_FRAMES:
            return
        self.eager.add(told["frame"])
        limit = _LIMIT_NAME.search(why)
        details = {
            "effect": "error" if kind == "FailOnRecompileLimitHit" else "eager",
            "limit": limit.group() if limit else None,
            "reason": short(getattr(metrics, "recompile_reason", None)),
        }
        recorder.mark(RECOMPILE_LIMIT, {**told, **details})

    def _breaks(self, told: dict[str, str]) -> None:
        for reason, count in self._counters.all_grown("graph_break").items():
            recorder = self._recorder()
            if recorder is not None:
                recorder.mark(GRAPH_BREAK, {**told, "reason": short(reason)}, weight=count)

    def _hook_callbacks(self, callback: ModuleType) -> None:
        if not self._attached:
            return
        handler = getattr(callback, "callback_handler", None)
        if handler is None:
            self._hooks.missing["torch.compile.callbacks"] = "not there in this version"
            return
        self._handler = handler
        guard = self._hooks.guard("torch.compile.callbacks")

        def wrap(original: Function) -> Function:
            def clear(handler_: Any, *arguments: Any, **named: Any) -> Any:
                try:
                    return original(handler_, *arguments, **named)
                finally:
                    guard.run(self._forgotten)

            return clear

        self._hooks.patch(type(handler), "clear", wrap)
        guard.run(self._register)

    def _register(self) -> None:
        handler = self._handler
        if handler is not None and self._start not in handler.start_callbacks:
            handler.register_start_callback(self._start)
            handler.register_end_callback(self._end)

    def _forgotten(self) -> None:
        """``torch._dynamo.reset()`` cleared our callbacks, and what it knew of every frame."""
        self._register()
        self._frames.clear()
        frames, self.eager = sorted(self.eager), set()
        recorder = self._recorder() if frames else None
        if recorder is not None:
            recorder.mark(DYNAMO_RESET, {"frames": frames})

    def _start(self, *arguments: Any) -> None:
        try:
            self.running = (time.time_ns(), _words(*arguments))
            self._began()
        except BaseException as error:  # whatever leaves a callback breaks the engine's compile
            self._hooks.guard("torch.compile.callbacks").failed(error)

    def _end(self, *_: Any) -> None:
        self.running = None


def _words(arguments: Any = None) -> str:
    """Return what Dynamo says of the compile that starts; before torch 2.8 that is nothing."""
    trigger = getattr(getattr(arguments, "callback_trigger", None), "name", "")
    return f"{trigger} {getattr(arguments, 'compile_id', '')}".strip()
