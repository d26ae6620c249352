"""A trace that is being written, summed as it grows: each row is read once.

A refresh reads what is new. What is summed is summed again only where the periods of the trace
moved over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl

from graphdiag.batchtables import batch_tables, columns_read
from graphdiag.busy import Span, extent, hull
from graphdiag.cells import Grain, Sums, added, cell_tables, coarser
from graphdiag.errors import SourceError
from graphdiag.insteps import find_in_steps
from graphdiag.limits import find_limits
from graphdiag.periods import (
    ARTIFACT_KEYS,
    Periods,
    cold_ends,
    earliest_replays,
    first_executions,
    startup_work,
)
from graphdiag.pieces import Pieces, rows_of
from graphdiag.summary import SLICE_BITS, TIME_BINS, resolution
from graphdiag.sums import Total
from graphdiag.trace import Trace

MOST_ROWS = 1 << 17
"""Rows of sums that the cells of a whole trace may take; with more, cells are wider."""

_MADE = ("capture", "compile")
_END = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)

Opener = Callable[[Collection[str]], Trace]
"""Opens the trace as it is now; what it is given are paths of parts that need no second look."""


class LiveTrace:
    """A trace that is looked at again and again with :meth:`refresh`.

    Attributes
    ----------
    sums
        What was read by the last refresh that found something new; None before the first. They
        are replaced and never changed, so that another thread may read them meanwhile.
    """

    sums: Sums | None
    _events: pl.DataFrame
    _periods: Periods
    _grain: Grain
    _opened: Trace | None
    _pieces: Pieces
    _work: list[pl.DataFrame]
    _replayed: tuple[int, ...]

    def __init__(self, opener: Opener) -> None:
        self.sums = None
        self._version = 0
        self._opener = opener
        self._forget()

    def refresh(self) -> bool:
        """Read what is new; say whether anything was. Where parts were deleted, read all anew.

        Raises
        ------
        SourceError
            When the trace is gone; what was read before stays. When a part of it is damaged; then
            the next look begins anew.
        """
        opened = self._opener(self._pieces.sealed)
        if self._pieces.lacks(opened):
            self._forget()  # what was deleted cannot be taken out of sums
        new = self._pieces.take(opened)
        if self._opened is not None and not new and opened.notes == self._opened.notes:
            return False
        known, self._opened = [] if self._opened is None else [self._events], opened
        try:
            if new:
                self._add(rows_of(new), known)
        except SourceError:
            self._forget()
            raise
        self._version += 1
        self.sums = Sums(
            version=self._version,
            tables=self._pieces.tables,
            grain=self._grain,
            periods=self._periods,
            events=self._events,
            span=self._pieces.span,
            busy=self._pieces.busy.shift,
            notes=opened.notes,
        )
        return True

    def _forget(self) -> None:
        self._opened = None
        self._events = pl.DataFrame()
        self._periods = Periods({}, ())
        self._grain = Grain(0, 0, 0)
        self._pieces, self._work, self._replayed = Pieces(), [], ()

    def _add(self, new: Trace, known: list[pl.DataFrame]) -> None:
        """Add rows that were not read before to the sums; ``known`` are the events so far."""
        events = new.events()
        self._events = pl.concat([*known, events]).sort("t_ns", maintain_order=True)
        self._find_periods(startup_work(new, events), extent(new)[1])
        self._sum()

    def _find_periods(self, work: pl.DataFrame, fresh: Span) -> None:
        """Find the periods again, and put the pieces that they moved over back to be summed."""
        assert self._opened is not None
        old, self._work = self._periods, [*self._work, work]
        all_work = pl.concat(self._work)
        last = all_work["t_ns"].max()
        ends = old.cold_end
        if fresh is not None and isinstance(last, int) and (len(work) or fresh[0] <= last):
            ends = cold_ends(self._opened, all_work)
        moved = [*(set(ends.items()) ^ set(old.cold_end.items()))]
        for piece in self._pieces.since(min((end for _, end in moved), default=None)):
            piece.again()
            piece.earliest = None
        first = self._first_executions(ends)
        limits = find_limits(self._events)
        changed = set(limits) ^ set(old.limits)
        for piece in self._pieces.since(min((limit.since_ns for limit in changed), default=None)):
            piece.again()
        in_steps = old.in_steps
        ends_last = self._events.filter(pl.col("event").is_in(_MADE)).select(_END.max()).item()
        if ends_last is not None and (len(work) or (fresh is not None and fresh[0] <= ends_last)):
            in_steps = find_in_steps(self._opened, self._events)
        times = {one.step_ns for one in set(in_steps) ^ set(old.in_steps)}
        for time in times | (set(first) ^ set(old.first_executions)):
            for piece in self._pieces.around(time):
                piece.again()
        self._periods = Periods(ends, first, limits, in_steps)

    def _first_executions(self, ends: dict[str | None, int]) -> tuple[int, ...]:
        assert self._opened is not None
        total = Total(ARTIFACT_KEYS)
        for piece in self._pieces:
            if piece.fresh or piece.earliest is None:
                mine = Total(ARTIFACT_KEYS)
                if piece.earliest is not None:
                    mine.add(piece.earliest)
                mine.add(earliest_replays(rows_of(piece.fresh or [piece.part]), Periods(ends, ())))
                piece.earliest = mine.sums()
            total.add(piece.earliest)
        table = total.table()
        replayed = tuple(table["t_min"].unique().sort())
        if replayed == self._replayed:
            return self._periods.first_executions
        self._replayed = replayed
        return first_executions(self._opened, table)

    def _sum(self) -> None:
        """Sum what is fresh."""
        for piece in self._pieces:
            for part in piece.fresh:
                slices, span = extent(rows_of([part]))
                piece.span, piece.busy = hull(piece.span, span), piece.busy.merge(slices)
        busy = self._pieces.busy.shift
        grain = self._wide_enough(resolution(self._pieces.span, None, busy)[0], busy)
        if grain != self._grain:
            for piece in self._pieces:
                if piece.tables is not None:
                    piece.tables = coarser(piece.tables, self._grain, grain)
            self._grain = grain
        for piece in self._pieces:
            if piece.fresh:
                sums = cell_tables(rows_of(piece.fresh), self._periods, self._grain)
                piece.tables = sums if piece.tables is None else added([piece.tables, sums])
                piece.fresh = []

    def _wide_enough(self, bins: int, busy: int) -> Grain:
        """Return the grain of a timeline of ``bins``: cells as narrow as there is room for.

        Slices are as wide, or narrower where ``busy`` ones are.
        """
        summed = self._pieces.tables
        if not summed:
            cells = bins + _bits(self._groups())
            return Grain(bins, cells, min(cells, busy))
        rows = sum(len(tables[0]) for tables in summed)
        bits = self._grain.cells - self._grain.bins
        if rows > 2 * MOST_ROWS and bits < SLICE_BITS:
            bits += 1
        return Grain(bins, bins + bits, min(bins + bits, busy))

    def _groups(self) -> int:
        """Return the most groups that a batch of rows has, of the first batch of each piece."""
        groups = 0
        for piece in self._pieces:
            batches = rows_of(piece.fresh).batches(columns_read(self._periods))
            first = next((batch for batch in batches if len(batch)), None)
            if first is not None:
                groups = max(groups, len(batch_tables(first, self._periods, 62, 62)[0]))
        return groups


def _bits(groups: int) -> int:
    return next(
        (bits for bits in range(SLICE_BITS) if groups * (TIME_BINS >> bits) <= MOST_ROWS),
        SLICE_BITS,
    )
