"""What was asked for and what was padded, by requested size, with the captured sizes over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiag import wording
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.findings import SizeCost
from graphdiag.plots import palette
from graphdiag.plots.bars import Bars, Floats, fits_log, gather
from graphdiag.plots.picture import Boxes, Layer, Picture, Points, Segments, Words

NO_SIZES_NOW = (
    "Which sizes are captured now was not recorded, so that padding is not known: give them as "
    "--current, or record the engine with graphdiag record."
)
_HEADROOM = 1.08
_MANY = 64
"""Captured sizes from which their rulings are fainter, not to hide the bars."""
_TRIANGLES = 1.035
"""Where the recommended sizes stand above the bars, as a multiple of the tallest."""


@dataclass(frozen=True)
class Asked:
    """What steps asked for, and the sizes that are captured for it.

    Attributes
    ----------
    sizes
        Ascending by requested size, at least one; the bucket is None where the step ran eager.
    shares
        Whether the steps are shares of all.
    axis
        What a row is: tokens or requests; None where that is not known.
    captured
        The sizes captured now; None where that is not known.
    recommended
        The sizes to capture.
    """

    sizes: Sequence[SizeCost]
    shares: bool
    axis: str | None
    captured: Sequence[int] | None
    recommended: Sequence[int]

    @property
    def steps(self) -> float:
        """All steps, or their shares added up."""
        return sum(size.steps for size in self.sizes)


def requested_sizes(answer: BucketAnswer) -> Picture:
    """Return the histogram of requested sizes under the captured and the recommended ones.

    The orange part of a bar is the share of the executed rows that is padding.
    """
    return histogram(_asked(answer))


def histogram(answer: Asked) -> Picture:
    """Return the histogram of what was asked for, under the sizes that are captured for it."""
    log = fits_log(answer.sizes)
    bars = gather(answer.sizes, log=log)
    scale = 100.0 if answer.shares else 1.0
    heights = bars.steps * scale
    replayed = (bars.steps - bars.eager) * scale
    padding = replayed * bars.waste
    told = _told(answer, bars)
    layers: list[Layer] = []
    if answer.captured is None:
        layers.append(_boxes(bars, 0 * heights, heights, told, "steps", palette.REPLAY))
    else:
        solid = replayed - padding
        layers.append(_boxes(bars, 0 * heights, solid, told, "requested rows", palette.REPLAY))
        layers.append(_boxes(bars, solid, replayed, told, "padded rows", palette.PADDING))
        if bars.eager.any():
            layers.append(_boxes(bars, replayed, heights, told, "ran eager", palette.EAGER))
    top = float(heights.max())
    unit = "share of steps in %" if answer.shares else "steps"
    return _over_sizes(layers, answer, bars, top, log=log, y=unit, mark=True)


def padding_by_size(answer: BucketAnswer) -> Picture | Words:
    """Return each requested size's share of all padded rows under the captured sizes."""
    if answer.current is None:
        return Words(NO_SIZES_NOW)
    asked = _asked(answer)
    log = fits_log(answer.sizes)
    bars = gather(answer.sizes, log=log)
    padded = float(bars.padded.sum())
    if not padded:
        return Words("No row was padded: every step that replayed asked for a captured size.")
    share = bars.padded / padded * 100
    told = _told(asked, bars)
    boxes = _boxes(bars, 0 * share, share, told, "padded rows", palette.PADDING)
    y = "share of all padded rows in %"
    top = float(share.max())
    return _over_sizes([boxes], asked, bars, top, log=log, y=y, mark=False)


def size_label(axis: str | None) -> str:
    """Return the label of an axis of requested sizes, with its unit."""
    return f"requested size ({axis or 'rows'} in a step)"


def size_range(sizes: Sequence[SizeCost], *, log: bool) -> tuple[float, float]:
    """Return from where to where an axis of requested sizes goes: to the bucket of the largest."""
    first, last = sizes[0].requested, sizes[-1]
    highest = max(last.bucket or 0, last.requested)
    margin = max(0.5, 0.01 * (highest - first))
    return (first * 0.85, highest * 1.15) if log else (first - margin - 0.5, highest + margin)


def _asked(answer: BucketAnswer) -> Asked:
    return Asked(
        answer.sizes,
        answer.shares,
        answer.axis,
        None if answer.current is None else answer.current.buckets,
        [] if answer.recommended is None else answer.recommended.buckets,
    )


