"""The rows of a profile window, held until the profile is read.

A step's row is due when the step ends, and what the GPU did in it is known only when the profile
has been read. So every row of the recorder is held meanwhile, in order, and then recorded once,
with the profile's columns where it is a profiled step's.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from time import perf_counter
from types import TracebackType
from typing import Any

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.channel import Channel, Step
from graphdiag_collectors.recorder import Recorder

MOST_ROWS = 65_536

_SIGNATURE = inspect.signature(Channel.record)
_CLOCK = ("clock", "t_ns")


class Profiled:
    """One step of a window: its number there, its annotation, and whether its row has come."""

    __slots__ = ("annotation", "claimed", "number")

    def __init__(self, number: int, annotation: Any) -> None:
        self.number = number
        self.annotation = annotation
        self.claimed = False


Begin = Callable[[], "Profiled | None"]
End = Callable[["Profiled | None"], None]


class HeldRows:
    """Takes the place of a recorder's ``step`` and ``record`` while a window is open.

    Parameters
    ----------
    recorder
        Whose rows to hold, with those of its channels.
    lock
        The window's.
    begin, end
        The window's, called around each step that the recorder itself times.
    closing
        Called before the recorder closes, which would lose the rows, and when there are too many,
        then with the reason.
    """

    def __init__(
        self,
        recorder: Recorder,
        lock: threading.RLock,
        begin: Begin,
        end: End,
        closing: Callable[..., None],
    ) -> None:
        self._recorder = recorder
        self._begin, self._end, self._closing = begin, end, closing
        self._rows: list[tuple[Channel, Profiled | None, dict[str, Any]]] = []
        self._channels: list[Channel] = []
        self._figures: Mapping[int, Mapping[str, Any]] = {}
        self.claimed = threading.Condition(lock)
        self.delivered = False
        self.latest: Profiled | None = None

    def take_over(self) -> None:
        """Hold every row from now on."""
        self._channels = list(self._recorder._writer.channels)
        for channel in self._channels:
            vars(channel).update(step=self._stepper(channel), record=self._taker(channel))
        vars(self._recorder)["close"] = self._close

    def give_back(self) -> None:
        """Let the recorder record as before."""
        for channel in self._channels:
            for name in ("step", "record"):
                vars(channel).pop(name, None)
        vars(self._recorder).pop("close", None)

    def add(self, step: Profiled | None, channel: Channel, *args: Any, **columns: Any) -> None:
        """Hold the row of ``step``, or of no profiled step; arguments of ``Channel.record``.

        Raises
        ------
        TypeError
            As ``Channel.record`` does.
        """
        given = dict(_SIGNATURE.bind(channel, *args, **columns).arguments)
        del given["self"]
        if all(given.get(name) in (None, NULL) for name in _CLOCK):
            given["clock"] = (perf_counter(), float("nan"))
        with self.claimed:
            if step is not None and step.claimed:
                step = None  # a step has one row with its figures
            if step is not None:
                step.claimed = True
                self.claimed.notify_all()
            if self.delivered:
                self._record(channel, step, given)
            else:
                self._rows.append((channel, step, given))
                if len(self._rows) >= MOST_ROWS:
                    self._closing(f"more than {MOST_ROWS} rows came within the window")

    def deliver(self, figures: Mapping[int, Mapping[str, Any]]) -> None:
        """Record every row, those of profiled steps with ``figures`` by the step's number."""
        with self.claimed:
            if self.delivered:
                return
            self.delivered = True
            self._figures = figures
            for channel, step, given in self._rows:
                self._record(channel, step, given)
            self._rows.clear()

    def _record(self, channel: Channel, step: Profiled | None, given: dict[str, Any]) -> None:
        figures = self._figures.get(step.number) if step is not None else None
        if figures:
            given = _merged(given, figures)
        Channel.record(channel, **given)

    def _stepper(self, channel: Channel) -> Callable[..., Step]:
        def step(requested: int | None = None, **columns: Any) -> Step:
            profiled = self._begin()
            return _HeldStep(self, channel, profiled, requested, columns)

        return step

    def _taker(self, channel: Channel) -> Callable[..., None]:
        own = channel.labels._defaults.runner

        def record(*args: Any, **columns: Any) -> None:
            # The row of a step that begun() and ended() told of: the next real one of its model.
            step = self.latest
            runner = columns.get("runner") or own
            if step is not None and (step.claimed or columns.get("kind") or runner != "target"):
                step = None
            self.add(step, channel, *args, **columns)

        return record

    def _close(self) -> None:
        self._closing()
        Recorder.close(self._recorder)


def _merged(given: dict[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's arguments with a profile's; how often it replayed, the engine knows itself."""
    merged = {**given, **figures}
    if given.get("replays") not in (None, NULL):
        merged["replays"] = given["replays"]
    duration = given.get("dur_ns")
    start, end = given.get("clock") or (None, float("nan"))
    if duration in (None, NULL) and start is not None and end == end:
        duration = round((end - start) * 1e9)
    if duration not in (None, NULL) and "host_ns" in figures:
        # The annotation lies around what the row times, and takes time to be made.
        merged["host_ns"] = max(min(figures["host_ns"], duration - figures["blocked_ns"]), 0)
    return merged


class _HeldStep(Step):
    """A step of ``with recorder.step(…)`` while a window is open."""

    __slots__ = ("_profiled", "_rows")

    def __init__(
        self,
        rows: HeldRows,
        channel: Channel,
        profiled: Profiled | None,
        requested: int | None,
        columns: dict[str, Any],
    ) -> None:
        super().__init__(channel)
        self._rows, self._profiled = rows, profiled
        self._requested, self._more = requested, columns
        self._start = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = perf_counter()
        rows, profiled = self._rows, self._profiled
        try:
            rows._end(profiled)
            self._channel = _Through(rows, profiled, self._channel)  # type: ignore[assignment]
            self._widen(end)
        except Exception as failure:
            rows._recorder.refuse(f"{type(failure).__name__}: {failure}")


class _Through:
    """What a held step takes for its channel, to record its own row and no other."""

    def __init__(self, rows: HeldRows, step: Profiled | None, channel: Channel) -> None:
        self._rows, self._step, self._channel = rows, step, channel
        self.refuse = channel.refuse

    def record(self, *args: Any, **columns: Any) -> None:
        """Hold the row."""
        self._rows.add(self._step, self._channel, *args, **columns)
