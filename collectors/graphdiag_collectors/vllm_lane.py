"""Rows of vLLM's steps, 64 bytes each: what differs from step to step, and a code for the rest.

A wide row of :mod:`graphdiag_collectors.blocks` costs the engine's thread three times as much, for
its arithmetic and for the memory it touches. Here clocks are stored as they were read; differences,
and the columns that all steps of one shape share, are filled in by the writer's thread.
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

_CLOCKS = ("start", "end", "began", "chosen", "launched")
_SIZES = ("num_tokens", "shape", "num_reqs", "tokens_out")
ROW = np.dtype(
    [*((name, "f8") for name in _CLOCKS), ("kv_tokens", "i8"), *((name, "i4") for name in _SIZES)]
)
"""Seconds of ``perf_counter``: the step's start and end, those of the dispatch, and when the model
was launched; then sizes and the code of the shape. The last two mean nothing where the shape has
one token a request: both are as many as the tokens then."""
pack_row = struct.Struct(f"@{len(_CLOCKS)}dq{len(_SIZES)}i").pack_into
pack_single = struct.Struct(f"@{len(_CLOCKS)}dq{len(_SIZES) - 2}i").pack_into
"""A row with one token a request."""
ROW_WIDTH = ROW.itemsize


class Shape(NamedTuple):
    """What all steps of one shape have in common.

    Attributes
    ----------
    label
        Stands for the words of the row.
    bucket, query_len, replays, loras, loras_replayed, preempted
        Columns of the schema.
    """

    label: int
    bucket: int
    query_len: int
    replays: int
    loras: int
    loras_replayed: int
    preempted: int


class ShapedLane(Lane):
    """A lane of such rows.

    Attributes
    ----------
    shapes
        By their code.
    """

    __slots__ = ("_codes", "shapes")

    def __init__(self, wake: SimpleQueue[None]) -> None:
        super().__init__(ROW, wake)
        self.shapes: list[Shape] = []
        self._codes: dict[Shape, int] = {}

    def code(self, shape: Shape) -> int:
        """Return the code of a shape, new or not."""
        code = self._codes.get(shape)
        if code is None:
            code = len(self.shapes)
            self.shapes.append(shape)
            self._codes[shape] = code
        return code

    def fields(self, rows: NDArray[np.void]) -> Fields:
        """Return rows of this lane column by column."""
        shared = np.array(self.shapes, np.int32)[rows["shape"]]
        fields: Fields = {
            "start": rows["start"].copy(),
            "end": rows["end"].copy(),
            "requested": rows["num_tokens"].copy(),
            "bucket": shared[:, Shape._fields.index("bucket")],
            "label": shared[:, Shape._fields.index("label")],
            "dispatch_ns": _ns(rows["chosen"] - rows["began"]),
            "host_ns": _ns(rows["launched"] - rows["start"]),
        }
        single = shared[:, Shape._fields.index("query_len")] == 1
        for name in ("kv_tokens", "num_tokens"):
            fields[name] = rows[name].copy()
        for name in ("num_reqs", "tokens_out"):
            fields[name] = np.where(single, rows["num_tokens"], rows[name])
        for name in ("query_len", "replays", "loras", "loras_replayed", "preempted"):
            fields[name] = shared[:, Shape._fields.index(name)]
        return {
            name: column
            for name, column in fields.items()
            if name in ("bucket", "requested") or (column != NULL).any()
        }


class ShapedChannel(PackedChannel):
    """A channel whose steps may also be recorded as such rows, in :attr:`shaped`."""

    def __init__(
        self, wake: SimpleQueue[None], defaults: Words, refuse: Refuse, start: Start
    ) -> None:
        self.shaped = ShapedLane(wake)
        super().__init__(
            wake, defaults, refuse, start, lane=self.shaped, pack=pack_row, width=ROW_WIDTH
        )


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)
