"""Sum the steps of a trace; where its first executions are not known, find them in the same pass.

Which steps are warm hangs on when each artifact first ran, which is known for sure only at the
end. But a trace is mostly in order of time: an artifact's first execution lies in the first batch
that has one of it. Of those batches, a few at the start, the sums are made twice, with these steps
warm and with them steady. Where that does not tell everything, the trace is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from graphdiag.batchtables import TABLE_KEYS, batch_tables, columns_read
from graphdiag.periods import (
    ARTIFACT_KEYS,
    STEADY,
    WARM,
    Periods,
    earliest_replays,
    first_executions,
    replays_then,
    told_apart,
)
from graphdiag.sums import Total, sum_by
from graphdiag.trace import Trace

Tables = tuple[pl.DataFrame, ...]
Times = dict[tuple[object, ...], int]
"""ns by artifact."""

_REPLAYS = pl.col("kind").is_null() & pl.col("bucket").is_not_null() & pl.col("t_min").is_not_null()


def sums_of(trace: Trace, periods: Periods, shift: int, slice_shift: int) -> list[Total]:
    """Return the sums of ``trace`` for each of :data:`graphdiag.batchtables.TABLES`.

    ``shift`` and ``slice_shift`` are log2 of the width, ns, of the timeline's bins and of slices.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    totals = no_sums()

    def work(batch: pl.DataFrame) -> Tables:
        return batch_tables(batch, periods, shift, slice_shift)

    for tables in trace.map(columns_read(periods), work):
        _add(totals, tables)
    return totals


def sums_and_periods(
    trace: Trace, start_up: Periods, shift: int, slice_shift: int
) -> tuple[list[Total], Periods]:
    """Return the same, and ``start_up``, which tells no first executions, with them.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    totals = no_sums()
    earliest = _Earliest()
    either: list[tuple[Tables, Tables]] = []

    def with_new(times: tuple[int, ...], batch: pl.DataFrame) -> Tables:
        known = replace(start_up, first_executions=times)
        return batch_tables(batch, known, shift, slice_shift)

    def look(batch: pl.DataFrame) -> _Look:
        steady = batch_tables(batch, start_up, shift, slice_shift)
        here = _first_replays(steady[0])
        # Batches before this one may still be on their way, so that fewer can turn out to be new.
        times = earliest.new(here)
        return _Look(batch, steady, here, times, with_new(times, batch) if times else steady)

    for one in trace.map(columns_read(start_up), look):
        times = earliest.add(one.first, one.steady[0])
        if not times:
            _add(totals, one.steady)
        elif times == one.times:
            either.append((one.steady, one.warm))
        else:
            either.append((one.steady, with_new(times, one.batch)))
    then = replays_then(trace, earliest.table)
    first = told_apart(earliest.table, then)
    found = sum(_warm_replays(warm[0]) for _, warm in either)
    if not earliest.sure or (first and found != then):
        first = first_executions(trace, earliest_replays(trace, start_up))
        periods = replace(start_up, first_executions=first)
        return sums_of(trace, periods, shift, slice_shift), periods
    for steady, warm in either:
        _add(totals, warm if first else steady)
    return totals, replace(start_up, first_executions=first)


@dataclass(frozen=True)
class _Look:
    """A batch with its tables: all replays steady, and those warm that began at ``times``.

    ``first`` is when each artifact first ran in it.
    """

    batch: pl.DataFrame
    steady: Tables
    first: Times
    times: tuple[int, ...]
    warm: Tables


class _Earliest:
    """When each artifact first ran, of batches in the order of the trace.

    Attributes
    ----------
    sure
        False once a batch has an earlier run of an artifact than those before it, or steps of
        impossible sizes, whose sums do not tell their artifact.
    """

    def __init__(self) -> None:
        self.sure = True
        self._times: Times = {}

    @property
    def table(self) -> pl.DataFrame:
        """A row an artifact with ``t_min``, ns."""
        return pl.DataFrame({"t_min": self._times.values()}, schema={"t_min": pl.Int64})

    def new(self, first: Times) -> tuple[int, ...]:
        """Return when artifacts first ran that are not known so far."""
        return tuple(sorted({time for key, time in first.items() if key not in self._times}))

    def add(self, first: Times, groups: pl.DataFrame) -> tuple[int, ...]:
        """Take in the next batch; return when artifacts ran that are new in it."""
        earlier = any(time < self._times.get(key, time) for key, time in first.items())
        self.sure = self.sure and not earlier and not groups["impossible"].sum()
        times = self.new(first)
        self._times = first | self._times
        return times


def _first_replays(groups: pl.DataFrame) -> Times:
    """Return when each artifact first ran after the cold end, of the groups of a batch."""
    replays = groups.filter(_REPLAYS & (pl.col("period") == STEADY))
    table = sum_by(replays, ARTIFACT_KEYS, {"t_min": pl.col("t_min")})
    return {tuple(key): time for *key, time in table.iter_rows()}


def _warm_replays(groups: pl.DataFrame) -> int:
    return int(groups.filter(_REPLAYS & (pl.col("period") == WARM))["weight"].sum())


def no_sums() -> list[Total]:
    """Return totals for each of the tables, to add to."""
    return [Total(keys) for keys in TABLE_KEYS]


def _add(totals: list[Total], tables: Tables) -> None:
    for total, table in zip(totals, tables, strict=True):
        total.add(table)
