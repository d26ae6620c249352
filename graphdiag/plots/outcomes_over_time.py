"""What became of the steps over time: exact, padded, fallback by reason."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import polars as pl

from graphdiag import history, wording
from graphdiag.plots import clock, palette
from graphdiag.plots.step_times import NO_STEPS
from graphdiag.plots.style import empty, framed, hover, plain
from graphdiag.summary import Summary

FATES = {
    "exact": ("exact", palette.EXACT),
    "padded": ("padded", palette.PADDING),
    "capture": ("captured inside", palette.CAPTURED),
    "eager": ("graphs off", palette.GRAPHS_OFF),
    "unknown": ("unknown", palette.UNKNOWN),
}


def outcomes_over_time(summary: Summary) -> hv.Overlay | hv.Div:
    """Return the share of the steps that met each fate, in slices of time."""
    found = history.outcomes_over_time(summary)
    span = history.span(summary)
    if span is None:
        return empty(clock.NO_CLOCK if len(summary.groups) else NO_STEPS)
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
        kdims = ["x0", "y0", "x1", "y1"]
        layer = hv.Rectangles(data, kdims, ["when", "fate", "steps"], label=title)
        shown = hover(when="UTC", fate="outcome", steps="steps")
        boxes.append(layer.opts(color=color, line_width=0.5, line_color="#ffffff", **shown))
    first, last = span
    return framed(
        hv.Overlay(boxes),
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