def _told(answer: Asked, bars: Bars) -> dict[str, list[str]]:
    """Return the exact figures of each bar, as they are shown under the pointer."""
    total, padded = float(bars.steps.sum()), float(bars.padded.sum())
    columns: dict[str, list[str]] = {"size": [], "steps": []}
    for first, last, steps in zip(bars.first, bars.last, bars.steps, strict=True):
        columns["size"].append(f"{first:,}" if first == last else f"{first:,} to {last:,}")
        count = "" if answer.shares else f"{steps:,.0f} "
        share = wording.percent(steps / total)
        columns["steps"].append(f"{count}({share})" if count else share)
    if answer.captured is None:
        return columns
    columns["bucket"] = [
        _between(least, most) for least, most in zip(bars.least, bars.most, strict=True)
    ]
    pairs = list(zip(bars.requested, bars.padded, strict=True))
    columns["padding"] = [_padding(*pair, shares=answer.shares) for pair in pairs]
    if padded:
        columns["share"] = [wording.percent(rows / padded) for rows in bars.padded]
    return columns


def _between(least: int, most: int) -> str:
    if least == most:
        return f"{most:,}" if most else "none, eager"
    return f"{least:,} to {most:,}" if least else f"to {most:,}, or eager"


def _padding(requested: float, rows: float, *, shares: bool) -> str:
    if not rows:
        return "none" if requested else "none, eager"
    count = "" if shares else f"{rows:,.0f} rows, "
    return f"{count}{wording.percent(rows / requested)} of requested"


_HOVER = {
    "size": "requested",
    "steps": "steps",
    "bucket": "bucket",
    "padding": "padding",
    "share": "of all padding",
}


def _boxes(
    bars: Bars, bottom: Floats, top: Floats, told: dict[str, list[str]], label: str, color: str
) -> Boxes:
    shown = {name: title for name, title in _HOVER.items() if name in told}
    data: dict[str, Any] = {"x0": bars.left, "y0": bottom, "x1": bars.right, "y1": top, **told}
    return Boxes(data=data, at=("x0", "y0", "x1", "y1"), color=color, label=label, told=shown)


def _over_sizes(
    layers: Sequence[Layer],
    answer: Asked,
    bars: Bars,
    top: float,
    *,
    log: bool,
    y: str,
    mark: bool,
) -> Picture:
    """Lay the captured sizes over ``layers`` as rulings, and the recommended ones as triangles."""
    if answer.captured is not None and len(answer.captured):
        layers = [*layers, _rulings(answer, answer.captured, top * _HEADROOM)]
    if mark and len(answer.recommended):
        layers = [*layers, _triangles(answer.recommended, top * _TRIANGLES)]
    several = bool((bars.last > bars.first).any())
    return Picture(
        layers=layers,
        x=size_label(answer.axis),
        y=f"{y}, per bar" if several else y,
        x_range=size_range(answer.sizes, log=log),
        y_range=(0.0, top * _HEADROOM),
        x_log=log,
    )


def _rulings(answer: Asked, buckets: Sequence[int], top: float) -> Segments:
    served = dict.fromkeys(buckets, 0.0)
    for size in answer.sizes:
        if size.bucket in served:
            served[size.bucket] += size.steps
    shares = [wording.percent(steps / answer.steps) for steps in served.values()]
    data = {
        "x": buckets,
        "bottom": np.zeros(len(buckets)),
        "x_to": buckets,
        "top": np.full(len(buckets), top),
        "captured": [f"{bucket:,}" for bucket in buckets],
        "serves": [f"{share} of steps" for share in shares],
    }
    return Segments(
        data=data,
        at=("x", "bottom", "x_to", "top"),
        color=palette.NOW,
        label="captured now",
        told={"captured": "captured now", "serves": "serves"},
        alpha=0.8 if len(buckets) <= _MANY else 0.4,
    )


def _triangles(buckets: Sequence[int], height: float) -> Points:
    data = {
        "x": buckets,
        "y": np.full(len(buckets), height),
        "recommended": [f"{bucket:,}" for bucket in buckets],
    }
    return Points(
        data=data,
        at=("x", "y"),
        color=palette.RECOMMENDED,
        label="recommended",
        told={"recommended": "recommended"},
        marker="inverted_triangle",
        size=8,
        outlined=False,
    )
