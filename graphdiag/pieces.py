"""The parts of a trace that is being written, and which of their rows are in no sum yet.

Sealed parts never change, and a live tail only gets longer until it is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from graphdiag.busy import NOTHING, Busy, Span, hull
from graphdiag.cells import Tables
from graphdiag.parts import ParquetFile, Part, Rows
from graphdiag.trace import Trace


@dataclass
class Piece:
    """A part, or the rows of a tail so far, and what was summed of it.

    Attributes
    ----------
    part, rows
        The part as of the last look, and how many rows it had then; -1 before one.
    fresh
        Rows that are in no sum yet.
    span
        First and last ns of the steps that were summed.
    busy
        The slices of time in which steps or requests began.
    earliest
        When each artifact was replayed first in it.
    tables
        Its sums; None where there are none.
    """

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


class Pieces:
    """All pieces of a trace, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._known: dict[str, Piece] = {}

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._known.values())

    @property
    def sealed(self) -> list[str]:
        """Paths of the parts that will not change."""
        return [key for key, piece in self._known.items() if _is_sealed(piece.part)]

    @property
    def span(self) -> Span:
        """First and last ns of the steps; None where none has a time."""
        span: Span = None
        for piece in self:
            span = hull(span, piece.span)
        return span

    @property
    def busy(self) -> Busy:
        """The slices of time in which steps or requests began."""
        busy = NOTHING
        for piece in self:
            busy = busy.merge(piece.busy)
        return busy

    @property
    def tables(self) -> tuple[Tables, ...]:
        """The sums by cell, which add up."""
        return tuple(piece.tables for piece in self if piece.tables is not None)

    def lacks(self, opened: Trace) -> bool:
        """Say whether ``opened`` misses a part that was seen before: it was deleted."""
        return not self._known.keys() <= {_key(part) for part in _parts(opened)}

    def take(self, opened: Trace) -> list[Part]:
        """Put rows of ``opened`` that were not seen before on record, and return them."""
        new: list[Part] = []
        for part in _parts(opened):
            key = _key(part)
            piece = self._known.setdefault(key, Piece(part))
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

    def since(self, time_ns: int | None) -> Iterable[Piece]:
        """Return the pieces that have sums of steps from a time on; none where it is None."""
        if time_ns is None:
            return []
        return [piece for piece in self if piece.span and piece.span[1] >= time_ns]

    def around(self, time_ns: int) -> Iterable[Piece]:
        """Return the pieces whose steps began both before and after a time, or at it."""
        return [piece for piece in self if piece.span and piece.span[0] <= time_ns <= piece.span[1]]


def rows_of(parts: list[Part]) -> Trace:
    """Return the rows of some parts as a trace of their own."""
    return Trace("", pl.concat([part.frame() for part in parts]), (), tuple(parts))


def _parts(opened: Trace) -> Sequence[Part]:
    return opened.parts or (Rows(opened.source, opened.frame.collect()),)


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
