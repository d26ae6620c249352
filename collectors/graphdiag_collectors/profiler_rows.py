"""The rows of steps whose figures come later: held, in order, until they are known.

A step's row is due when the step ends, and what the GPU did in it is known only when a profile has
been read or an event has passed. So the rows of a recorder pass through here meanwhile, and each
is recorded once, with the later figures where its step has any.
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

Columns = Mapping[str, Any]
Held = tuple[Channel, "Watched | None", dict[str, Any]]
"""A row that waits: where it goes, its step if that is watched, and ``Channel.record``'s
arguments."""


class Watched:
    """A step whose row gets more figures, once they are known.

    Attributes
    ----------
    thread
        The thread that runs it.
    claimed
        Whether its row has come: a step has one row with its figures.
    settled
        Whether the figures are known, or never will be.
    """

    __slots__ = ("claimed", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.claimed = False

    @property
    def settled(self) -> bool:
        """Whether :meth:`figures` has its last word."""
        raise NotImplementedError

    def figures(self) -> Columns:
        """Return the columns known of it so far."""
        raise NotImplementedError


class Profiled(Watched):
    """One step of a window: its number there, and its annotation."""

    __slots__ = ("_rows", "annotation", "number")

    def __init__(self, rows: HeldRows, number: int, annotation: Any) -> None:
        super().__init__()
        self._rows = rows
        self.number = number
        self.annotation = annotation

    @property
    def settled(self) -> bool:
        """Whether its window is over."""
        return self._rows.delivered

    def figures(self) -> Columns:
        """Return what the profile says of it."""
        return self._rows.figures.get(self.number, {})


Begin = Callable[[], "Watched | None"]
End = Callable[["Watched | None"], None]


class TakenRows:
    """Takes the place of a recorder's ``step`` and ``record``: every row passes through ``add``.

    Parameters
    ----------
    recorder
        Whose rows to take, with those of its channels.
    begin, end
        Called around each step that the recorder itself times.
    closing
        Called before the recorder closes, which would lose the rows.

    Attributes
    ----------
    latest
        The step whose row is to come by a plain ``record``.
    """

    def __init__(
        self, recorder: Recorder, begin: Begin, end: End, closing: Callable[..., None]
    ) -> None:
        self.recorder = recorder
        self._begin, self._end, self._closing = begin, end, closing
        self._channels: list[Channel] = []
        self.latest: Watched | None = None

    def add(self, step: Watched | None, channel: Channel, *args: Any, **columns: Any) -> None:
        """Record the row of ``step``, or of no watched step, now or later.

        Raises
        ------
        TypeError
            As ``Channel.record`` does.
        """
        raise NotImplementedError

    def is_idle(self, channel: Channel) -> bool:
        """Say whether a row of no watched step may go straight to ``channel``."""
        return False

    def take_over(self) -> None:
        """Let every row pass through here from now on."""
        for channel in tuple(self.recorder._writer.channels):
            self._take(channel)
        vars(self.recorder)["close"] = self._close

    def give_back(self) -> None:
        """Let the recorder record as before."""
        for channel in self._channels:
            for name in ("step", "record"):
                vars(channel).pop(name, None)
        self._channels = []
        vars(self.recorder).pop("close", None)

    def _take(self, channel: Channel) -> None:
        self._channels.append(channel)
        vars(channel).update(step=self._stepper(channel), record=self._taker(channel))

    def _stepper(self, channel: Channel) -> Callable[..., Step]:
        def step(requested: int | None = None, **columns: Any) -> Step:
            watched = self._begin()
            if watched is None and self.is_idle(channel):
                return Channel.step(channel, requested, **columns)
            return _HeldStep(self, channel, watched, requested, columns)

        return step

    def _taker(self, channel: Channel) -> Callable[..., None]:
        own = channel.labels._defaults.runner

        def record(*args: Any, **columns: Any) -> None:
            # The row of a step that begun() and ended() told of: the next real one of its model.
            step = self.latest
            if step is not None and (
                step.claimed
                or columns.get("kind")
                or (columns.get("runner") or own) != "target"
                or step.thread != threading.get_ident()
            ):
                step = None
            self.add(step, channel, *args, **columns)

        return record

    def _close(self) -> None:
        vars(self.recorder).pop("close", None)
        self._closing()
        self.recorder.close()


class HeldRows(TakenRows):
    """Holds every row while a window is open, and records all of them when it is over.

    Parameters
    ----------
    recorder, begin, end
        As in :class:`TakenRows`.
    lock
        The window's.
    closing
        Called before the recorder closes, and when there are too many rows, then with the reason.

    Attributes
    ----------
    claimed
        Notified when a profiled step's row has come; its lock is the window's.
    delivered
        Whether the rows were recorded, so that later ones are recorded at once.
    figures
        What the profile says of each step, by its number.
    """

    def __init__(
        self,
        recorder: Recorder,
        lock: threading.RLock,
        begin: Begin,
        end: End,
        closing: Callable[..., None],
    ) -> None:
        super().__init__(recorder, begin, end, closing)
        self._rows: list[Held] = []
        self.figures: Mapping[int, Columns] = {}
        self.claimed = threading.Condition(lock)
        self.delivered = False

    def add(self, step: Watched | None, channel: Channel, *args: Any, **columns: Any) -> None:
        """Hold a row; once they were delivered, record it."""
        given = arguments(channel, *args, **columns)
        with self.claimed:
            if step is not None and step.claimed:
                step = None
            if step is not None:
                step.claimed = True
                self.claimed.notify_all()
            if self.delivered:
                record_with(channel, step, given)
            else:
                self._rows.append((channel, step, given))
                if len(self._rows) >= MOST_ROWS:
                    self._closing(f"more than {MOST_ROWS} rows came within the window")

    def deliver(self, figures: Mapping[int, Columns]) -> None:
        """Record every row, those of profiled steps with ``figures`` by the step's number."""
        with self.claimed:
            if self.delivered:
                return
            self.delivered = True
            self.figures = figures
            for channel, step, given in self._rows:
                record_with(channel, step, given)
            self._rows.clear()


