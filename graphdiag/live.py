"""A trace that is being written, summed as it grows: each row is read once.

Sealed parts never change, and a live tail only gets longer, so that a refresh reads what is new.
What is summed is summed again only where the periods of the trace moved over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import polars as pl

from graphdiag.batchtables import batch_tables, columns_read
from graphdiag.busy import NOTHING, Busy, busy_slices
from graphdiag.cells import Grain, Tables, added, cell_tables, coarser
from graphdiag.errors import SourceError
from graphdiag.insteps import find_in_steps
from graphdiag.limits import find_limits
from graphdiag.parts import ParquetFile, Part, Rows
from graphdiag.periods import (
    ARTIFACT_KEYS,
    Periods,
    cold_ends,
    earliest_replays,
    first_executions,
    startup_work,
)
from graphdiag.summary import SLICE_BITS, TIME_BINS, Span, hull, resolution, step_span
from graphdiag.sums import Total
from graphdiag.trace import Trace

MOST_ROWS = 1 << 17
"""Rows of sums that the cells of a whole trace may take; with more, cells are wider."""

_MADE = ("capture", "compile")
_END = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)

Opener = Callable[[Collection[str]], Trace]
"""Opens the trace as it is now; what it is given are paths of parts that need no second look."""


@dataclass
class _Piece:
    """A part, or the rows of a tail so far: ``fresh`` are those that are in no sum yet."""

    part: Part
    rows: int = -1
    fresh: list[Part] = field(default_factory=list)
    span: Span = None
    busy: Busy = NOTHING
    earliest: pl.DataFrame | None = None
    tables: Tables | None = None

    def again(self) -> None:
        """Forget the sums: the rows must be read once more."""
        self.fresh, self.tables = [self.part], None


class LiveTrace:
    """Sums of a trace as of the last :meth:`refresh`.

    Attributes
    ----------
    opened
        The trace itself as of then; None before the first.
    events
        Its rows that are no steps and no requests, by time.
    periods, grain
        Where its periods lie, and how finely its time is told.
    version
        Counts the refreshes that found something new.
    """

    opened: Trace | None
    events: pl.DataFrame
    periods: Periods
    grain: Grain
    _pieces: dict[str, _Piece]
    _work: list[pl.DataFrame]
    _replayed: tuple[int, ...]

    def __init__(self, opener: Opener) -> None:
        self.version = 0
        self._opener = opener
        self._forget()

    @property
    def span(self) -> Span:
        """First and last ns of the steps; None where none has a time."""
        span: Span = None
        for piece in self._pieces.values():
            span = hull(span, piece.span)
        return span

    @property
    def busy(self) -> Busy:
        """The slices of time in which steps or requests began."""
        busy = NOTHING
        for piece in self._pieces.values():
            busy = busy.merge(piece.busy)
        return busy

    @property
    def tables(self) -> list[Tables]:
        """The sums by cell, in several pieces that add up."""
        return [piece.tables for piece in self._pieces.values() if piece.tables is not None]

    def refresh(self) -> bool:
        """Read what is new; say whether anything was.

        Raises
        ------
        SourceError
            When the trace is gone; what was read before stays. When a part of it is damaged; then
            nothing stays, and the next look begins anew.
        """
        sealed = [key for key, piece in self._pieces.items() if _is_sealed(piece.part)]
        opened = self._opener(sealed)
        new = self._take(opened)
        if self.opened is not None and not new and opened.notes == self.opened.notes:
            return False
        known, self.opened = [] if self.opened is None else [self.events], opened
        try:
            if new:
                self._add(_trace(new), known)
        except SourceError:
            self._forget()
            raise
        self.version += 1
        return True

    def _forget(self) -> None:
        self.opened = None
        self.events = pl.DataFrame()
        self.periods = Periods({}, ())
        self.grain = Grain(0, 0, 0)
        self._pieces, self._work, self._replayed = {}, [], ()

    def _add(self, new: Trace, known: list[pl.DataFrame]) -> None:
        """Add rows that were not read before to the sums; ``known`` are the events so far."""
        events = new.events()
        self.events = pl.concat([*known, events]).sort("t_ns", maintain_order=True)
        self._find_periods(startup_work(new, events), step_span(new))
        self._sum()

    def _take(self, opened: Trace) -> list[Part]:
        """Put rows that were not read before on record, and return them."""
        new: list[Part] = []
        for part in opened.parts or (Rows(opened.source, opened.frame.collect()),):
            key = _key(part)
            piece = self._pieces.setdefault(key, _Piece(part))
            if piece.rows >= 0 and _is_sealed(piece.part):
                continue
            rows = _length(part)
            if rows > piece.rows:
                fresh = part
                if piece.rows > 0:
                    fresh = Rows(key, part.frame().slice(piece.rows).collect())
                piece.fresh.append(fresh)
                new.append(fresh)
            piece.part, piece.rows = part, rows
        return new

    def _find_periods(self, work: pl.DataFrame, fresh: Span) -> None:
        """Find the periods again, and put the pieces that they moved over back to be summed."""
        assert self.opened is not None
        old, self._work = self.periods, [*self._work, work]
        all_work = pl.concat(self._work)
        last = all_work["t_ns"].max()
        ends = old.cold_end
        if fresh is not None and isinstance(last, int) and (len(work) or fresh[0] <= last):
            ends = cold_ends(self.opened, all_work)
        moved = [*(set(ends.items()) ^ set(old.cold_end.items()))]
        for piece in self._reaching(min((end for _, end in moved), default=None)):
            piece.again()
            piece.earliest = None
        first = self._first_executions(ends)
        for time in set(first) ^ set(old.first_executions):
            for piece in self._pieces.values():
                if piece.span is not None and piece.span[0] <= time <= piece.span[1]:
                    piece.again()
        limits = find_limits(self.events)
        changed = set(limits) ^ set(old.limits)
        for piece in self._reaching(min((limit.since_ns for limit in changed), default=None)):
            piece.again()
        in_steps = old.in_steps
        ends_last = self.events.filter(pl.col("event").is_in(_MADE)).select(_END.max()).item()
        if ends_last is not None and (len(work) or (fresh is not None and fresh[0] <= ends_last)):
            in_steps = find_in_steps(self.opened, self.events)
        for one in set(in_steps) ^ set(old.in_steps):
            for piece in self._pieces.values():
                if piece.span is not None and piece.span[0] <= one.step_ns <= piece.span[1]:
                    piece.again()
        self.periods = Periods(ends, first, limits, in_steps)

    def _reaching(self, since: int | None) -> Iterable[_Piece]:
        """Return the pieces that have sums of steps from ``since`` on."""
        if since is None:
            return []
        return [one for one in self._pieces.values() if one.span and one.span[1] >= since]

    def _first_executions(self, ends: dict[str | None, int]) -> tuple[int, ...]:
        assert self.opened is not None
        total = Total(ARTIFACT_KEYS)
        for piece in self._pieces.values():
            mine = Total(ARTIFACT_KEYS)
            if piece.earliest is not None:
                mine.add(piece.earliest)
            if piece.fresh or piece.earliest is None:
                mine.add(earliest_replays(_trace(piece.fresh or [piece.part]), Periods(ends, ())))
            piece.earliest = mine.table()
            total.add(piece.earliest)
        table = total.table()
        replayed = tuple(table["t_min"].unique().sort())
        if replayed == self._replayed:
            return self.periods.first_executions
        self._replayed = replayed
        return first_executions(self.opened, table)

    def _sum(self) -> None:
        """Sum what is fresh."""
        for piece in self._pieces.values():
            for part in piece.fresh:
                fresh = _trace([part])
                piece.span = hull(piece.span, step_span(fresh))
                piece.busy = piece.busy.merge(busy_slices(fresh))
        busy = self.busy.shift
        grain = self._grain(resolution(self.span, None, busy)[0], busy)
        if grain != self.grain:
            for piece in self._pieces.values():
                if piece.tables is not None:
                    piece.tables = coarser(piece.tables, self.grain, grain)
            self.grain = grain
        for piece in self._pieces.values():
            if piece.fresh:
                sums = cell_tables(_trace(piece.fresh), self.periods, self.grain)
                piece.tables = sums if piece.tables is None else added([piece.tables, sums])
                piece.fresh = []

    def _grain(self, bins: int, busy: int) -> Grain:
        """Return the grain of a timeline of ``bins``: cells as narrow as there is room for.

        Slices are as wide, or narrower where ``busy`` ones are.
        """
        summed = self.tables
        if not summed:
            cells = bins + _bits(self._groups())
            return Grain(bins, cells, min(cells, busy))
        rows = sum(len(tables[0]) for tables in summed)
        bits = self.grain.cells - self.grain.bins
        if rows > 2 * MOST_ROWS and bits < SLICE_BITS:
            bits += 1
        return Grain(bins, bins + bits, min(bins + bits, busy))

    def _groups(self) -> int:
        """Return the most groups that a batch of rows has, of the first batch of each piece."""
        groups = 0
        for piece in self._pieces.values():
            batches = _trace(piece.fresh).batches(columns_read(self.periods))
            first = next((batch for batch in batches if len(batch)), None)
            if first is not None:
                groups = max(groups, len(batch_tables(first, self.periods, 62, 62)[0]))
        return groups


def _bits(groups: int) -> int:
    return next(
        (bits for bits in range(SLICE_BITS) if groups * (TIME_BINS >> bits) <= MOST_ROWS),
        SLICE_BITS,
    )


def _key(part: Part) -> str:
    """Return what names a part: the path of the sealed one, also while it is a tail."""
    if isinstance(part, ParquetFile):
        return part.place.path
    assert isinstance(part, Rows)
    return part.becomes or part.name


def _length(part: Part) -> int:
    return part.footer().num_rows if isinstance(part, ParquetFile) else len(part.frame().collect())


def _is_sealed(part: Part) -> bool:
    return isinstance(part, ParquetFile)


def _trace(parts: list[Part]) -> Trace:
    return Trace("", pl.concat([part.frame() for part in parts]), (), tuple(parts))
