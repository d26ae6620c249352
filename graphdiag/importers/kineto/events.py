"""Trace events as columns: the few that matter, times in integer nanoseconds.

A window of the trace is decoded at once (:meth:`EventLog.add_window`) into a type that names only
the fields we need: the decoder skips the rest at a gigabyte a second, whatever the layout, and
proves that the window holds whole events. What does not fit that type is read event by event
(:meth:`EventLog.add_elements`), more leniently and more slowly, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from graphdiag.importers.kineto.calls import CallFlags
from graphdiag.importers.kineto.times import Coarse, exact_ns, nanoseconds

NO_CORRELATION = -1

_KERNEL, _TRANSFER, _CALL, _ANNOTATION = range(4)
_GROUPS = {
    "kernel": _KERNEL,
    "gpu_memcpy": _TRANSFER,
    "gpu_memset": _TRANSFER,
    "cuda_runtime": _CALL,
    "cuda_driver": _CALL,
    "user_annotation": _ANNOTATION,
    # as old versions of Kineto wrote them
    "Kernel": _KERNEL,
    "Memcpy": _TRANSFER,
    "Memset": _TRANSFER,
    "Runtime": _CALL,
}
"""The categories that matter; HIP calls, too, come as ``cuda_runtime``."""

_LABELS = ("execute_", "step[", "capture_")
"""How the annotations begin that :mod:`graphdiag.importers.kineto.labels` reads."""

_NO_JSON = re.compile(r"(?<=[:,\[])\s*(?:NaN|-?Infinity)\b")

Text = bytes | bytearray | memoryview


class _Args(msgspec.Struct, frozen=True, gc=False):
    correlation: int = NO_CORRELATION


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Any = None
    dur: Any = None
    args: _Args = _Args()


class _NumberEvent(_Event, gc=False):
    ts: int | float | None = None
    dur: int | float | None = None


class _TextEvent(_Event, gc=False):
    """With its times as text, for traces whose floats are too coarse."""

    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")


class _Loose(msgspec.Struct, gc=False):
    """An event as it may come from a hand that saved the trace again."""

    cat: Any = None
    name: Any = ""
    pid: Any = ""
    tid: Any = ""
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Any = None


class _Category(msgspec.Struct, gc=False):
    cat: Any = None


_decode_numbers = msgspec.json.Decoder(list[_NumberEvent]).decode
_decode_texts = msgspec.json.Decoder(list[_TextEvent]).decode
_decode_category = msgspec.json.Decoder(_Category).decode
_decode_loose = msgspec.json.Decoder(_Loose).decode


class Annotation(NamedTuple):
    """A label put around a step or a capture: start and duration in ns, and its thread."""

    name: str
    start: int
    duration: int
    thread: int


@dataclass(frozen=True)
class Spans:
    """Events with a start and a duration in ns, and the correlation id of the launching call."""

    start: np.ndarray
    duration: np.ndarray
    correlation: np.ndarray

    @property
    def end(self) -> np.ndarray:
        """End of each event, in ns."""
        end: np.ndarray = self.start + self.duration
        return end

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GpuEvents(Spans):
    """Kernels, copies and sets on the GPU; ``kernel`` is true for kernels."""

    kernel: np.ndarray


@dataclass(frozen=True)
class Calls(Spans):
    """Runtime and driver calls on the host: the thread of each, and the bits of what it does."""

    thread: np.ndarray
    flags: np.ndarray

    def does(self, bits: int) -> np.ndarray:
        """Mask of the calls that have one of ``bits``."""
        mask: np.ndarray = (self.flags & bits) != 0
        return mask


@dataclass(frozen=True)
class Events:
    """All that matters in a trace file; ``pid`` is the process that made the calls, if told."""

    gpu: GpuEvents
    calls: Calls
    annotations: list[Annotation]
    pid: int | None


class EventLog:
    """Collects the events of one file, window by window.

    Attributes
    ----------
    count
        Events seen, of every category.
    damaged
        Events left out because they are no valid JSON or lack their times.
    """

    def __init__(self) -> None:
        self.count = 0
        self.damaged = 0
        self._as_text = False
        self._gpu: list[tuple[np.ndarray, ...]] = []
        self._calls: list[tuple[np.ndarray, ...]] = []
        self._annotations: list[Annotation] = []
        self._flags = CallFlags()
        self._threads = _Threads()
        self._pid: int | None = None

    def add_window(self, text: Text, skipped: int = 0) -> bool:
        """Add all events of ``text``, a JSON array; or add none and return False if it is odd.

        ``skipped`` events were left out of it, being none that matters.
        """
        try:
            self._add_window(text)
        except Coarse:
            self._as_text = True
            return self.add_window(text, skipped)
        except (msgspec.DecodeError, ValueError, ArithmeticError):
            return False
        self.count += skipped
        return True

    def _add_window(self, text: Text) -> None:
        decoded: Sequence[_Event] = (_decode_texts if self._as_text else _decode_numbers)(text)
        events = [event for event in decoded if event.cat in _GROUPS]
        if self._as_text:
            start = np.array([exact_ns(bytes(event.ts)) for event in events], np.int64)
            duration = np.array([exact_ns(bytes(event.dur)) for event in events], np.int64)
        else:
            start = nanoseconds([event.ts for event in events])
            duration = nanoseconds([event.dur for event in events])
        self._add(events, start, duration)
        self.count += len(decoded)

    def add_elements(self, elements: Iterable[bytes]) -> None:
        """Add events one by one; what cannot be read is counted as damaged."""
        events: list[_Event] = []
        starts: list[int] = []
        durations: list[int] = []
        for element in elements:
            self.count += 1
            try:
                event = _loosely(element)
            except (msgspec.DecodeError, ValueError, ArithmeticError):
                self.damaged += 1
                continue
            if event is not None:
                events.append(event)
                starts.append(event.ts)
                durations.append(event.dur)
        self._add(events, np.array(starts, np.int64), np.array(durations, np.int64))

    def finish(self) -> Events:
        """Return what was collected, in one piece."""
        return Events(
            GpuEvents(*_joined(self._gpu, (np.int64, np.int64, np.int64, np.bool_))),
            Calls(*_joined(self._calls, (np.int64, np.int64, np.int64, np.int32, np.uint8))),
            self._annotations,
            self._pid,
        )

    def _add(self, events: list[_Event], start: np.ndarray, duration: np.ndarray) -> None:
        if not events:
            return
        group = np.array([_GROUPS[event.cat] for event in events], np.uint8)
        correlation = np.array([event.args.correlation for event in events], np.int64)
        duration = np.maximum(duration, 0)
        gpu = group <= _TRANSFER
        if gpu.any():
            kernel = group[gpu] == _KERNEL
            self._gpu.append((start[gpu], duration[gpu], correlation[gpu], kernel))
        called = np.flatnonzero(group == _CALL)
        if len(called):
            calls = [events[index] for index in called.tolist()]
            thread = np.array([self._threads[call.tid] for call in calls], np.int32)
            flags = np.array([self._flags[call.name] for call in calls], np.uint8)
            self._calls.append(
                (start[called], duration[called], correlation[called], thread, flags)
            )
            self._learn_pid(calls[0])
        for index in np.flatnonzero(group == _ANNOTATION).tolist():
            note = events[index]
            if note.name.startswith(_LABELS):
                times = int(start[index]), int(duration[index])
                self._annotations.append(Annotation(note.name, *times, self._threads[note.tid]))
                self._learn_pid(note)

    def _learn_pid(self, event: _Event) -> None:
        if self._pid is None and 0 <= (pid := _integer(event.pid)) < 1 << 31:
            self._pid = pid


class _Threads(dict[int | str, int]):
    """A code for each thread, the same whether its id is written as a number or as text."""

    def __missing__(self, tid: int | str) -> int:
        """Give ``tid`` its code."""
        code = self.setdefault(str(tid), len(self))
        self[tid] = code
        return code


def _loosely(element: bytes) -> _Event | None:
    """Return an event with its times in ns, or None where its category does not matter."""
    try:
        category = _decode_category(element).cat
        if not isinstance(category, str) or category not in _GROUPS:
            return None
        event = _decode_loose(element)
    except msgspec.DecodeError:
        # A name cut in the middle of a character, or Python's NaN, is no reason to lose an event.
        mended = _NO_JSON.sub("null", element.decode("utf-8", "replace")).encode()
        if mended == element:
            raise
        return _loosely(mended)
    args = event.args if isinstance(event.args, dict) else {}
    return _Event(
        cat=category,
        name=str(event.name),
        pid=_integer(event.pid),
        tid=str(event.tid),
        ts=exact_ns(bytes(event.ts)),
        dur=exact_ns(bytes(event.dur)),
        args=_Args(_integer(args.get("correlation"))),
    )


def _integer(value: object) -> int:
    """Return an integer that may come as text or float; -1, which is no id, where it is none."""
    if isinstance(value, str) and len(value) < 20 and value.strip().isdecimal():
        value = int(value)
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else NO_CORRELATION
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else NO_CORRELATION


def _joined(pieces: list[tuple[np.ndarray, ...]], types: tuple[type, ...]) -> list[np.ndarray]:
    if not pieces:
        return [np.zeros(0, dtype) for dtype in types]
    return [np.concatenate(column) for column in zip(*pieces, strict=True)]
