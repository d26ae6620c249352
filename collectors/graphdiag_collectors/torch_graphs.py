"""Every CUDA graph of this process: its capture with time and memory, and its replays.

Torch 2.14 has official hooks for replays, and those are used; before, the class is patched, which
reaches all of ``torch.cuda.graph``, ``make_graphed_callables``, inductor and the engines, since
they call the method through the type. Captures are patched in every version: the official hooks
run inside the capture, where neither its cost nor the memory before it can be read.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from time import perf_counter_ns
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from graphdiag_collectors.guard import Function, Hooks
from graphdiag_collectors.import_hook import when_imported
from graphdiag_collectors.marks import CAPTURE_FAILED
from graphdiag_collectors.torch_metrics import short
from graphdiag_collectors.torch_replays import SLOT, Replays, Tally

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

GRAPH_RESET = "graph_reset"
"""``kind`` of the mark that says a captured graph was freed by ``reset()``: ``artifact``."""

KEEPALIVE = "pool_keepalive"
"""``kind`` of a capture with nothing in it, which inductor makes to keep its memory pool."""

_LOOK_BACK = 60


@dataclass
class Pending:
    """A capture under way, and what was measured around it.

    Attributes
    ----------
    start_ns, clock_ns
        When it began, on the wall clock and on the monotonic one.
    within
        Whether a ``torch.cuda.graph`` block surrounds it, and so ends it.
    kind
        Who captures: ``cuda_graph``, ``graphed_callable``, ``cudagraph_trees``, or
        :data:`KEEPALIVE`.
    before, after
        Free device memory, and what torch's allocator holds of it (bytes); None without a device.
    nodes
        Nodes in the graph, where torch lets them be counted.
    """

    start_ns: int
    clock_ns: int
    within: bool
    kind: str
    before: tuple[int, int] | None = None
    after: tuple[int, int] | None = None
    nodes: int | None = None


class Graphs:
    """The CUDA graphs of this process from :meth:`attach` on.

    Parameters
    ----------
    hooks
        Where the patches and guards go.
    recorder
        Returns the recorder, or None where there is none.
    began
        Called when a graph is replayed for the first time.
    replays
        Where replays are counted.
    captures
        Whether captures are recorded; an engine's own collector may know more of them.
    """

    def __init__(
        self,
        hooks: Hooks,
        recorder: Callable[[], Recorder | None],
        began: Callable[[], None],
        replays: Replays,
        captures: bool = True,
    ) -> None:
        self._hooks = hooks
        self._recorder = recorder
        self._began = began
        self._replays = replays
        self._captures = captures
        self._replay_guard = hooks.guard("torch.graphs.replay")
        self._capture_guard = hooks.guard("torch.graphs.capture")
        self._memory_guard = hooks.guard("torch.graphs.memory")
        self._handles: list[Any] = []
        self._hot: list[FunctionType] = []
        self._attached = False
        self.on = False

    def attach(self) -> None:
        """Patch torch's graphs: now if torch is imported, else as soon as it is."""
        self._attached = True
        when_imported("torch.cuda.graphs", self._hook)

    def detach(self) -> None:
        """Take the official hooks back; the patches are undone by :meth:`Hooks.unpatch`."""
        self._attached = self.on = False
        while self._handles:
            self._handles.pop().remove()

    def _hook(self, module: ModuleType) -> None:
        if not self._attached:
            return
        register = getattr(module, "register_graph_replay_end_hook", None)
        self._replays.timed = register is None
        if register is not None:
            self._handles.append(register(self._replayed))
            self.on = True
        else:
            self.on = self._hooks.patch(module.CUDAGraph, "replay", self._wrap_replay)
        self._hooks.patch(module.CUDAGraph, "reset", self._wrap_reset)
        if self._captures:
            self._hooks.patch(module.CUDAGraph, "capture_begin", self._wrap_begin)
            self._hooks.patch(module.CUDAGraph, "capture_end", self._wrap_end)
            self._hooks.patch(module.graph, "__enter__", self._wrap_enter)
            self._hooks.patch(module.graph, "__exit__", self._wrap_exit)
            register = getattr(module, "register_graph_capture_end_hook", None)
            if register is not None:
                self._handles.append(register(self._captured_nodes))
        when_imported("torch._dynamo.eval_frame", self._hide)

    def _hide(self, eval_frame: ModuleType) -> None:
        """Keep Dynamo from compiling our wrappers, where a compiled function replays a graph."""
        for wrapper in self._hot:
            eval_frame.skip_code(wrapper.__code__)

    def _replayed(self, graph: Any) -> None:
        """Torch's own hook at the end of each replay."""
        guard = self._replay_guard
        if guard.on:
            try:
                graph._graphdiag_tally.count += 1
                self._replays.count += 1
                if guard.in_a_row:
                    guard.in_a_row = 0
            except AttributeError:
                guard.run(self._first, graph, 0)
            except Exception as error:
                guard.failed(error)

    def _wrap_replay(self, original: Function) -> Function:
        """Count and time replays; ``replay`` takes no argument, which saves 0.1 µs to know."""
        guard, totals, clock = self._replay_guard, self._replays, perf_counter_ns

        def replay(graph: Any) -> Any:
            start = clock()
            result = original(graph)
            if guard.on:
                took = clock() - start
                try:
                    tally = graph._graphdiag_tally  # torch_replays.SLOT, spelled out for speed
                    tally.count += 1
                    tally.launch_ns += took
                    totals.count += 1
                    totals.launch_ns += took
                    if guard.in_a_row:
                        guard.in_a_row = 0
                except AttributeError:
                    guard.run(self._first, graph, took)
                except Exception as error:
                    guard.failed(error)
            return result

        if len(inspect.signature(original).parameters) != 1:
            raise TypeError("replay takes arguments in this version")
        self._hot.append(replay)  # type: ignore[arg-type]
        return replay

    def _first(self, graph: Any, launch_ns: int) -> None:
        self._replays.add(graph, launch_ns)
        self._began()

    def _wrap_reset(self, original: Function) -> Function:
        guard = self._hooks.guard("torch.graphs.reset")

        def reset(graph: Any, *arguments: Any, **named: Any) -> Any:
            result = original(graph, *arguments, **named)
            guard.run(self._freed, graph)
            return result

        return reset

    def _freed(self, graph: Any) -> None:
        tally: Tally | None = getattr(graph, SLOT, None)
        recorder = self._recorder() if tally is not None else None
        if tally is not None and recorder is not None:
            recorder.mark(GRAPH_RESET, {"artifact": tally.artifact})

    def _wrap_enter(self, original: Function) -> Function:
        guard = self._capture_guard

        def __enter__(block: Any) -> Any:
            guard.run(self._begin, block, True)
            try:
                return original(block)
            except BaseException as error:
                guard.run(self._broken, block, True, error)
                raise

        return __enter__

    def _wrap_begin(self, original: Function) -> Function:
        guard = self._capture_guard

        def capture_begin(graph: Any, *arguments: Any, **named: Any) -> Any:
            guard.run(self._begin, graph, False)
            try:
                return original(graph, *arguments, **named)
            except BaseException as error:
                guard.run(self._broken, graph, False, error)
                raise

        return capture_begin

    def _wrap_end(self, original: Function) -> Function:
        guard = self._capture_guard

        def capture_end(graph: Any, *arguments: Any, **named: Any) -> Any:
            try:
                result = original(graph, *arguments, **named)
            except BaseException as error:
                guard.run(self._broken, graph, False, error)
                raise
            guard.run(self._ended, graph, False)
            return result

        return capture_end

    def _wrap_exit(self, original: Function) -> Function:
        guard = self._capture_guard

        def __exit__(block: Any, *arguments: Any) -> Any:
            try:
                result = original(block, *arguments)
            except BaseException as error:
                guard.run(self._broken, block, True, error)
                raise
            guard.run(self._ended, block, True, *arguments[1:2])
            return result

        return __exit__

    def _begin(self, owner: Any, block: bool) -> None:
        """Note the start of a capture: at its block, then inside that at ``capture_begin``."""
        place, kind = _origin()
        tally = self._replays.tally(owner.cuda_graph if block else owner, place)
        if block or tally.pending is None or not tally.pending.within:
            tally.pending = Pending(time.time_ns(), perf_counter_ns(), block, kind)
        if not block:  # the block has emptied the allocator's cache by now
            tally.pending.before = self._memory_guard.run(_memory)

    def _ended(self, owner: Any, block: bool, error: BaseException | None = None) -> None:
        graph = owner.cuda_graph if block else owner
        tally: Tally | None = getattr(graph, SLOT, None)
        pending: Pending | None = tally.pending if tally is not None else None
        if tally is None or pending is None:
            return
        if not block:
            pending.after = self._memory_guard.run(_memory)
        if error is not None:
            self._broken(owner, block, error)
        elif block or not pending.within:
            tally.pending = None
            self._captured(graph, tally, pending)

    def _captured(self, graph: Any, tally: Tally, pending: Pending) -> None:
        recorder = self._recorder()
        if recorder is None:
            return
        empty = pending.nodes == 0 or pending.kind == KEEPALIVE
        before, after = pending.before or (None, None), pending.after or (None, None)
        grown = None
        if before[1] is not None and after[1] is not None:
            grown = after[1] - before[1]
        told: dict[str, Any] = {
            "artifact": tally.artifact,
            "size": tally.size,
            "kind": KEEPALIVE if empty else pending.kind,
            "t_ns": pending.start_ns,
            "dur_ns": perf_counter_ns() - pending.clock_ns,
            "mem_before": before[0],
            "mem_after": after[0],
            "pool_bytes": grown,
            "identity": {"pool": self._memory_guard.run(_pool, graph), "nodes": pending.nodes},
            "weight": 0 if empty else 1,
        }
        recorder.capture(**told | tally.columns)

    def _broken(self, owner: Any, block: bool, error: BaseException) -> None:
        """Record a capture that raised; the error is the engine's and goes its way."""
        tally: Tally | None = getattr(owner.cuda_graph if block else owner, SLOT, None)
        pending: Pending | None = tally.pending if tally is not None else None
        recorder = self._recorder() if pending is not None else None
        if tally is None or pending is None or recorder is None:
            return
        tally.pending = None
        first = error.__context__ or error  # torch may fail to end a capture that failed before
        details = {"artifact": tally.artifact, "error": short(f"{type(first).__name__}: {first}")}
        took = perf_counter_ns() - pending.clock_ns
        recorder.mark(CAPTURE_FAILED, details, t_ns=pending.start_ns, dur_ns=took)

    def _captured_nodes(self, graph: Any) -> None:
        """Torch's own hook when a capture has ended and its graph can still be read."""
        self._hooks.guard("torch.graphs.nodes").run(self._count_nodes, graph)

    def _count_nodes(self, graph: Any) -> None:
        tally: Tally | None = getattr(graph, SLOT, None)
        runtime = getattr(sys.modules["torch.cuda.graphs"], "_cuda_runtime", None)
        if tally is not None and tally.pending is not None and runtime is not None:
            _, _, nodes = runtime.cudaGraphGetNodes(graph.raw_cuda_graph(), numNodes=0)
            tally.pending.nodes = int(nodes)


