"""When steps ran: from when to when, and which slices of time hold some.

An idle hour so takes none of the few slices that there are.

A slice is ``t_ns >> shift``. Slices are as narrow as can be while at most :data:`MOST_SLICES` hold
rows: that depends on when rows began alone, not on the order or the parts they are read in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.trace import Trace

MOST_SLICES = 32
"""Most slices that hold rows."""

Ints = NDArray[np.int64]
Span = tuple[int, int] | None
"""First and last ns, None where no row has a time."""


@dataclass(frozen=True)
class Busy:
    """The ``slices`` that hold rows, ascending, of ``2**shift`` ns each."""

    shift: int
    slices: Ints

    def merge(self, other: Busy) -> Busy:
        """Return the slices of both."""
        shift = max(self.shift, other.shift)
        each = [one.slices >> (shift - one.shift) for one in (self, other)]
        return narrowest(np.unique(np.concatenate(each)), shift)


NOTHING = Busy(0, np.empty(0, np.int64))


def narrowest(times: Ints, shift: int = 0, widest: int = 63) -> Busy:
    """Return the slices of ``times``, ascending and in units of ``2**shift`` ns, none narrower.

    None is wider than ``2**widest`` ns, however many there are.
    """
    if not len(times):
        return Busy(shift, times)
    # From slices that the whole span cannot fill downwards: of a busy stretch that is one look.
    wider = (int(times[-1] - times[0]) // (MOST_SLICES - 1)).bit_length()
    wider = min(wider, max(widest - shift, 0))
    while wider and _number(times >> (wider - 1)) <= MOST_SLICES:
        wider -= 1
    return Busy(shift + wider, _each_once(times >> wider))


def extent(trace: Trace) -> tuple[Busy, Span]:
    """Return the slices in which steps or requests of ``trace`` began, and the span of its steps.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    slices, span = NOTHING, None
    for busy, ends in trace.map(("event", "t_ns", "dur_ns"), _of_batch):
        slices, span = slices.merge(busy), hull(span, ends)
    return slices, span


def hull(one: Span, other: Span) -> Span:
    """Return the least span that holds both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _of_batch(rows: pl.DataFrame) -> tuple[Busy, Span]:
    counts = rows["event"].is_in(["step", "request"]).fill_null(False)
    began = rows["t_ns"] if counts.all() else rows["t_ns"].filter(counts)
    times = began.drop_nulls().cast(pl.Int64).to_numpy()
    in_order = bool((times[1:] >= times[:-1]).all())
    return narrowest(times if in_order else np.sort(times)), _span(rows)


def _span(rows: pl.DataFrame) -> Span:
    is_step = (rows["event"] == "step").fill_null(False)
    steps = rows if is_step.all() else rows.filter(is_step)
    end = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)
    first, last = steps.select(pl.col("t_ns").min(), end.max().alias("end")).row(0)
    return None if first is None or last is None else (first, last)


def _number(ascending: Ints) -> int:
    return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + 1


def _each_once(ascending: Ints) -> Ints:
    kept = np.ones(len(ascending), dtype=bool)
    kept[1:] = ascending[1:] != ascending[:-1]
    return ascending[kept]
