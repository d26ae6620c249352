"""Hooks on SGLang's sharing of one executable graph among captured graphs of one structure.

How many graphs share how many executables is a mark of kind ``dedup``. A shared executable has to
be updated before it replays another graph than the last time; how often that happens is a mark of
kind ``dedup_updates``, at most one a second, whose ``weight`` counts the updates.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Function, Guard, Hooks

_MARK_SECONDS = 1.0


class Counts:
    """Launches and updates since the last mark.

    Attributes
    ----------
    launches, updates
        Replays of shared graphs, and those that had to update the executable first.
    """

    def __init__(self) -> None:
        self.launches = 0
        self.updates = 0
        self._marked = 0.0

    def count(self, update: bool) -> None:
        """Count one launch, and mark what was counted if it is time."""
        self.launches += 1
        self.updates += update
        if self.updates and monotonic() - self._marked >= _MARK_SECONDS:
            self.mark()

    def mark(self) -> None:
        """Write the mark, and count from zero again."""
        self._marked = monotonic()
        launches, updates = self.launches, self.updates
        self.launches = self.updates = 0
        recorder = session.current()
        if recorder is not None:
            recorder.mark("dedup_updates", {"launches": launches}, weight=updates)


def patch_registry(hooks: Hooks, owner: type) -> None:
    """Patch the class ``DedupedCudaGraphRegistry``."""
    sealed = hooks.guard("sglang.dedup")
    hooks.patch(owner, "seal", lambda original: _seal(original, sealed))
    guard = hooks.guard("sglang.dedup_replay")
    hooks.patch(owner, "replay", lambda original: _replay(original, guard, Counts()))


def _seal(original: Function, guard: Guard) -> Function:
    def seal(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        guard.run(_tell, self)
        return result

    return seal


def _tell(registry: Any) -> None:
    graphs, executables = registry.stats()
    recorder = session.current()
    if recorder is not None and graphs:
        recorder.mark("dedup", {"graphs": graphs, "executables": executables})


def _replay(original: Function, guard: Guard, counts: Counts) -> Function:
    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        update = False
        if guard.on:
            try:
                graph = args[0] if args else kwargs["graph"]
                update = graph.group.current_raw_graph != graph.raw_graph
            except Exception as error:
                guard.failed(error)
                return original(self, *args, **kwargs)
        result = original(self, *args, **kwargs)
        if guard.on:
            try:
                counts.count(update)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return result

    return replay
