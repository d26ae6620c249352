"""The step time of two runs over the time since each began."""

from __future__ import annotations

import numpy as np

from graphdiag import history, wording
from graphdiag.plots import palette
from graphdiag.plots.picture import Dash, Layer, Line, Picture, Points, Words
from graphdiag.plots.step_times import NO_TIMES, WIDE, broken
from graphdiag.summary import Summary

SIDES: tuple[tuple[str, str, Dash, str], ...] = (
    ("base", palette.BASE, "dashed", "square"),
    ("candidate", palette.CANDIDATE, "solid", "circle"),
)
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def step_times_of_both(base: Summary, candidate: Summary) -> Picture | Words:
    """Return the mean step time of both runs on the same axes, over the time since they began."""
    tables = [history.mean_times(one).drop_nulls("mean_ms") for one in (base, candidate)]
    if any(table.is_empty() for table in tables):
        return Words(f"One of the two has no step times. {NO_TIMES}")
    seconds = [(table["end_ns"] - table["start_ns"][0]).to_numpy() / 1e9 for table in tables]
    longest = max(float(ends[-1]) for ends in seconds)
    unit, size = next(((name, one) for name, one in _UNITS if longest >= 2 * one), _UNITS[-1])
    layers: list[Layer] = []
    for (title, color, dash, marker), table, width in zip(
        SIDES, tables, (1 << base.shift, 1 << candidate.shift), strict=True
    ):
        starts = table["start_ns"].to_numpy() - table["start_ns"][0]
        middles = (starts + table["end_ns"].to_numpy() - table["start_ns"][0]) / 2e9 / size
        mean = table["mean_ms"].to_numpy()
        at = ("since", "ms")
        line = dict(zip(at, broken(middles, mean, starts, width), strict=True))
        layers.append(Line(data=line, at=at, color=color, label=title, dash=dash, width=1.5))
        data = {
            "since": middles,
            "ms": mean,
            "at": [wording.duration(float(value) * size) for value in middles],
            "mean": [wording.measure(value, "ms") for value in mean.tolist()],
            "steps": [f"{steps:,}" for steps in table["steps"]],
        }
        told = {"at": "since the first step", "mean": f"mean of the {title}", "steps": "steps"}
        layers.append(
            Points(data=data, at=at, color=color, label=title, told=told, marker=marker, size=3)
        )
    means = np.concatenate([table["mean_ms"].to_numpy() for table in tables])
    log = bool(means.min() > 0 and means.max() > WIDE * np.median(means))
    return Picture(
        layers=layers,
        x=f"time since the first step in {unit}",
        y="mean step time in ms",
        x_range=(-0.01 * longest / size, 1.01 * longest / size),
        y_range=(float(means.min()) / 1.3 if log else 0.0, float(means.max()) * 1.08 or 1.0),
        y_log=log,
    )
