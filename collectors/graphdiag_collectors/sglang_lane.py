"""Rows of SGLang's usual steps, 80 bytes each: what differs from step to step, and a code.

A wide row of :mod:`graphdiag_collectors.blocks` costs the engine's thread more, for its arithmetic
and for the memory it touches. Here clocks are stored as they were read; differences, and the
columns that all steps of one shape share, are filled in by the writer's thread.
"""

from __future__ import annotations

import struct
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphdiag_collectors.blocks import NULL, Fields, Lane
from graphdiag_collectors.channel import Refuse, Start
from graphdiag_collectors.labels import Words
from graphdiag_collectors.packed_channel import PackedChannel

_CLOCKS = ("start", "end", "entered", "returned", "dispatch", "launch")
_SIZES = ("requested", "num_reqs", "num_tokens", "tokens_out", "queued", "shape")
ROW = np.dtype(
    [*((name, "f8") for name in _CLOCKS), ("kv_tokens", "i8"), *((name, "i4") for name in _SIZES)]
)
"""Seconds of ``perf_counter``: the step's start and end, when ``ModelRunner.forward`` was entered
and when it returned, then how long it took to decide and to launch graphs (NaN: not known); then
sizes and the code of the shape."""
pack_row = struct.Struct(f"@{len(_CLOCKS)}dq{len(_SIZES)}i").pack_into
ROW_WIDTH = ROW.itemsize


class Shape(NamedTuple):
    """What all steps of one shape have in common.

    Attributes
    ----------
    label
        Stands for the words of the row.
    bucket, replays, query_len
        Columns of the schema.
    """

    label: int
    bucket: int
    replays: int
    query_len: int


class StepLane(Lane):
    """A lane of such rows.

    Attributes
    ----------
    shapes
        By their code.
    """

    __slots__ = ("shapes",)

    def __init__(self, wake: SimpleQueue[None]) -> None:
        super().__init__(ROW, wake)
        self.shapes: list[Shape] = []

    def code(self, shape: Shape) -> int:
        """Return a code that stands for ``shape`` from now on."""
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def fields(self, rows: NDArray[np.void]) -> Fields:
        """Return rows of this lane column by column."""
        shared = np.array(self.shapes, np.int32)[rows["shape"]]
        fields: Fields = {
            name: rows[name].copy()
            for name in ("start", "end", "kv_tokens", *_SIZES)
            if name != "shape"
        }
        for name in Shape._fields:
            fields[name] = shared[:, Shape._fields.index(name)]
        fields["dispatch_ns"] = _ns(rows["dispatch"])
        fields["host_ns"] = _ns(rows["returned"] - rows["entered"])
        fields["graph_launch_ns"] = _ns(rows["launch"])
        kept = ("start", "end", "bucket", "requested", "label")
        return {
            name: column
            for name, column in fields.items()
            if name in kept or (column != NULL).any()
        }


class StepChannel(PackedChannel):
    """A channel whose usual steps may be recorded as such rows, in :attr:`usual`."""

    def __init__(
        self, wake: SimpleQueue[None], defaults: Words, refuse: Refuse, start: Start
    ) -> None:
        self.usual = StepLane(wake)
        super().__init__(
            wake, defaults, refuse, start, lane=self.usual, pack=pack_row, width=ROW_WIDTH
        )


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    known = ~np.isnan(seconds)
    return np.where(known, np.rint(np.where(known, seconds, 0) * 1e9), NULL).astype(np.int64)
