"""What each number of graphs can give at best, and where the sets in question stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphdiag import wording
from graphdiag.buckets.answer import BucketAnswer, Plan
from graphdiag.plots import palette
from graphdiag.plots.picture import Layer, Line, Picture, Points, Words

_WIDE = 32
"""Ratio of the most graphs to the fewest from which their axis is logarithmic."""
_ABOVE = 1.3
_HOVER = {
    "which": "set",
    "graphs": "graphs",
    "sizes": "sizes",
    "padding": "padding",
    "fallback": "fallback",
    "time": "step time",
    "memory": "memory",
    "warmup": "warm-up",
}


@dataclass(frozen=True)
class _Mark:
    label: str
    plan: Plan | None
    color: str
    marker: str


def frontier(answer: BucketAnswer) -> Picture | Words:
    """Return cost against graphs: the best set of each count, and the sets in question over it.

    In ms a step where there are times, else in padding; the first counts may lie above the picture,
    which ends a little above the sets in question.
    """
    plans = answer.frontier
    if not plans:
        return Words("No set of sizes fits: allow more graphs or more memory.")
    marks = [mark for mark in _marks(answer) if mark.plan is not None]
    heights = [_height(answer, plan) for plan in plans]
    marked = [_height(answer, mark.plan) for mark in marks if mark.plan is not None]
    low, high = min(heights + marked), max(heights)
    top = min(high, max([*marked, heights[len(heights) // 2]]) * _ABOVE)
    top = max([top, *marked])
    timed = answer.priced_in == "ms"
    margin = (top - low or top or 1.0) * 0.08
    counts = [plan.graphs for plan in plans] + [mark.plan.graphs for mark in marks if mark.plan]
    log = max(counts) >= _WIDE * min(counts)
    best = "best of its count"
    line = {"graphs": counts[: len(plans)], "cost": heights}
    layers: list[Layer] = [
        Line(data=line, at=("graphs", "cost"), color=palette.FRONTIER, label=best),
        _points(answer, plans, best, palette.FRONTIER, "circle", 5),
    ]
    for mark in marks:
        if mark.plan is not None:
            layers.append(_points(answer, [mark.plan], mark.label, mark.color, mark.marker, 12))
    return Picture(
        layers=layers,
        x="captured graphs",
        y="mean step time in ms" if timed else "padding in % of requested rows",
        x_range=_range(counts, log=log),
        y_range=(max(low - margin, 0.0) if timed else -margin, top + margin),
        x_log=log,
    )


def _range(counts: list[int], *, log: bool) -> tuple[float, float]:
    first, last = min(counts), max(counts)
    margin = max(0.5, 0.03 * (last - first))
    return (first * 0.85, last * 1.15) if log else (first - margin, last + margin)


def _marks(answer: BucketAnswer) -> list[_Mark]:
    """Return the sets in question; the later ones are drawn over the earlier ones."""
    counted = {len(plan.buckets): plan for plan in answer.frontier}
    knee = None if answer.knee is None else counted.get(answer.knee)
    return [
        _Mark("knee", knee, palette.KNEE, "diamond"),
        _Mark("now", answer.current, palette.NOW, "square"),
        _Mark("recommended", answer.recommended, palette.RECOMMENDED, "inverted_triangle"),
        _Mark("what if", answer.what_if, palette.WHAT_IF, "star"),
    ]


def _height(answer: BucketAnswer, plan: Plan) -> float:
    if answer.priced_in == "ms":
        return plan.cost_ms_per_step or 0.0
    return (plan.padding_ratio or 0.0) * 100


def _points(
    answer: BucketAnswer, plans: list[Plan], label: str, color: str, marker: str, size: int
) -> Points:
    told = {
        "which": [label] * len(plans),
        "sizes": [wording.count(len(plan.buckets)) for plan in plans],
        "padding": [wording.percent(plan.padding_ratio) for plan in plans],
        "fallback": [wording.percent(plan.fallback_rate) for plan in plans],
        "time": [wording.measure(plan.cost_ms_per_step, "ms") for plan in plans],
        "memory": [wording.measure(plan.memory_mib, "MiB") for plan in plans],
        "warmup": [wording.measure(plan.warmup_s, "s") for plan in plans],
    }
    known = {name: told[name] for name in told if set(told[name]) != {wording.MISSING}}
    data = {
        "graphs": np.array([plan.graphs for plan in plans], np.int64),
        "cost": np.array([_height(answer, plan) for plan in plans]),
        **known,
    }
    shown = {name: title for name, title in _HOVER.items() if name in data}
    return Points(
        data=data,
        at=("graphs", "cost"),
        color=color,
        label=label,
        told=shown,
        marker=marker,
        size=size,
    )
