"""What two runs were asked for, size by size, and what a step of each size took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphdiag import wording
from graphdiag.comparison.answer import Comparison, SizeChange
from graphdiag.plots import palette
from graphdiag.plots.bars import MOST_BARS, Floats, Ints, fits_log, starts
from graphdiag.plots.both_times import SIDES
from graphdiag.plots.picture import Band, Dash, Layer, Line, Picture, Points, Words, plain

NO_SIZES = (
    "What the steps asked for was not recorded: record both engines with graphdiag record, or read "
    "a server log that tells the sizes."
)
NO_TIMES = (
    "No size was timed: record both engines with graphdiag record, or read a profiler's trace of "
    "each."
)
_MOST_POINTS = 400


@dataclass(frozen=True)
class _Size:
    requested: int
    steps: float


def sizes_of_both(found: Comparison) -> Picture | Words:
    """Return how often each size was asked for in both, as shares of the steps of one phase."""
    phase, sizes = _main_phase(found.sizes)
    if not sizes:
        return Words(NO_SIZES)
    log = _fits_log(sizes)
    requested = np.array([one.requested for one in sizes], np.int64)
    edges = starts(int(requested[0]), int(requested[-1]), log=log, most=MOST_BARS)
    place = np.searchsorted(edges, requested, side="right") - 1
    ends = np.append(edges[1:], requested[-1] + 1)
    layers: list[Layer] = []
    top = 0.0
    for side, (title, color, dash, _) in enumerate(SIDES):
        steps = np.array([_steps(one)[side] for one in sizes], np.float64)
        total = float(steps.sum())
        counted: Floats = np.bincount(place, steps, len(edges)).astype(np.float64)
        share: Floats = counted / (total or 1.0) * 100
        top = max(top, float(share.max()))
        layers.append(_stairs(edges, ends, share, title, color, dash, filled=bool(side)))
        layers.append(_found(edges, ends, counted, share, title))
    several = bool((ends - edges > 1).any())
    return Picture(
        layers=layers,
        x=_label(phase),
        y="share of steps in %, per bar" if several else "share of steps in %",
        x_range=_range(requested, log=log),
        y_range=(0.0, top * 1.08 or 1.0),
        x_log=log,
    )


def costs_of_both(found: Comparison) -> Picture | Words:
    """Return the mean step time of each size in both, as it was measured."""
    phase, sizes = _main_phase(found.sizes)
    timed = [one for one in sizes if one.base_ms is not None or one.candidate_ms is not None]
    if not timed:
        return Words(NO_TIMES if sizes else NO_SIZES)
    shown = timed[:: -(-len(timed) // _MOST_POINTS)]
    log = _fits_log(timed)
    layers: list[Layer] = []
    top = 0.0
    for side, (title, color, dash, marker) in enumerate(SIDES):
        mine = [one for one in shown if _ms(one)[side] is not None]
        if not mine:
            continue
        ms = [_ms(one)[side] or 0.0 for one in mine]
        top = max(top, *ms)
        data = {
            "size": [one.requested for one in mine],
            "ms": ms,
            "requested": [wording.count(one.requested or 0) for one in mine],
            "bucket": [_bucket(_buckets(one)[side]) for one in mine],
            "mean": [wording.measure(value, "ms") for value in ms],
            "steps": [wording.count(_steps(one)[side]) for one in mine],
        }
        at = ("size", "ms")
        layers.append(Line(data=data, at=at, color=color, label=title, dash=dash, width=1))
        layers.append(
            Points(
                data=data,
                at=at,
                color=color,
                label=title,
                told={
                    "requested": "requested",
                    "bucket": "bucket",
                    "mean": f"mean of the {title}",
                    "steps": "steps",
                },
                marker=marker,
                size=6,
                outlined=False,
            )
        )
    requested = np.array([one.requested for one in timed], np.int64)
    return Picture(
        layers=layers,
        x=_label(phase),
        y="mean step time in ms",
        x_range=_range(requested, log=log),
        y_range=(0.0, top * 1.08 or 1.0),
        x_log=log,
    )


def _main_phase(sizes: Sequence[SizeChange]) -> tuple[str, list[SizeChange]]:
    """Return the phase with the most steps and its sizes, ascending."""
    steps: dict[str, int] = {}
    known = [one for one in sizes if one.requested]
    for one in known:
        steps[one.phase] = steps.get(one.phase, 0) + one.base_steps + one.candidate_steps
    phase = max(steps, key=lambda name: steps[name], default="")
    mine = [one for one in known if one.phase == phase]
    return phase, sorted(mine, key=lambda one: one.requested or 0)


def _fits_log(sizes: Sequence[SizeChange]) -> bool:
    return fits_log([_Size(one.requested or 0, sum(_steps(one))) for one in sizes])


def _steps(one: SizeChange) -> tuple[int, int]:
    return one.base_steps, one.candidate_steps


def _ms(one: SizeChange) -> tuple[float | None, float | None]:
    return one.base_ms, one.candidate_ms


def _buckets(one: SizeChange) -> tuple[int | None, int | None]:
    return one.base_bucket, one.candidate_bucket


def _bucket(bucket: int | None) -> str:
    return "none" if bucket is None else f"{bucket:,}"


def _label(phase: str) -> str:
    return f"requested size (rows in a step), {plain(phase, 20)}"


def _range(requested: Ints, *, log: bool) -> tuple[float, float]:
    first, last = float(requested[0]), float(requested[-1])
    margin = max(0.5, 0.01 * (last - first))
    return (first * 0.85, last * 1.15) if log else (first - margin - 0.5, last + margin + 0.5)


def _stairs(
    edges: Ints, ends: Ints, share: Floats, title: str, color: str, dash: Dash, *, filled: bool
) -> Layer:
    x = np.stack([edges - 0.5, ends - 0.5], axis=1).ravel()
    y = np.repeat(share, 2)
    if filled:
        data = {"size": x, "zero": 0 * y, "share": y}
        at = ("size", "zero", "share")
        return Band(data=data, at=at, color=color, label=title, alpha=0.55)
    data = {"size": x, "share": y}
    return Line(data=data, at=("size", "share"), color=color, label=title, dash=dash, width=2)


def _found(edges: Ints, ends: Ints, steps: Floats, share: Floats, title: str) -> Points:
    """Return what the pointer finds: the exact figures of each bar."""
    present = steps > 0
    first, last = edges[present], ends[present] - 1
    data = {
        "size": (first + last) / 2,
        "share": share[present],
        "requested": [
            f"{low:,}" if low == high else f"{low:,} to {high:,}"
            for low, high in zip(first, last, strict=True)
        ],
        "steps": [
            f"{count:,.0f} ({wording.percent(part / 100)})"
            for count, part in zip(steps[present], share[present], strict=True)
        ],
    }
    return Points(
        data=data,
        at=("size", "share"),
        color=palette.BASE if title == "base" else palette.CANDIDATE,
        told={"requested": "requested", "steps": f"steps of the {title}"},
        outlined=False,
    )
