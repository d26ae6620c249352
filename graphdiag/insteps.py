"""Captures and compilations that ran inside a step, whose time is part of the step's.

A recorder tells of the same compilation with an event, with ``compile_ns`` of the step it ran in,
or with both. It is one stretch of time: an event that lies within a step of its own process belongs
to that step, and none of it fell between steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.timerange import TimeRange
from graphdiag.trace import Trace

PROCESS = ("run", "rank", "pid")
_READ = ("event", "kind", "runner", *PROCESS, "t_ns", "dur_ns")
_EVENT_KEYS = (*PROCESS, "t_ns", "dur_ns")
_STEP_KEYS = (*PROCESS, "t_ns")
_TYPES = {"run": pl.String, "rank": pl.Int32, "pid": pl.Int32, "t_ns": pl.Int64}
_WITHIN = 0.99
"""Least share of an event that lies within its step: two clocks may differ in the last digits."""
_EVER = 1 << 62

Process = tuple[str | None, int | None, int | None]


@dataclass(frozen=True)
class InStep:
    """A capture or compilation inside a step of the same ``process``; times in ns.

    ``event_ns`` and ``event_dur_ns`` are the event's start and length, ``step_ns`` is when the step
    began, and ``ns`` how long of it the event took.
    """

    process: Process
    event_ns: int
    event_dur_ns: int
    step_ns: int
    ns: int


def find_in_steps(trace: Trace, events: pl.DataFrame) -> tuple[InStep, ...]:
    """Return which of ``events``, captures and compilations with a time, ran inside a step.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    made = events.filter(
        pl.col("event").is_in(["capture", "compile"]) & (pl.col("dur_ns") > 0)
    ).drop_nulls("t_ns")
    if made.is_empty():
        return ()
    by_process: dict[Process, list[tuple[int, int]]] = {}
    for run, rank, pid, start, length in made.select(_EVENT_KEYS).iter_rows():
        by_process.setdefault((run, rank, pid), []).append((start, length))
    last = max(start + length for mine in by_process.values() for start, length in mine)
    found: dict[tuple[Process, int, int], InStep] = {}
    before = trace.within(TimeRange(-_EVER, last + 1))
    for batch in before.map(_READ, lambda rows: _of_batch(rows, by_process)):
        for one in batch:
            key = (one.process, one.event_ns, one.event_dur_ns)
            if key not in found or found[key].step_ns < one.step_ns:
                found[key] = one
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[1:], str(key[0]))))


def _of_batch(rows: pl.DataFrame, by_process: dict[Process, list[tuple[int, int]]]) -> list[InStep]:
    steps = rows.filter(_is_real() & (pl.col("event") == "step") & (pl.col("dur_ns") > 0))
    found = []
    for process, events in by_process.items():
        same = [
            pl.col(key).eq_missing(pl.lit(one, _TYPES[key]))
            for key, one in zip(PROCESS, process, strict=True)
        ]
        mine = steps.filter(*same).sort("t_ns")
        if mine.is_empty():
            continue
        begun, took = mine["t_ns"].to_numpy(), mine["dur_ns"].to_numpy()
        start, length = np.array(events, dtype=np.int64).T
        at = np.searchsorted(begun, start + length // 2, side="right") - 1
        first, end = begun[at], begun[at] + took[at]
        shared = np.minimum(end, start + length) - np.maximum(first, start)
        inside = (at >= 0) & (shared >= _WITHIN * length)
        found += [
            InStep(process, int(start[i]), int(length[i]), int(first[i]), int(shared[i]))
            for i in np.flatnonzero(inside)
        ]
    return found


def _is_real() -> pl.Expr:
    """Expression: a step of the target that the scheduler asked for, with a time."""
    target = pl.col("runner").is_null() | (pl.col("runner") == "target")
    return target & pl.col("kind").is_null() & pl.col("t_ns").is_not_null()


def told_by_events(steps: pl.DataFrame, found: Iterable[InStep]) -> pl.DataFrame:
    """Return ``steps`` with ``compile_ns`` and ``compiled`` (steps) as the events tell them too.

    A step says itself what it compiled, or an event does, or both: the larger is the whole of it,
    and no more than the step took. ``weight`` must not be null.
    """
    own = pl.lit(0, pl.Int64)
    if steps["compile_ns"].max():
        own = pl.when(pl.col("compile_ns") > 0).then("weight").otherwise(own)
    steps = steps.with_columns(own.alias("compiled"))
    times = pl.Series([one.step_ns for one in found], dtype=pl.Int64).unique()
    there = steps["t_ns"].is_in(times.implode()) if len(times) else None
    if there is None or not there.any():
        return steps
    table = (
        pl.DataFrame(
            [(*one.process, one.step_ns, one.ns) for one in found],
            schema={**_TYPES, "inside": pl.Int64},
            orient="row",
        )
        .group_by(_STEP_KEYS)
        .agg(pl.col("inside").sum(), pl.len().cast(pl.Int64).alias("events"))
    )
    rows = (
        steps.with_row_index("row")
        .filter(there.fill_null(False) & _is_real())
        .with_columns(pl.col(key).cast(dtype) for key, dtype in _TYPES.items())
        .unique(_STEP_KEYS, keep="first")
        .join(table, on=_STEP_KEYS, nulls_equal=True)
        .select(
            "row",
            pl.min_horizontal(pl.max_horizontal("compile_ns", "inside"), "dur_ns").alias("ns"),
            pl.max_horizontal("compiled", pl.min_horizontal("weight", "events")).alias("steps"),
        )
    )
    return steps.with_columns(
        steps["compile_ns"].cast(pl.Int64).scatter(rows["row"], rows["ns"]),
        steps["compiled"].cast(pl.Int64).scatter(rows["row"], rows["steps"]),
    )


def split_events(
    events: pl.DataFrame, found: Iterable[InStep]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return those of ``events`` that ran inside a step, with its ``step_ns``, and all others."""
    table = pl.DataFrame(
        [(*one.process, one.event_ns, one.event_dur_ns, one.step_ns) for one in found],
        schema={**_TYPES, "dur_ns": pl.Int64, "step_ns": pl.Int64},
        orient="row",
    ).unique(_EVENT_KEYS)
    inside = events.join(table, on=_EVENT_KEYS, nulls_equal=True, maintain_order="left")
    return inside, events.join(table, on=_EVENT_KEYS, nulls_equal=True, how="anti")
