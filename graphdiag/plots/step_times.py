"""The step time over time, with start-up shaded and captures and compilations marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag import history, wording
from graphdiag.plots import clock, palette
from graphdiag.plots.bars import Floats
from graphdiag.plots.picture import Boxes, Dash, Layer, Line, Picture, Points, Words
from graphdiag.summary import Summary

NO_TIMES = (
    "The time of a step was not recorded: record the engine with graphdiag record, or read a "
    "profiler's trace."
)
_LINES: dict[str, tuple[str, str, Dash, str]] = {
    "replayed": ("replayed", palette.REPLAY, "solid", "circle"),
    "eager": ("ran eager", palette.EAGER, "dashed", "x"),
    "captured": ("captured inside", palette.CAPTURED, "dotted", "diamond"),
    "unknown": ("outcome unknown", palette.UNKNOWN, "dotdash", "square"),
}
_MADE = {
    "capture": ("captures", palette.CAPTURE),
    "compile": ("compilations", palette.COMPILE),
    "load": ("loads from cache", palette.LOAD),
}
_SHADES = {"cold": ("cold", palette.COLD, 0.3), "warm": ("warm", palette.WARM, 0.45)}
WIDE = 10
"""Ratio of the longest mean to the middle one from which the axis of step time is logarithmic."""
_BOX = ("x0", "y0", "x1", "y1")
_FEW = 40
"""Points up to which each is drawn large: a line may not show them."""
_BEFORE = 0.5
"""Most of the steps' time that is shown before the first one, as a multiple."""


def step_times(summary: Summary) -> Picture | Words:
    """Return the mean step time by how the step ran, over wall-clock time.

    Shaded is what is not steady: cold, until the last start-up capture or compilation, and warm,
    where some artifact ran for the first time. A lane above marks what was made.
    """
    times = history.step_times(summary)
    span = history.span(summary)
    if span is None:
        return Words(clock.NO_CLOCK if len(summary.groups) else NO_STEPS)
    timed = times.drop_nulls("mean_ms")
    if timed.is_empty():
        return Words(NO_TIMES)
    means = timed["mean_ms"].to_numpy()
    log = bool(means.min() > 0 and means.max() > WIDE * np.median(means))
    low, top = _ends(means, log=log)
    lane = _lane(low, top, log=log)
    started, made = history.start_up(summary), history.made(summary)
    first, last = _shown(span, started, made)
    layers = [
        *_shaded(started, low, lane[1]),
        *_marked(made, lane),
        *_lines(timed, summary),
    ]
    return Picture(
        layers=layers,
        x=clock.label(first, last),
        y="mean step time in ms",
        x_range=clock.around(first, last),
        y_range=(low, lane[1]),
        x_clock=True,
        y_log=log,
        columns=4,
    )


NO_STEPS = (
    "The source holds no step: record the engine with graphdiag record, or the steps of your own "
    "loop (docs/recorder.md)."
)


def _ends(means: Floats, *, log: bool) -> tuple[float, float]:
    if log:
        return float(means.min()) / 1.3, float(means.max()) * 1.3
    return 0.0, float(means.max()) * 1.08 or 1.0


def _lane(low: float, top: float, *, log: bool) -> tuple[float, float]:
    """Return from where to where the lane above the lines goes."""
    if log:
        return top * (top / low) ** 0.02, top * (top / low) ** 0.08
    return top * 1.02, top * 1.08


def _shown(span: tuple[int, int], *others: pl.DataFrame) -> tuple[int, int]:
    """Return the time that is shown at first: the steps', and of what came before not too much."""
    first, last = span
    begun = [int(table.select(pl.col("start_ns").min()).item()) for table in others if len(table)]
    early = min([first, *begun])
    return max(early, first - round(_BEFORE * (last - first))), last


def _lines(times: pl.DataFrame, summary: Summary) -> Iterator[Layer]:
    width = 1 << summary.shift
    for (way,), mine in times.group_by("way", maintain_order=True):
        title, color, dash, marker = _LINES[str(way)]
        starts, ends = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        middles = clock.milliseconds((mine["start_ns"] + mine["end_ns"]) // 2)
        mean = mine["mean_ms"].to_numpy()
        at = ("time", "ms")
        line = dict(zip(at, broken(middles, mean, starts, width), strict=True))
        yield Line(data=line, at=at, color=color, label=title, dash=dash, width=1.5)
        data = {
            "time": middles,
            "ms": mean,
            "when": [clock.stretch(*pair) for pair in zip(starts, ends, strict=True)],
            "mean": [wording.measure(value, "ms") for value in mean.tolist()],
            "steps": [f"{steps:,} {title}" for steps in mine["steps"]],
        }
        yield Points(
            data=data,
            at=at,
            color=color,
            label=title,
            told={"when": "UTC", "mean": "mean", "steps": "steps"},
            marker=marker,
            size=3 if len(mine) > _FEW else 7,
        )


def broken(
    along: Floats, mean: Floats, starts: NDArray[np.int64], width: int
) -> tuple[Floats, Floats]:
    """Return a line over bins with a NaN before each bin that follows one without a step."""
    gaps = np.flatnonzero(np.diff(starts) > 2 * width) + 1
    return np.insert(along, gaps, along[gaps]), np.insert(mean, gaps, np.nan)


def _shaded(started: pl.DataFrame, low: float, top: float) -> Iterator[Boxes]:
    for (period,), mine in started.group_by("period", maintain_order=True):
        title, color, alpha = _SHADES[str(period)]
        told = [
            f"{wording.count(steps, 'step')}, {clock.stretch(first, last)}"
            for first, last, steps in mine.select("start_ns", "end_ns", "steps").iter_rows()
        ]
        data = _boxes(mine, (low, top)) | {title: told}
        told_as = {title: title}
        yield Boxes(data=data, at=_BOX, color=color, label=title, told=told_as, alpha=alpha)


def _marked(made: pl.DataFrame, lane: tuple[float, float]) -> Iterator[Boxes]:
    for (what,), mine in made.group_by("what", maintain_order=True):
        title, color = _MADE[str(what)]
        told = [
            f"{number:,} in {wording.measure(seconds, 's')}, {clock.stretch(first, last)}"
            for number, seconds, first, last in mine.select(
                "number", "seconds", "start_ns", "end_ns"
            ).iter_rows()
        ]
        yield Boxes(
            data=_boxes(mine, lane) | {"made": told},
            at=_BOX,
            color=color,
            label=title,
            told={"made": title},
            outline=color,
            width=2,
        )


def _boxes(table: pl.DataFrame, ends: tuple[float, float]) -> dict[str, Any]:
    return {
        "x0": clock.milliseconds(table["start_ns"]),
        "y0": np.full(len(table), ends[0]),
        "x1": clock.milliseconds(table["end_ns"]),
        "y1": np.full(len(table), ends[1]),
    }
