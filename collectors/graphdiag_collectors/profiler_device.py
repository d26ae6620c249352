"""Device time of every Nth step by CUDA event pairs that nobody waits for.

A sampled step records an event on its stream when it begins and another when it ends. A later step
asks whether the second has passed, and if so the time between them becomes the first step's
``gpu_span_ns``. Meanwhile that step's row, and those after it on its channel, are held, so that
the trace has each step once and in order. Events are recorded and asked for by the threads that
step, and never within a capture, where asking would spoil it.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from graphdiag_collectors.channel import Channel
from graphdiag_collectors.guard import Guard
from graphdiag_collectors.profiler_rows import (
    Columns,
    TakenRows,
    Watched,
    arguments,
    record_with,
)
from graphdiag_collectors.recorder import Recorder

DEVICE_TIME = "device_time"
"""``kind`` of the mark that says what became of the samples, when the recording ends or sampling
does. ``config``: ``every``; ``timed``, samples with a time; ``untimed``, how many have none, by
reason; ``error``, why sampling ended where it did."""

RING = 16
"""Samples whose events may be under way; the oldest is given up for one more."""
MOST_ROWS = 4096
"""Rows a channel may hold; more are not waited for."""
OLD_SECONDS = 1.0
"""How long a sample is waited for, where no step asks for it or the device is busy that long."""
LOST_SECONDS = 10.0
"""How long a step may last that is not said to end, as one that raised."""

NO_CUDA = (
    "Device times of steps were asked for and are not there: torch's CUDA is not in use in the "
    "process."
)

Held = tuple[Watched | None, dict[str, Any]]
"""A row that waits, and its step if that is sampled."""


class Sampled(Watched):
    """A step between two events.

    Attributes
    ----------
    first, last
        The events.
    stream
        Where they are recorded.
    since
        When the step began, and once it has ended, when that was; monotonic clock, s.
    span_ns
        Device time between the events, once it is known.
    """

    __slots__ = ("_settled", "first", "last", "since", "span_ns", "stream")

    def __init__(self, first: Any, last: Any, stream: Any) -> None:
        super().__init__()
        self.first, self.last, self.stream = first, last, stream
        self.since = time.monotonic()
        self.span_ns: int | None = None
        self._settled = False

    @property
    def settled(self) -> bool:
        """Whether its time is known or given up."""
        return self._settled

    def settle(self, span_ns: int | None) -> None:
        """Take its time, None where there is none to be had."""
        self.span_ns = span_ns
        self._settled = True

    def figures(self) -> Columns:
        """Return its time on the device."""
        return {} if self.span_ns is None else {"gpu_span_ns": self.span_ns}


class DeviceTimer(TakenRows):
    """Times every ``every``-th step of a recorder on its stream.

    Parameters
    ----------
    recorder
        Whose steps.
    every
        One step in how many; of all that begin, whichever model's.
    guard
        Counts what the events raise.
    over
        Called when it has ended.

    Attributes
    ----------
    ended
        Whether it has.
    """

    def __init__(
        self, recorder: Recorder, every: int, guard: Guard, over: Callable[[DeviceTimer], None]
    ) -> None:
        super().__init__(recorder, self.begin, self.end, self.finish)
        self.ended = False
        self._every, self._left = every, every
        self._guard, self._over = guard, over
        self._lock = threading.RLock()
        self._open: Sampled | None = None
        self._pending: deque[Sampled] = deque()
        self._pool: list[tuple[Any, Any]] = []
        self._held: dict[Channel, deque[Held]] = {}
        self._timed = 0
        self._untimed: Counter[str] = Counter()
        self._without_cuda = 0

    def begin(self) -> Sampled | None:
        """Say that a step begins in this thread; return it if it is sampled. Never raises."""
        if self._open is not None:
            return None  # within a sampled step, or beside it
        self.latest = None
        try:
            if self._pending:
                self._ask()
            self._left -= 1
            return self._sample() if self._left <= 0 else None
        except Exception as error:
            self._failed(error)
            return None

    def end(self, step: Watched | None) -> None:
        """Say that the step that :meth:`begin` returned ends. Never raises."""
        if not isinstance(step, Sampled):
            return  # none, or one of a profile window
        try:
            with self._lock:
                if step is self._open:
                    self._open = None
                    self._sampled(step)
        except Exception as error:
            self._give_up(step, "its events raised")
            self._failed(error)

    def add(self, step: Watched | None, channel: Channel, *args: Any, **columns: Any) -> None:
        """Record a row by ``Channel.record``'s arguments, now or when its step's time is known.

        Raises
        ------
        TypeError
            As ``Channel.record`` does.
        """
        if step is not None and step.claimed:
            step = None
        if step is None and not self._held.get(channel):
            Channel.record(channel, *args, **columns)
            return
        given = arguments(channel, *args, **columns)
        with self._lock:
            if step is not None:
                step.claimed = True
            held = self._held.setdefault(channel, deque())
            held.append((step, given))
            if len(held) > MOST_ROWS:
                self._settle_all("too many rows waited for them")
            self._deliver(channel)

    record = add

    def is_idle(self, channel: Channel) -> bool:
        """Say whether the channel holds no row."""
        return not self._held.get(channel)

    def take_over(self) -> None:
        """Let every row pass through here, those of channels to come as well."""
        super().take_over()

        def channel(**words: Any) -> Channel:
            made: Channel = Recorder.channel(self.recorder, **words)
            self._take(made)
            return made

        vars(self.recorder)["channel"] = channel

    def give_back(self) -> None:
        """Let the recorder record as before."""
        vars(self.recorder).pop("channel", None)
        super().give_back()

    def pause(self) -> None:
        """Let go of the recorder, for a profile window; what is under way gets no time."""
        with self._lock:
            self._settle_all("a profile window was opened")
            self.give_back()

    def resume(self) -> None:
        """Go on."""
        with self._lock:
            if not self.ended:
                self.take_over()

    def tidy(self) -> None:
        """Give up what is too old, in a thread that never steps: no step asks for it any more."""
        now = time.monotonic()
        with self._lock:
            while self._pending and now - self._pending[0].since > OLD_SECONDS:
                self._give_up(self._pending.popleft(), f"not known within {OLD_SECONDS:g} s")
            step = self._open
            if step is not None and now - step.since > LOST_SECONDS:
                self._open = None
                self._give_up(step, "it was not said to end")
            self._deliver_all()

    def finish(self, error: str | None = None) -> None:
        """Record every row that waits, without waiting for the device, and end."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            if self._pending and self._pending[0].thread == threading.get_ident():
                self._guard.run(self._ask)
            self._settle_all("the recording ended")
            self.give_back()
            if self._timed or self._untimed or error:
                told = {"every": self._every, "timed": self._timed, "untimed": dict(self._untimed)}
                self.recorder.mark(DEVICE_TIME, {**told, "error": error})
        self._over(self)

    def forget(self) -> None:
        """Drop everything, in a forked child: rows and events are the parent's."""
        self.give_back()
        self.ended = True
        self._open = self.latest = None
        for waiting in (self._pending, self._pool, self._held):
            waiting.clear()

    def _sample(self) -> Sampled | None:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            self._left = self._every
            self._without_cuda += 1
            if self._without_cuda > 1:  # it may come with the first step
                self.finish(NO_CUDA)
                self.recorder.run({"notes": [NO_CUDA]})
            return None
        if cuda.is_current_stream_capturing():
            return None  # the next one will do
        with self._lock:
            if self._open is not None or not self._channels:
                return None  # another thread's came first, or this ended or was paused meanwhile
            self._left = self._every
            pair = self._pool.pop() if self._pool else None
            first, last = pair or (cuda.Event(enable_timing=True), cuda.Event(enable_timing=True))
            first.record()
            self._open = self.latest = sampled = Sampled(first, last, cuda.current_stream())
            return sampled

    def _sampled(self, sampled: Sampled) -> None:
        cuda = sys.modules["torch"].cuda
        if cuda.is_current_stream_capturing():
            self._give_up(sampled, "a capture was under way")
        elif cuda.current_stream() != sampled.stream:
            self._give_up(sampled, "it ended on another stream")
        else:
            sampled.last.record()
            sampled.since = time.monotonic()
            self._pending.append(sampled)
            if len(self._pending) > RING:
                self._give_up(self._pending.popleft(), "too many were under way")

    def _ask(self) -> None:
        """Settle the samples whose events have passed, and record the rows that waited for them."""
        with self._lock:
            if not self._pending or sys.modules["torch"].cuda.is_current_stream_capturing():
                return
            while self._pending:
                sampled = self._pending[0]
                try:
                    if not sampled.last.query():
                        break
                    span_ms = sampled.first.elapsed_time(sampled.last)
                except Exception:
                    self._give_up(self._pending.popleft(), "its events raised")
                    raise
                self._pending.popleft()
                self._pool.append((sampled.first, sampled.last))
                if math.isfinite(span_ms) and span_ms >= 0:
                    sampled.settle(round(span_ms * 1e6))
                    self._timed += 1
                    self._guard.in_a_row = 0
                else:
                    self._give_up(sampled, "its time is no time")
            self._deliver_all()

    def _give_up(self, sampled: Sampled, why: str) -> None:
        sampled.settle(None)
        self._untimed[why] += 1

    def _settle_all(self, why: str) -> None:
        """Give up every sample, and record every row."""
        if self._open is not None:
            self._give_up(self._open, why)
            self._open = None
        while self._pending:
            self._give_up(self._pending.popleft(), why)
        self.latest = None
        self._deliver_all()

    def _deliver_all(self) -> None:
        for channel in self._held:
            self._deliver(channel)

    def _deliver(self, channel: Channel) -> None:
        """Record the rows of a channel up to the first whose step is not settled."""
        held = self._held[channel]
        while held:
            step, given = held[0]
            if step is not None and not step.settled and not self.ended:
                break
            record_with(channel, step, given)
            held.popleft()  # only now: a channel that holds nothing is written to without the lock

    def _failed(self, error: Exception) -> None:
        self._guard.failed(error)
        if not self._guard.on:
            self.finish(f"it switched itself off after failures ({self._guard.last})")
