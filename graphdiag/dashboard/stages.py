"""What a page waits for, computed in the background: the newest state alone, and never twice.

A page has several stages: numbers, then findings, then each picture. A stage computes one thing at
a time; states that pass meanwhile are never computed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

_Result = TypeVar("_Result")


class State(NamedTuple):
    """What a page wants to show: a version of the trace, and what a reader chose of it."""

    version: int
    choice: Hashable


class Desk:
    """A thread that does one task after another, and rests in between: an engine has the processor.

    Parameters
    ----------
    rest
        How much longer than a task takes it rests after it. What somebody waits for is done at
        once.
    """

    def __init__(self, name: str, rest: float = 0) -> None:
        self._rest = rest
        self._awaited: deque[Callable[[], None]] = deque()
        self._patient: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._is_pressed = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def is_pressed(self) -> bool:
        """Whether somebody waits for what it does now, or does next."""
        return self._is_pressed or bool(self._awaited)

    def submit(self, task: Callable[[], None], *, at_once: bool) -> None:
        """Have ``task``, which raises nothing, done in its turn."""
        with self._changed:
            (self._awaited if at_once else self._patient).append(task)
            self._changed.notify()

    def hurry(self, task: Callable[[], None]) -> None:
        """Have a task that waits done at once."""
        with self._changed:
            if task in self._patient:
                self._patient.remove(task)
                self._awaited.append(task)
                self._changed.notify()

    def _work(self) -> None:
        rested = 0.0
        while True:
            task = self._next(rested)
            begin = time.monotonic()
            task()
            self._is_pressed = False
            end = time.monotonic()
            rested = end + self._rest * (end - begin)

    def _next(self, rested: float) -> Callable[[], None]:
        """Return the next task, once there is one; patient ones wait until ``rested``."""
        with self._changed:
            while not self._awaited:
                left = rested - time.monotonic()
                if self._patient and left <= 0:
                    return self._patient.popleft()
                self._changed.wait(left if self._patient else None)
            self._is_pressed = True
            return self._awaited.popleft()


class Stage(Generic[_Result]):
    """One thing that a page shows, which follows the state that the page wants.

    Parameters
    ----------
    desk
        Who computes it: at once where a reader chose something, patiently where rows are new.
    show
        Called by :meth:`take` with what was computed.
    ready
        Called in the desk's thread when there is something to take.

    Attributes
    ----------
    shown
        The state that is shown; None before one is.
    """

    def __init__(
        self, desk: Desk, show: Callable[[_Result], None], ready: Callable[[], None]
    ) -> None:
        self.shown: State | None = None
        self._desk, self._show, self._ready = desk, show, ready
        self._tried: State | None = None
        self._running: Callable[[], None] | None = None
        self._done: tuple[State, _Result | Exception] | None = None

    @property
    def is_computing(self) -> bool:
        """Whether something is being computed, or was and is not taken yet."""
        return self._running is not None

    def is_of_another(self, choice: Hashable) -> bool:
        """Say whether it shows something, and that of another choice."""
        return self.shown is not None and self.shown.choice != choice

    def want(self, state: State, compute: Callable[[], tuple[State, _Result]]) -> None:
        """Have ``state`` computed, unless it was, or something is being computed.

        ``compute`` returns the state that it found when its turn came, which may be a newer one.
        """
        is_awaited = self._tried is None or self._tried.choice != state.choice
        if self._running is not None:
            if is_awaited:
                self._desk.hurry(self._running)
            return
        if state == self._tried:
            return

        def work() -> None:
            try:
                self._done = compute()
            except Exception as error:  # one trace's trouble is not the page's
                self._done = state, error
            self._ready()

        self._running = work
        self._desk.submit(work, at_once=is_awaited)

    def take(self) -> None:
        """Show what was computed since.

        Raises
        ------
        Exception
            What computing or showing it raised; the state is not tried again.
        """
        if self._done is None:
            return
        (self._tried, result), self._done = self._done, None
        self._running = None
        if isinstance(result, Exception):
            raise result
        self._show(result)
        self.shown = self._tried
