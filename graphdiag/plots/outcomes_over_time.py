"""What became of the steps over time: exact, padded, fallback by reason."""

from __future__ import annotations

import numpy as np
import polars as pl

from graphdiag import history, wording
from graphdiag.plots import clock, palette
from graphdiag.plots.picture import Boxes, Picture, Words, plain
from graphdiag.plots.step_times import NO_STEPS
from graphdiag.summary import Summary

FATES = {
    "exact": ("exact", palette.EXACT),
    "padded": ("padded", palette.PADDING),
    "capture": ("captured inside", palette.CAPTURED),
    "eager": ("graphs off", palette.GRAPHS_OFF),
    "unknown": ("unknown", palette.UNKNOWN),
}


def outcomes_over_time(summary: Summary) -> Picture | Words:
    """Return the share of the steps that met each fate, in slices of time."""
    found = history.outcomes_over_time(summary)
    span = history.span(summary)
    if span is None:
        return Words(clock.NO_CLOCK if len(summary.groups) else NO_STEPS)
    found = found.with_columns((pl.col("share").cum_sum().over("start_ns") * 100).alias("top"))
    boxes = []
    kinds = found.select("fate", "reason", "rank").unique().sort("fate", "rank")
    for fate, reason, rank in kinds.iter_rows():
        mine = found.filter(fate=fate, rank=rank)
        title, color = named(fate, reason, rank)
        top = mine["top"].to_numpy()
        times = mine.select("start_ns", "end_ns").rows()
        data = {
            "x0": clock.milliseconds(mine["start_ns"]),
            "y0": np.maximum(top - mine["share"].to_numpy() * 100, 0.0),
            "x1": clock.milliseconds(mine["end_ns"]),
            "y1": top,
            "when": [clock.stretch(*pair) for pair in times],
            "steps": [
                f"{steps:,} ({wording.percent(share)})"
                for steps, share in mine.select("steps", "share").iter_rows()
            ],
            "fate": [title] * len(mine),
        }
        boxes.append(
            Boxes(
                data=data,
                at=("x0", "y0", "x1", "y1"),
                color=color,
                label=title,
                told={"when": "UTC", "fate": "outcome", "steps": "steps"},
                outline="#ffffff",
                width=0.5,
            )
        )
    first, last = span
    return Picture(
        layers=boxes,
        x=clock.label(first, last),
        y="share of steps in %",
        x_range=clock.around(first, last),
        y_range=(0.0, 100.0),
        x_clock=True,
        columns=2 if any(reason for _, reason, _ in kinds.iter_rows()) else 3,
    )


def named(fate: str, reason: str | None, rank: int) -> tuple[str, str]:
    """Return what a fate is called in a legend, and its colour."""
    if fate == "fallback":
        return f"fallback: {plain(reason or 'unknown', 24)}", palette.FALLBACK[rank]
    return FATES[fate]
