"""How often each size was requested, on the axis the engine's buckets count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.metrics import ELIGIBLE, is_real, is_target
from graphdiag.runconfig import capture_sizes
from graphdiag.summary import Summary

Ints = NDArray[np.int64]

BUCKET_REASONS = ("over_max", "no_key", "not_captured")
"""Fallback reasons that a bucket could cure; for others the sizes are not the problem."""


@dataclass(frozen=True)
class Histogram:
    """Steps by requested size that buckets decide about.

    Attributes
    ----------
    sizes, counts
        Requested sizes, ascending, and their steps.
    axis
        What the sizes count, where the trace says it.
    captured
        Sizes the engine has now, ascending: configured, else captured, else seen replayed.
    """

    sizes: Ints
    counts: Ints
    axis: str | None
    captured: Ints


def histogram(summary: Summary, config: dict[str, Any]) -> Histogram:
    """Return the histogram of the target's real steps that a bucket serves or could serve."""
    rows = summary.groups.filter(
        is_real() & is_target() & pl.col("outcome").is_in(ELIGIBLE) & (pl.col("requested") > 0)
    )
    axis = _axis(rows, config)
    if axis is not None:
        rows = rows.filter(pl.col("axis").is_null() | (pl.col("axis") == axis))
    captured = captured_sizes(summary, config, rows)
    top = int(captured[-1]) if len(captured) else 0
    curable = (
        (pl.col("outcome") != "fallback")
        | pl.col("reason").is_in(BUCKET_REASONS)
        | (pl.col("requested") > top)
    )
    table = (
        rows.filter(curable.fill_null(False))
        .group_by("requested")
        .agg(pl.col("weight").sum())
        .sort("requested")
    )
    return Histogram(
        sizes=table["requested"].cast(pl.Int64).to_numpy(),
        counts=table["weight"].cast(pl.Int64).to_numpy(),
        axis=axis,
        captured=captured,
    )


def captured_sizes(summary: Summary, config: dict[str, Any], rows: pl.DataFrame) -> Ints:
    """Return the sizes the engine has: configured, else captured, else replayed in ``rows``."""
    told = capture_sizes(config)
    if told:
        return np.array(told, dtype=np.int64)
    events = summary.events.filter((pl.col("event") == "capture") & is_target())
    sizes = events["size"].drop_nulls()
    if sizes.is_empty():
        sizes = rows["bucket"].drop_nulls()
    return sizes.cast(pl.Int64).unique().sort().to_numpy()


def _axis(rows: pl.DataFrame, config: dict[str, Any]) -> str | None:
    told = config.get("axis")
    if isinstance(told, str):
        return told
    most = (
        rows.filter(pl.col("axis").is_not_null())
        .group_by("axis")
        .agg(pl.col("weight").sum())
        .sort("weight", "axis", descending=True)
    )
    return str(most["axis"][0]) if len(most) else None
