"""Sums of a trace by stretches of its time, from which those of any window are added up.

A cell is ``t_ns >> shift``, a power of two of ns, so that cells fit in wider ones, in the bins of a
timeline and in slices. Each table has the keys of :class:`graphdiag.summary.Summary`'s own, and
``cell`` and ``rank`` beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from graphdiag.batchtables import (
    TABLE_KEYS,
    TABLES,
    batch_tables,
    columns_read,
    limited_steps,
)
from graphdiag.busy import Span
from graphdiag.periods import Periods
from graphdiag.summary import rebinned
from graphdiag.sums import Total
from graphdiag.timerange import TimeRange
from graphdiag.trace import Trace

_MORE = ("cell", "rank")
_KEYS = tuple(tuple(dict.fromkeys((*own, *_MORE))) for own in TABLE_KEYS)

Tables = tuple[pl.DataFrame, ...]
"""A table for each of :data:`graphdiag.batchtables.TABLES`, text as Categorical, in any order."""


@dataclass(frozen=True)
class Grain:
    """How finely time is told: log2 of the width, ns, of bins of the timeline, cells and slices.

    A slice is no wider than a cell.
    """

    bins: int
    cells: int
    slices: int


@dataclass(frozen=True)
class Sums:
    """The sums of a trace by cell as of one look at it; they stay as they are.

    Attributes
    ----------
    version
        Counts the looks that found something new.
    tables
        The sums, in several pieces that add up.
    grain, periods
        How finely their time is told, and where the periods of the trace lie.
    events
        The rows of the trace that are no steps and no requests, by time.
    span
        First and last ns of the steps; None where none has a time.
    busy
        log2 of the width, ns, of slices of which an idle stretch takes none.
    notes
        Sentences about what could not be read.
    """

    version: int
    tables: tuple[Tables, ...]
    grain: Grain
    periods: Periods
    events: pl.DataFrame
    span: Span
    busy: int
    notes: tuple[str, ...]


def cell_tables(trace: Trace, periods: Periods, grain: Grain) -> Tables:
    """Return the sums of ``trace`` by cell.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    return added(trace.map(columns_read(periods), lambda batch: _tables(batch, periods, grain)))


def added(several: Iterable[Tables]) -> Tables:
    """Return the sums of all, by the keys they have; there is at least one."""
    totals = [Total(keys) for keys in _KEYS]
    for tables in several:
        for total, table in zip(totals, tables, strict=True):
            total.add(table)
    return tuple(total.sums() for total in totals)


def coarser(tables: Tables, old: Grain, new: Grain) -> Tables:
    """Return the same sums by wider bins and cells."""
    wider = []
    for table in tables:
        table = rebinned(table, "bin", new.bins - old.bins)
        table = rebinned(table, "slice", new.slices - old.slices)
        wider.append(rebinned(table, "cell", new.cells - old.cells))
    return added([tuple(wider)])


def chosen(
    several: Sequence[Tables],
    grain: Grain,
    window: TimeRange | None,
    rank: int | None,
    slice_shift: int,
    only: Collection[str] = TABLES,
) -> tuple[pl.DataFrame, ...]:
    """Return a summary's tables of the cells in ``window``, whose ends are borders of cells.

    They are sorted, with text as String, as a summary's are.

    Parameters
    ----------
    rank
        Leave out the rows of other ranks; those that name none stay.
    slice_shift
        log2 of a slice's width in ns, of one of ``grain`` or more.
    only
        Names of the tables that are wanted; the others are empty.
    """
    wanted = pl.lit(True)
    if window is not None:
        first, last = window.start_ns >> grain.cells, window.end_ns >> grain.cells
        wanted = ((pl.col("cell") >= first) & (pl.col("cell") < last)).fill_null(False)
    if rank is not None:
        wanted = wanted & (pl.col("rank").is_null() | (pl.col("rank") == rank))
    wider = slice_shift - grain.slices
    found = []
    for name, keys, tables in zip(TABLES, TABLE_KEYS, zip(*several, strict=True), strict=True):
        total = Total(keys)
        rows = pl.concat(tables).filter(wanted) if name in only else tables[0].clear()
        rows = rebinned(rows, "slice", wider)
        total.add(rows.drop([more for more in _MORE if more not in keys]))
        found.append(total.table())
    return tuple(found)


def _tables(batch: pl.DataFrame, periods: Periods, grain: Grain) -> Tables:
    batch = batch.with_columns((pl.col("t_ns") // (1 << grain.cells)).alias("cell"))
    *told, limited, requests = batch_tables(batch, periods, grain.bins, grain.slices, _MORE)
    return (*told, _limited(batch, periods, limited), _by_cell(requests, grain))


def _limited(batch: pl.DataFrame, periods: Periods, all_: pl.DataFrame) -> pl.DataFrame:
    """Return the steps at a recompile limit by cell, which their own table does not tell."""
    if not periods.limits:
        return all_.with_columns(pl.lit(None, pl.Int64).alias("cell"))
    found = [all_.clear().with_columns(pl.lit(None, pl.Int64).alias("cell"))]
    for (cell,), rows in batch.group_by("cell"):
        table = limited_steps(rows, periods)
        found.append(table.with_columns(pl.lit(cell, pl.Int64).alias("cell")))
    return pl.concat(found)


def _by_cell(requests: pl.DataFrame, grain: Grain) -> pl.DataFrame:
    return requests.with_columns(
        (pl.col("slice") // (1 << grain.cells - grain.slices)).alias("cell"),
        pl.lit(None, pl.Int32).alias("rank"),
    )
