"""What the vLLM hooks of one process share: guards, notes of dispatches, and what is going on."""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from graphdiag_collectors import session
from graphdiag_collectors.guard import Guard, Hooks
from graphdiag_collectors.recorder import Recorder

Asked = tuple[Any, ...]
CONFIG = "vllm.config.vllm"


class State:
    """The collector in this process.

    Attributes
    ----------
    hooks
        All patches.
    notes
        Dispatches by a function or a drafter, which know no runner. vLLM runs a model in one
        thread of a process, the only one to write here; the bound keeps it small where nobody
        reads.
    activity
        What the engine is doing besides serving: ``profile``, ``capture``, ``warmup``, ``filler``,
        innermost last.
    dispatchers
        Whose dispatcher a V1 runner asks. Kept here: one more attribute on the dispatcher slows
        every access to its others by a tenth, because Python 3.11 lays the object out anew.
    runners
        Those that have steps here.
    captures_in_dummy
        True where a dummy run is what captures.
    regions, region_ns
        Compiled or loaded so far, and their time.
    """

    def __init__(self) -> None:
        self.hooks = Hooks(session.current)
        self.notes: deque[Asked] = deque(maxlen=64)
        self.activity: list[str] = []
        self.dispatchers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.runners: WeakSet[Any] = WeakSet()
        self.captures_in_dummy = False
        self.regions = 0
        self.region_ns = 0

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Say that everything inside is part of ``activity``."""
        self.activity.append(activity)
        try:
            yield
        finally:
            self.activity.remove(activity)

    def during(self, activity: str, guard: Guard) -> Callable[..., Any]:
        """Return what to wrap a function by whose whole run is part of ``activity``."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def inside(*args: Any, **kwargs: Any) -> Any:
                if not guard.on:
                    return original(*args, **kwargs)
                with self.doing(activity):
                    return original(*args, **kwargs)

            return inside

        return wrap

    def recorder(self, config: Any = None) -> Recorder:
        """Return the process's recorder, opened now if it was not.

        ``config`` is vLLM's; by default the one in force, which tells the rank.

        Raises
        ------
        NotRecording
            When there is none to be had; all hooks are off then.
        """
        recorder = session.current()
        if recorder is None:
            rank = rank_of(config or getattr(module(CONFIG), "_current_vllm_config", None))
            recorder = session.recorder({"engine": "vllm"}, axis="tokens", rank=rank)
        if recorder is None:
            for guard in self.hooks.guards.values():
                guard.on = False
            raise NotRecording
        return recorder

    def forget(self) -> None:
        """Take the steps off the runners: a later recording makes its own."""
        for runner in tuple(self.runners):
            runner.__dict__.pop("_graphdiag", None)

    def at_exit(self, function: Callable[[], object]) -> None:
        """Call ``function`` at exit before the recorder closes."""
        atexit.register(function)


class NotRecording(Exception):
    """There is no trace to record into."""


def rank_of(config: Any) -> int | None:
    """Return a worker's rank over all data-parallel groups; None where ``config`` is None."""
    parallel = getattr(config, "parallel_config", None)
    rank = getattr(parallel, "rank", None)
    if rank is None:
        return None
    world = getattr(parallel, "world_size", 1)
    return int(rank) + int(getattr(parallel, "data_parallel_rank", 0) or 0) * int(world)


def module(name: str) -> Any:
    """Return a module of the engine that is imported already, else None."""
    return sys.modules.get(name)
