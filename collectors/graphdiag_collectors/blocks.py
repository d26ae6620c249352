"""Where the engine's thread leaves its records: fixed-width rows in preallocated blocks.

One :class:`Lane` has one producer, the engine's thread, and one consumer, the writer's thread.
The producer packs a row at ``offset`` and then moves ``offset`` on; the consumer reads what lies
before ``offset``. Under the interpreter lock that order is all the synchronisation there is: no
lock, no queue of objects, and the consumer never waits for a block to be full. When a block is
full the producer takes a free one; when none is free it goes on in a block that nobody reads, at
the same cost, and counts what it put there as dropped.
"""

from __future__ import annotations

import struct
from collections import deque
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NULL = -(2**30 - 1)
"""Stands for null in a block: the least number that is one digit of a Python int, which packs
fastest. No column of a step can be negative."""

NARROW = ("start", "end", "requested", "bucket", "label")
COMMON_64 = ("t_ns", "dur_ns", "kv_tokens", "dispatch_ns", "host_ns")
COMMON_32 = ("num_reqs", "num_tokens", "tokens_out", "query_len", "replays")
RARE_64 = (
    *("step", "weight", "blocked_ns", "graph_launch_ns", "gpu_ns", "gap_ns", "gpu_span_ns"),
    "compile_ns",
)
RARE_32 = (
    *("loras", "loras_replayed", "launches", "kernels", "graph_kernels", "preempted"),
    *("recomputed", "queued"),
)
RARE = (*RARE_64, *RARE_32)
WIDE = (*COMMON_64, *COMMON_32, *RARE)
_GROUPS = {
    "common_64": COMMON_64,
    "common_32": COMMON_32,
    "rare_64": RARE_64,
    "rare_32": RARE_32,
}

# Start and end are seconds of the monotonic clock as float: cheaper to read and to pack than
# nanoseconds as int, and exact to 4 ns after a year of uptime.
_NARROW = [("start", "f8"), ("end", "f8"), ("requested", "i4"), ("bucket", "i4"), ("label", "i4")]
_WIDE = [(name, "i8" if name.endswith("64") else "i4", len(of)) for name, of in _GROUPS.items()]
NARROW_ROW = np.dtype(_NARROW, align=True)
WIDE_ROW = np.dtype([*_NARROW, ("has_rare", "i4"), *_WIDE], align=True)
"""A narrow row and more; the rare groups hold something only where ``has_rare`` is 1."""

_NARROW_FORMAT = "@ddiii"
pack_narrow = struct.Struct(_NARROW_FORMAT).pack_into
pack_wide = struct.Struct(f"{_NARROW_FORMAT}i{len(COMMON_64)}q{len(COMMON_32)}i").pack_into
pack_rare = struct.Struct(f"@{len(RARE_64)}q{len(RARE_32)}i").pack_into
NARROW_WIDTH = NARROW_ROW.itemsize
WIDE_WIDTH = WIDE_ROW.itemsize
RARE_AT = 96

BLOCK_ROWS = 4096
BLOCKS = 64
"""Blocks a lane holds. The system gives them memory when they are first used, and the last one
freed is used first, so that a lane's memory is what the writer was behind at most."""
TRASH_ROWS = 64

Fields = dict[str, NDArray[Any]]
"""Rows column by column, by the names of :data:`NARROW` and :data:`WIDE`; a wide column is left
out where no row has it."""


class _Full(NamedTuple):
    block: bytearray
    end: int


class Lane:
    """A producer's current block and the ones it swaps it with.

    Attributes
    ----------
    block, offset
        Where the next row goes; only the producer moves them.
    """

    __slots__ = (
        *("_dropped", "_free", "_full", "_row", "_taken", "_trash", "_wake"),
        *("block", "offset"),
    )

    def __init__(self, row: np.dtype[np.void], wake: SimpleQueue[None]) -> None:
        self._row = row
        self._trash = bytearray(TRASH_ROWS * row.itemsize)
        self._free: deque[bytearray] = deque()
        self._full: deque[_Full] = deque()
        self._taken = 0
        self._dropped = 0
        self._wake = wake
        self.offset = 0
        self.block = bytearray()

    def start(self, wake: SimpleQueue[None]) -> None:
        """Begin without rows; an item in ``wake`` says that blocks run short."""
        size = BLOCK_ROWS * self._row.itemsize
        self._wake = wake
        self._free = deque(bytearray(size) for _ in range(BLOCKS - 1))
        self._full = deque()
        self._taken = 0
        self._dropped = 0
        self.offset = 0
        self.block = bytearray(size)

    def stop(self) -> None:
        """Drop every later row."""
        self._free.clear()
        self._leave()
        self.offset = 0
        self.block = self._trash

    def sleep(self) -> None:
        """Forget every row and have no room, so that the next row has to start the lane."""
        self._full.clear()
        self.offset = 0
        self.block = bytearray()

    def swap(self) -> None:
        """Give the producer a free block, or the one nobody reads."""
        self._leave()
        try:
            free = self._free.pop()
        except IndexError:
            free = self._trash
        # The consumer looks at `_full` after it has read `block` and `offset`, and `offset` is 0
        # before `block` is the new one: it cannot read a new block up to an old offset.
        self.offset = 0
        self.block = free
        if len(self._free) < BLOCKS // 2:
            self._wake.put(None)

    def dropped(self) -> int:
        """Return how many rows found no free block."""
        unread = self.offset // self._row.itemsize if self.block is self._trash else 0
        return self._dropped + unread

    def take(self) -> Fields | None:
        """Return the rows written since the last call, in order, and free their blocks."""
        pieces: list[bytes] = []
        while self._full:
            full, end = self._full.popleft()
            pieces.append(bytes(memoryview(full)[self._taken : end]))
            self._taken = 0
            self._free.append(full)
        block, end = self.block, self.offset
        if block is self.block and block is not self._trash and not self._full:
            pieces.append(bytes(memoryview(block)[self._taken : end]))
            self._taken = end
        # Plain copies keep the interpreter lock for the microseconds they take; NumPy would let
        # it go at each, and get it back 5 ms later from an engine that never waits.
        data = b"".join(pieces)
        return self.fields(np.frombuffer(data, self._row)) if data else None

    def fields(self, rows: NDArray[np.void]) -> Fields:
        """Return rows of this lane column by column."""
        return _fields(rows)

    def _leave(self) -> None:
        """Hand the current block on, or count what went to the trash."""
        if self.block is self._trash:
            self._dropped += self.offset // self._row.itemsize
        elif self.block:
            self._full.append(_Full(self.block, self.offset))


def join(one: Fields | None, other: Fields | None) -> Fields | None:
    """Return the rows of both, by their start."""
    if one is None or other is None:
        return one or other
    order = np.argsort(np.concatenate([one["start"], other["start"]]), kind="stable")
    missing = np.full(len(one["start"]), NULL), np.full(len(other["start"]), NULL)
    return {
        name: np.concatenate([one.get(name, missing[0]), other.get(name, missing[1])])[order]
        for name in (*NARROW, *WIDE)
        if name in one or name in other
    }


def _fields(rows: NDArray[np.void]) -> Fields:
    fields = {name: rows[name].copy() for name in NARROW}
    if "has_rare" in (rows.dtype.names or ()):
        rare = rows["has_rare"] != 0
        for group, names in _GROUPS.items():
            columns = rows[group]
            if group.startswith("rare"):
                if not rare.any():
                    continue
                columns = np.where(rare[:, None], columns, NULL)
            for place in np.flatnonzero((columns != NULL).any(axis=0)):
                fields[names[place]] = columns[:, place].copy()
    return fields
