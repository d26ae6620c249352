"""What became of each requested size: its steps, bucket and time in both runs, and who wins."""

from __future__ import annotations

import polars as pl

from graphdiag.buckets.setting import of_summary
from graphdiag.buckets.sizecosts import costs_of
from graphdiag.comparison.answer import SizeChange
from graphdiag.errors import GraphdiagError
from graphdiag.findings import Report, SizeCost
from graphdiag.metrics import is_real, is_replayed, is_target
from graphdiag.summary import Summary

_NS_PER_MS = 1e6
_KEYS = ["phase", "requested"]
_SAME = [*_KEYS, "counts"]
"""What two sizes must have in common to be one: rows and tokens are none."""


def size_changes(base: Summary, candidate: Summary) -> list[SizeChange]:
    """Return every size that either run was asked for, by phase and size."""
    sides = _sizes(base, "base"), _sizes(candidate, "candidate")
    both = _told_apart(*sides).join(
        _told_apart(*reversed(sides)), on=_SAME, how="full", coalesce=True, nulls_equal=True
    )
    change = pl.col("candidate_ms") - pl.col("base_ms")
    share = (pl.col("base_share") + pl.col("candidate_share")) / 2
    table = (
        both.with_columns(pl.col("base_steps", "candidate_steps").fill_null(0))
        .with_columns(change.alias("change_ms"), (change * share).alias("cost_ms_per_step"))
        .drop("base_share", "candidate_share", "counts")
        .sort(_KEYS, nulls_last=True)
    )
    return [SizeChange(**row) for row in table.iter_rows(named=True)]


def replay_against_eager(
    pair: tuple[Summary, Summary], reports: tuple[Report, Report]
) -> list[SizeCost]:
    """Return what replay and eager cost at each requested size of the run that replays.

    Of the candidate, where both do. Where the other has its graphs off, its eager steps are what
    replay is held against.
    """
    replays = [not summary.groups.filter(is_real() & is_replayed()).is_empty() for summary in pair]
    at = 0 if replays == [True, False] else 1
    if all(replays) or not any(replays):
        return reports[at].size_costs
    try:
        setting = of_summary(pair[at], reports[at].source, baseline=pair[1 - at], resample=False)
    except GraphdiagError:  # another engine, or no eager step with a time
        return reports[at].size_costs
    return costs_of(setting)


def _told_apart(mine: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Return the sizes of one side with what they count, where the other's count something else."""
    axes = other.group_by("phase").agg(pl.col("axis").drop_nulls().unique().alias("others"))
    table = mine.join(axes, on="phase", how="left")
    unlike = (pl.col("others").list.len() > 0) & ~pl.col("axis").is_in(pl.col("others"))
    counts = pl.when(unlike.fill_null(False)).then("axis").alias("counts")
    return table.with_columns(counts).drop("axis", "others")


def _sizes(summary: Summary, name: str) -> pl.DataFrame:
    steps = summary.groups.filter(is_real() & is_target()).with_columns(
        pl.col("phase").fill_null("unknown")
    )
    timed = pl.col("dur_ns_weight").sum()
    mean = pl.col("dur_ns").sum() / timed / _NS_PER_MS
    sizes = steps.group_by(_KEYS).agg(
        pl.col("weight").sum().alias(f"{name}_steps"),
        pl.when(timed > 0).then(mean).alias(f"{name}_ms"),
        timed.alias("timed"),
        pl.col("axis").drop_nulls().first(),
    )
    share = pl.col("timed") / pl.col("timed").sum()
    buckets = (
        steps.group_by(*_KEYS, "bucket")
        .agg(pl.col("weight").sum())
        .sort("weight", "bucket", descending=True, nulls_last=True)
        .unique(_KEYS, keep="first", maintain_order=True)
        .select(*_KEYS, pl.col("bucket").alias(f"{name}_bucket"))
    )
    return (
        sizes.with_columns(share.alias(f"{name}_share"))
        .drop("timed")
        .join(buckets, on=_KEYS, nulls_equal=True)
    )
