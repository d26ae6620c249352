"""The trace file as a stream: its header, its events in windows of whole ones, its trailer.

The array ``traceEvents`` may stand before, between or after the other keys, or be the whole file.
A window is cut at the last place that looks like the end of an event; decoding it proves the
place right, for a prefix of an array is an array itself only where an element ends. Where the
proof fails, and in the first and last window, the ends are found by scanning the structure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from graphdiag.errors import SourceError
from graphdiag.importers.kineto.events import EventLog
from graphdiag.importers.kineto.skim import FRONT, SLACK, Layout, learn_layout, skim
from graphdiag.importers.kineto.structure import elements
from graphdiag.importers.source import read_some

_WINDOW = 1 << 20
"""Bytes read at once: few enough to stay in the processor's cache."""

_MOST = 1 << 26
"""Bytes that a header or a single event may have before we call the file damaged."""

_BETWEEN = b" \t\r\n,"
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass
class Contents:
    """What a trace file held beside its events.

    Attributes
    ----------
    header
        The other keys of the file, those before and after the events.
    cut
        Why and where the file ends too early, or None where it is whole.
    lost_events
        True where the file ends before its last event, so that any step may lack some of its own:
        Kineto writes the steps first, and what they called and ran after them, in no sure order.
    """

    header: dict[str, Any] = field(default_factory=dict)
    cut: str | None = None
    lost_events: bool = False


def read_trace(stream: BinaryIO, name: str, log: EventLog) -> Contents:
    """Read the trace in ``stream`` into ``log``; ``name`` names it in errors.

    Raises
    ------
    SourceError
        When there is no ``traceEvents`` array, or the file ends before it begins.
    """
    buffer = _Buffer(stream)
    header = _open_array(buffer, name)
    contents = Contents(header or {})
    if not _read_events(buffer, log):
        why = buffer.damage or "it has no end"
        contents.lost_events = True
        contents.cut = f"the file is cut short ({why}); {log.count:,} whole events came before"
    elif header is not None:
        trailer = _trailer(buffer)
        if trailer is None:
            contents.cut = "the file is cut short after its last event; keys at its end are lost"
        contents.header.update(trailer or {})
    return contents


class _Buffer:
    """The part of a stream not yet consumed: ``data[FRONT:end]``, behind a bracket of our own."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ended = False
        self.data = bytearray(b"[".rjust(FRONT)) + bytes(_WINDOW + SLACK)
        self.end = FRONT
        self.damage: str | None = None

    def fill(self) -> bool:
        """Read on until full, growing if it was; return False where nothing more comes."""
        if self._ended:
            return False
        start, limit = self.end, len(self.data) - SLACK
        if start == limit:
            if start >= _MOST:
                self._ended = True
                self.damage = f"no event ends within {_MOST >> 20} MiB"
                return False
            self.data = self.data + bytes(start)
            limit += start
        view = memoryview(self.data)
        try:
            while self.end < limit and not self._ended:
                size = read_some(self._stream, view[self.end : limit])
                self.end += size
                self._ended = size == 0
        except (EOFError, OSError) as error:
            self._ended, self.damage = True, str(error)
        return self.end > start

    def text(self) -> bytes:
        """Return what is there."""
        return bytes(memoryview(self.data)[FRONT : self.end])

    def drop(self, size: int) -> None:
        """Consume ``size`` bytes."""
        rest = self.data[FRONT + size : self.end]
        self.end = FRONT + len(rest)
        self.data[FRONT : self.end] = rest


def _open_array(buffer: _Buffer, name: str) -> dict[str, Any] | None:
    """Consume the file up to its first event; return the keys before, None for a bare array."""
    while buffer.fill():
        text = buffer.text()
        start = len(text) - len(text.lstrip(b"\xef\xbb\xbf \t\r\n"))
        if text[start : start + 1] == b"[":
            buffer.drop(start + 1)
            return None
        for match in _ARRAY.finditer(text):
            try:
                header = msgspec.json.decode(text[start : match.end()] + b"]}")
            except msgspec.DecodeError:
                continue  # the key stands inside another value
            buffer.drop(match.end())
            return header if isinstance(header, dict) else {}
    size, why = buffer.end - FRONT, f" ({buffer.damage})" if buffer.damage else ""
    raise SourceError(
        f"{name}: no traceEvents array begins in its {size:,} bytes{why}, so there is no event to "
        "read; give the whole file that torch.profiler exported."
    )


def _read_events(buffer: _Buffer, log: EventLog) -> bool:
    """Consume the array into ``log``; return False where the file ends before the array does."""
    separator, layout = b"", None
    while True:
        more = buffer.fill()
        if more and separator and _read_window(buffer, separator, layout, log):
            continue
        text = buffer.text()
        found = elements(text)
        starts, ends = found.starts.tolist(), found.ends.tolist()
        log.add_elements(text[a:b] for a, b in zip(starts, ends, strict=True))
        if found.closed is not None:
            buffer.drop(found.closed)
            return True
        if not more:
            return False
        if len(ends) > 1:
            separator = text[ends[-2] - 1 : starts[-1] + 1]
            layout = learn_layout(text, starts, separator)
        if ends:
            rest = text[ends[-1] :]
            buffer.drop(len(text) - len(rest.lstrip(_BETWEEN)))


def _read_window(buffer: _Buffer, separator: bytes, layout: Layout | None, log: EventLog) -> bool:
    """Consume the whole events in ``buffer`` at once; return False, unchanged, if that fails."""
    data = buffer.data
    end = data.rfind(separator, FRONT, buffer.end) + 1
    if not end:
        return False
    done = layout is not None and log.add_window(*skim(data, FRONT, end, layout))
    if not done:
        after = data[end]
        data[end] = ord("]")
        done = log.add_window(memoryview(data)[: end + 1])
        data[end] = after
    if done:
        buffer.drop(end + len(separator) - 2 - FRONT)  # up to the next opening brace
    return done


def _trailer(buffer: _Buffer) -> dict[str, Any] | None:
    """Return the keys after the events, or None where the file ends within them."""
    while buffer.fill():
        pass
    try:
        trailer = msgspec.json.decode(b"{" + buffer.text().lstrip(_BETWEEN))
    except msgspec.DecodeError:
        return None
    return trailer if isinstance(trailer, dict) else None
