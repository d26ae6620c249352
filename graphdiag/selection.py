"""A summary of what a person selected of a trace: a window, a rank, a phase, a runner."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import polars as pl

from graphdiag.batchtables import TABLES
from graphdiag.cells import Sums, chosen
from graphdiag.findings import Metrics
from graphdiag.metrics import is_target, measure
from graphdiag.summary import Summary, resolution
from graphdiag.timerange import TimeRange
from graphdiag.windows import events_within

_MADE = ("capture", "compile")


@dataclass(frozen=True)
class Selection:
    """What to look at; None is everything there is.

    Attributes
    ----------
    window
        Steps that began in it; it is widened to the borders of the trace's cells.
    rank, phase
        Steps of one rank (rows that name none stay), of one phase.
    runner
        Whose forward: ``target``, ``draft`` or ``encoder``. Findings are about the target, so
        another runner stands in its place.
    """

    window: TimeRange | None = None
    rank: int | None = None
    phase: str | None = None
    runner: str | None = None


def snapped(sums: Sums, window: TimeRange | None) -> TimeRange | None:
    """Return ``window`` widened to whole cells; None where that is the whole trace, or nothing."""
    span = sums.span
    if window is None or span is None:
        return None
    width = 1 << sums.grain.cells
    start = window.start_ns // width * width
    end = -(-window.end_ns // width) * width
    if (start <= span[0] and end > span[1]) or not TimeRange(start, end).meets(*span):
        return None
    return TimeRange(start, end)


def metrics_of(sums: Sums, selection: Selection) -> Metrics:
    """Return the metrics of ``selection`` alone, which takes less time than its summary."""
    return measure(summary_of(sums, selection, ("groups", "durations")), is_target())


def summary_of(sums: Sums, selection: Selection, only: Collection[str] = TABLES) -> Summary:
    """Return the summary of ``selection``: of a window, the one that reading its rows would give.

    Tables that are not among ``only`` are left empty.
    """
    window = snapped(sums, selection.window)
    bins, slices = resolution(sums.span, window, sums.busy)
    found = chosen(sums.tables, sums.grain, window, selection.rank, slices, only)
    tables = dict(zip(TABLES, found, strict=True))
    events = sums.events if window is None else events_within(sums.events, window)
    for key, value in (("phase", selection.phase), ("runner", selection.runner)):
        if value is not None:
            events = events.filter(~pl.col("event").is_in(_MADE) | _is(key, value))
            tables = {name: _only(table, key, value) for name, table in tables.items()}
    if selection.rank is not None:
        other = pl.col("rank").is_not_null() & (pl.col("rank") != selection.rank)
        events = events.filter(~other)
    if selection.runner not in (None, "target"):
        tables = {name: _as_target(table) for name, table in tables.items()}
        events = _as_target(events)
    return Summary(
        groups=tables["groups"],
        timeline=tables["timeline"],
        slices=tables["slices"],
        durations=tables["durations"],
        limited=tables["limited"],
        requests=tables["requests"],
        events=events,
        shift=bins,
        slice_shift=slices,
        periods=sums.periods,
        notes=sums.notes,
        window=window,
    )


def ranks(sums: Sums) -> list[int]:
    """Return the ranks that there are, ascending."""
    return sorted(int(rank) for rank in _values(sums, "rank"))


def phases(sums: Sums) -> list[str]:
    """Return the phases that there are, by name."""
    return sorted(_values(sums, "phase"))


def runners(sums: Sums) -> list[str]:
    """Return the runners that there are, by name; steps without one are the target's."""
    return sorted(_values(sums, "runner") | {"target"})


def _values(sums: Sums, key: str) -> set[Any]:
    """Return the values of a key of the groups, null left out."""
    values = [groups[key] for groups, *_ in sums.tables]
    return set(pl.concat(values).unique().drop_nulls()) if values else set()


def _is(key: str, value: str) -> pl.Expr:
    known = pl.col(key).fill_null("target") if key == "runner" else pl.col(key)
    return (known == value).fill_null(False)


def _only(table: pl.DataFrame, key: str, value: str) -> pl.DataFrame:
    return table.filter(_is(key, value)) if key in table.columns else table


def _as_target(table: pl.DataFrame) -> pl.DataFrame:
    if "runner" not in table.columns:
        return table
    return table.with_columns(pl.lit("target").alias("runner"))