def arguments(channel: Channel, *args: Any, **columns: Any) -> dict[str, Any]:
    """Return the arguments of a ``Channel.record`` that comes later, with the time it is due now.

    Raises
    ------
    TypeError
        As ``Channel.record`` does.
    """
    given = dict(_SIGNATURE.bind(channel, *args, **columns).arguments)
    del given["self"]
    if all(given.get(name) in (None, NULL) for name in _CLOCK):
        given["clock"] = (perf_counter(), float("nan"))
    return given


def record_with(channel: Channel, step: Watched | None, given: dict[str, Any]) -> None:
    """Record a row, with what is known of its step."""
    figures = step.figures() if step is not None else None
    Channel.record(channel, **_merged(given, figures) if figures else given)


def _merged(given: dict[str, Any], figures: Columns) -> dict[str, Any]:
    """Return a row's arguments with the figures; how often it replayed, the engine knows itself."""
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
    """A step of ``with recorder.step(…)`` whose row passes through :class:`TakenRows`."""

    __slots__ = ("_rows", "_watched")

    def __init__(
        self,
        rows: TakenRows,
        channel: Channel,
        watched: Watched | None,
        requested: int | None,
        columns: dict[str, Any],
    ) -> None:
        super().__init__(channel)
        self._rows, self._watched = rows, watched
        self._requested, self._more = requested, columns
        self._start = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = perf_counter()
        rows, watched = self._rows, self._watched
        try:
            rows._end(watched)
            self._channel = _Through(rows, watched, self._channel)  # type: ignore[assignment]
            self._widen(end)
        except Exception as failure:
            rows.recorder.refuse(f"{type(failure).__name__}: {failure}")


class _Through:
    """What a held step takes for its channel, to record its own row and no other."""

    def __init__(self, rows: TakenRows, step: Watched | None, channel: Channel) -> None:
        self._rows, self._step, self._channel = rows, step, channel
        self.refuse = channel.refuse

    def record(self, *args: Any, **columns: Any) -> None:
        """Pass the row on."""
        self._rows.add(self._step, self._channel, *args, **columns)
