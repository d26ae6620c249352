"""A trace over time: how long steps took, what became of them, and what was made meanwhile.

Tables of a few hundred rows at most, whatever the trace's size: the summary cuts time into at most
512 bins, and into at most 32 slices where it keeps reasons. Times are wall clock, ns.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from graphdiag.metrics import REPLAYED, is_real, is_target
from graphdiag.periods import COLD, WARM
from graphdiag.summary import Summary

WAYS = ("replayed", "eager", "captured", "unknown")
"""How a step ran; ``captured``: an artifact was captured or compiled inside it."""

_EAGER = ("fallback", "eager")
OTHER_REASONS = "other reasons"
MOST_REASONS = 4
"""Reasons of fallback that are told apart, those with the most steps."""

FATES = ("exact", "padded", "fallback", "capture", "eager", "unknown")


def span(summary: Summary) -> tuple[int, int] | None:
    """Return when the first step began and the last one ended; None where all ran at one time."""
    steps = summary.groups.filter(is_real() & is_target())
    first, last = steps["t_min"].min(), steps["t_max"].max()
    if not isinstance(first, int) or not isinstance(last, int) or last <= first:
        return None
    return first, last


def step_times(summary: Summary) -> pl.DataFrame:
    """Return the mean step time by time bin and by :data:`WAYS`.

    Columns: ``way``, ``start_ns``, ``end_ns``, ``steps``, ``mean_ms`` (null where none of the steps
    carries a time), by way and time.
    """
    way = (
        pl.when(pl.col("outcome").is_in(REPLAYED))
        .then(pl.lit("replayed"))
        .when(pl.col("outcome").is_in(_EAGER))
        .then(pl.lit("eager"))
        .when(pl.col("outcome") == "capture")
        .then(pl.lit("captured"))
        .otherwise(pl.lit("unknown"))
    )
    return _means(
        summary.timeline.with_columns(way.cast(pl.Enum(WAYS)).alias("way")), summary, "way"
    )


def mean_times(summary: Summary) -> pl.DataFrame:
    """Return the mean step time by time bin: as :func:`step_times`, however the steps ran."""
    return _means(summary.timeline, summary)


def _means(timeline: pl.DataFrame, summary: Summary, *keys: str) -> pl.DataFrame:
    timed = pl.col("dur_ns_weight") > 0
    return (
        timeline.filter(is_real() & is_target())
        .group_by(*keys, "bin")
        .agg(pl.col("weight", "dur_ns", "dur_ns_weight").sum())
        .sort(*keys, "bin")
        .select(
            *keys,
            *_ends(summary, "bin", summary.shift),
            pl.col("weight").alias("steps"),
            pl.when(timed).then(pl.col("dur_ns") / pl.col("dur_ns_weight") / 1e6).alias("mean_ms"),
        )
    )


def start_up(summary: Summary) -> pl.DataFrame:
    """Return the stretches that are not steady: ``period``, ``start_ns``, ``end_ns``, ``steps``.

    A ``cold`` stretch is a run's start-up, from its first row on record; a ``warm`` one is bins in
    which some artifact ran for the first time, with the ``steps`` that did so.
    """
    rows: list[dict[str, Any]] = []
    steps = summary.groups.filter(is_real() & is_target())
    for run, end in summary.periods.cold_end.items():
        mine = pl.col("run").eq_missing(pl.lit(run))
        begun = [
            steps.filter(mine)["t_min"].min(),
            summary.events.filter(mine, pl.col("event") != "run")["t_ns"].min(),
        ]
        known = [int(first) for first in begun if isinstance(first, int) and first <= end]
        if known:
            cold = steps.filter(mine, pl.col("period") == COLD)["weight"].sum()
            rows.append(_stretch("cold", min(known), end, int(cold)))
    warm = (
        summary.timeline.filter(is_real() & is_target() & (pl.col("period") == WARM))
        .group_by("bin")
        .agg(pl.col("weight").sum())
        .sort("bin")
    )
    before: int | None = None
    for place, number in warm.iter_rows():
        if before is not None and place == before + 1:
            rows[-1]["end_ns"] += 1 << summary.shift
            rows[-1]["steps"] += number
        else:
            start = place << summary.shift
            rows.append(_stretch("warm", start, start + (1 << summary.shift), number))
        before = place
    types = {"period": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "steps": pl.Int64}
    return pl.DataFrame(rows, schema=types)


def _stretch(period: str, start: int, end: int, steps: int) -> dict[str, Any]:
    return {"period": period, "start_ns": start, "end_ns": end, "steps": steps}


def made(summary: Summary) -> pl.DataFrame:
    """Return the captures and compilations by the time bin in which they began.

    Columns: ``what`` (``capture``, ``compile``, or ``load`` from a compile cache), ``start_ns``,
    ``end_ns`` (of the last to end), ``number`` and ``seconds`` (of the process with most).
    """
    kept = ("capture", "compile", "load")
    loaded = (pl.col("event") == "compile") & (pl.col("cache") == "hit").fill_null(False)
    end = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)
    return (
        summary.events.filter(
            pl.col("event").is_in(["capture", "compile"]) & pl.col("t_ns").is_not_null()
        )
        .with_columns(
            pl.when(loaded)
            .then(pl.lit("load"))
            .otherwise("event")
            .cast(pl.Enum(kept))
            .alias("what"),
            (pl.col("t_ns") // (1 << summary.shift)).alias("bin"),
        )
        .group_by("what", "bin", "run", "rank", "pid")
        .agg(
            pl.col("t_ns").min().alias("start_ns"),
            end.max().alias("end_ns"),
            pl.col("weight").fill_null(1).sum().alias("number"),
            (pl.col("dur_ns").sum() / 1e9).alias("seconds"),
        )
        .group_by("what", "bin")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("number").sum(),
            pl.col("seconds").max(),
        )
        .sort("what", "bin")
        .drop("bin")
    )


def outcomes_over_time(summary: Summary) -> pl.DataFrame:
    """Return what became of the steps by slice of time.

    Columns: ``fate`` (one of :data:`FATES`), ``reason`` (of fallback; null otherwise), ``rank`` (of
    the reason, 0 for the most frequent one, and for a fate without one), ``start_ns``, ``end_ns``,
    ``steps``, ``share`` (of the slice's steps), by time, fate and rank.
    """
    found = _fates(summary.slices, "slice")
    return found.select(
        "fate",
        "reason",
        "rank",
        *_ends(summary, "slice", summary.slice_shift),
        "steps",
        "share",
    )


def outcomes(summary: Summary) -> pl.DataFrame:
    """Return what became of all steps: as :func:`outcomes_over_time`, without the times."""
    return _fates(summary.groups)


def _fates(table: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Count steps by fate and reason within ``keys``; rare reasons become one."""
    fell = pl.col("outcome") == "fallback"
    steps = table.filter(is_real() & is_target()).select(
        *keys,
        pl.col("outcome").fill_null("unknown").cast(pl.Enum(FATES), strict=False).alias("fate"),
        pl.when(fell).then(pl.col("reason").fill_null("unknown")).alias("reason"),
        "weight",
    )
    most = (
        steps.drop_nulls("reason")
        .group_by("reason")
        .agg(pl.col("weight").sum())
        .sort(["weight", "reason"], descending=[True, False])["reason"]
        .head(MOST_REASONS)
        .to_list()
    )
    rare = pl.col("reason").is_not_null() & ~pl.col("reason").is_in(most)
    named = pl.when(rare).then(pl.lit(OTHER_REASONS)).otherwise("reason").alias("reason")
    places = {reason: place for place, reason in enumerate(most)}
    rank = pl.col("reason").replace_strict(
        {None: 0, **places}, default=MOST_REASONS, return_dtype=pl.Int64
    )
    total = pl.col("steps").sum()
    share = pl.col("steps") / (total.over(keys) if keys else total)
    return (
        steps.with_columns(named)
        .group_by(*keys, "fate", "reason")
        .agg(pl.col("weight").sum().alias("steps"))
        .filter(pl.col("steps") > 0)
        .with_columns(share.alias("share"), rank.alias("rank"))
        .sort(*keys, "fate", "rank")
    )


def _ends(summary: Summary, key: str, shift: int) -> tuple[pl.Expr, pl.Expr]:
    """Expressions: where a bin or slice begins and ends, no further than the steps reach."""
    start = pl.col(key) * (1 << shift)
    end = start + (1 << shift)
    reach = span(summary)
    if reach is not None:
        start = pl.max_horizontal(start, pl.lit(reach[0]))
        end = pl.max_horizontal(pl.min_horizontal(end, pl.lit(reach[1])), start + 1)
    return start.alias("start_ns"), end.alias("end_ns")
