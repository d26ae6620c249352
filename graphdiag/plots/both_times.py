"""The step time of two runs over the time since each began."""

from __future__ import annotations

import holoviews as hv
import numpy as np

from graphdiag import history, wording
from graphdiag.plots import palette
from graphdiag.plots.step_times import NO_TIMES, WIDE, gaps_in
from graphdiag.plots.style import empty, framed, hover
from graphdiag.summary import Summary

SIDES = (
    ("base", palette.BASE, "dashed", "square"),
    ("candidate", palette.CANDIDATE, "solid", "circle"),
)
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def step_times_of_both(base: Summary, candidate: Summary) -> hv.Overlay | hv.Div:
    """Return the mean step time of both runs on the same axes, over the time since they began."""
    tables = [history.mean_times(one).drop_nulls("mean_ms") for one in (base, candidate)]
    if any(table.is_empty() for table in tables):
        return empty(f"One of the two has no step times. {NO_TIMES}")
    seconds = [(table["end_ns"] - table["start_ns"][0]).to_numpy() / 1e9 for table in tables]
    longest = max(float(ends[-1]) for ends in seconds)
    unit, size = next(((name, one) for name, one in _UNITS if longest >= 2 * one), _UNITS[-1])
    layers = []
    for (title, color, dash, marker), table, width in zip(
        SIDES, tables, (1 << base.shift, 1 << candidate.shift), strict=True
    ):
        starts = table["start_ns"].to_numpy() - table["start_ns"][0]
        middles = (starts + table["end_ns"].to_numpy() - table["start_ns"][0]) / 2e9 / size
        mean = table["mean_ms"].to_numpy()
        gaps = gaps_in(starts, width)
        line = (np.insert(middles, gaps, middles[gaps]), np.insert(mean, gaps, np.nan))
        curve = hv.Curve(line, "since", "ms", label=title)
        layers.append(curve.opts(color=color, line_dash=dash, line_width=1.5, backend="bokeh"))
        data = {
            "since": middles,
            "ms": mean,
            "at": [wording.duration(float(value) * size) for value in middles],
            "mean": [wording.measure(value, "ms") for value in mean.tolist()],
            "steps": [f"{steps:,}" for steps in table["steps"]],
        }
        points = hv.Scatter(data, "since", ["ms", "at", "mean", "steps"], label=title)
        shown = hover(at="since the first step", mean=f"mean of the {title}", steps="steps")
        layers.append(points.opts(color=color, size=3, marker=marker, line_color=color, **shown))
    means = np.concatenate([table["mean_ms"].to_numpy() for table in tables])
    log = bool(means.min() > 0 and means.max() > WIDE * np.median(means))
    return framed(
        hv.Overlay(layers),
        x=f"time since the first step in {unit}",
        y="mean step time in ms",
        x_range=(-0.01 * longest / size, 1.01 * longest / size),
        y_range=(float(means.min()) / 1.3 if log else 0.0, float(means.max()) * 1.08 or 1.0),
        y_log=log,
    )