def _memory() -> tuple[int, int] | None:
    """Return free device memory and the allocator's share of it in bytes; never wakes CUDA."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return None
    return int(cuda.mem_get_info()[0]), int(cuda.memory_reserved())


def _pool(graph: Any) -> list[int] | None:
    cuda = sys.modules["torch"].cuda
    return [int(part) for part in graph.pool()] if cuda.is_initialized() else None


def _origin() -> tuple[str, str]:
    """Return who captures: the first place outside torch on the stack, and the sort of capture."""
    frame = sys._getframe(1)
    kind = ""
    place = "unknown place"
    for _ in range(_LOOK_BACK):
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        if not module.startswith(("graphdiag_collectors", "contextlib")):
            kind = kind or _kind(code.co_filename, code.co_name)
            if not f"{module}.".startswith("torch.") and "torchinductor" not in code.co_filename:
                place = f"{code.co_name} {PurePath(code.co_filename).name}:{frame.f_lineno}"
                break
        if frame.f_back is None:
            break
        frame = frame.f_back
    return place, kind


def _kind(file: str, function: str) -> str:
    if file.endswith("cudagraph_trees.py"):
        return KEEPALIVE if function == "__init__" else "cudagraph_trees"
    return "graphed_callable" if function == "make_graphed_callables" else "cuda_graph"
