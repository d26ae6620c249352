"""Replay against eager, size by size: where padding outweighs the launches that replay saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphdiag import wording
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.findings import SizeCost
from graphdiag.plots import palette
from graphdiag.plots.bars import Floats, fits_log
from graphdiag.plots.bucket_sizes import NO_SIZES_NOW, size_label, size_range
from graphdiag.plots.picture import Band, Dash, Layer, Line, Picture, Points, Words

MOST_POINTS = 400
NO_TIMES = (
    "What a step of each size costs was not measured, for fewer than two buckets were replayed and "
    "timed: record the engine with graphdiag record over traffic that reaches more of its sizes."
)
_NAN = float("nan")
_HOVER = {
    "size": "requested",
    "steps": "steps",
    "bucket": "bucket",
    "replay": "replay",
    "padding": "of it padding",
    "eager": "eager",
    "net": "replay saves",
}


def cost_by_size(answer: BucketAnswer) -> Picture | Words:
    """Return what a step of each requested size costs: replayed now, without padding, and eager.

    Sizes where eager would be cheaper, past the break-even, are marked.
    """
    timed = [size for size in answer.sizes if size.replay_ms is not None or size.eager_ms]
    if not timed:
        return Words(NO_SIZES_NOW if answer.priced_in == "ms" else NO_TIMES)
    log = fits_log(answer.sizes)
    sizes = _spread(timed, log=log)
    x = np.array([size.requested for size in sizes], np.float64)
    replay = _column(sizes, lambda size: size.replay_ms)
    eager = _column(sizes, lambda size: size.eager_ms)
    bare = replay - _column(sizes, lambda size: size.padded_ms)
    layers: list[Layer] = []
    if not np.isnan(replay).all():
        layers += [_band(x, bare, replay), _line(x, replay, "replay now", palette.REPLAY, "solid")]
    if not np.isnan(eager).all():
        layers.append(_line(x, eager, "eager", palette.EAGER, "dashed"))
    layers.append(_points(answer, sizes, replay, eager))
    losing = [size for size in sizes if size.net_ms is not None and size.net_ms < 0]
    if losing:
        layers.append(_losing(losing))
    top = float(np.nanmax(np.concatenate([replay, eager])))
    return Picture(
        layers=layers,
        x=size_label(answer.axis),
        y="step time in ms",
        x_range=size_range(answer.sizes, log=log),
        y_range=(0.0, top * 1.08 or 1.0),
        x_log=log,
    )


def _spread(sizes: list[SizeCost], *, log: bool) -> list[SizeCost]:
    """Return at most MOST_POINTS sizes, evenly over the axis."""
    if len(sizes) <= MOST_POINTS:
        return sizes
    requested = np.array([size.requested for size in sizes], np.float64)
    space = np.geomspace if log else np.linspace
    wanted = space(requested[0], requested[-1], MOST_POINTS)
    kept = np.unique(np.clip(np.searchsorted(requested, wanted), 0, len(sizes) - 1))
    return [sizes[index] for index in kept]


def _column(sizes: Sequence[SizeCost], value: Callable[[SizeCost], float | None]) -> Floats:
    found = (value(size) for size in sizes)
    return np.array([_NAN if one is None else one for one in found], np.float64)


def _stairs(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a line that is level around each size: a size replays one bucket or another."""
    middles = (x[1:] + x[:-1]) / 2
    edges = np.concatenate([[x[0] - 0.5], middles, [x[-1] + 0.5]])
    return np.repeat(edges, 2)[1:-1], np.repeat(y, 2)


def _line(x: Floats, y: Floats, label: str, color: str, dash: Dash) -> Line:
    data = dict(zip(("size", "ms"), _stairs(x, y), strict=True))
    return Line(data=data, at=("size", "ms"), color=color, label=label, dash=dash, width=2.5)


def _band(x: Floats, bare: Floats, replay: Floats) -> Band:
    along, low = _stairs(x, bare)
    data = {"size": along, "bare": low, "ms": _stairs(x, replay)[1]}
    at = ("size", "bare", "ms")
    return Band(data=data, at=at, color=palette.PADDING, label="padded rows", alpha=0.4)


def _points(
    answer: BucketAnswer, sizes: Sequence[SizeCost], replay: Floats, eager: Floats
) -> Points:
    """Return what the pointer finds: the exact figures, on the replay's line or else eager's."""
    told = {
        "steps": [
            wording.percent(size.steps) if answer.shares else f"{size.steps:,.0f}" for size in sizes
        ],
        "bucket": ["none, eager" if size.bucket is None else f"{size.bucket:,}" for size in sizes],
        "replay": [wording.measure(size.replay_ms, "ms") for size in sizes],
        "padding": [wording.measure(size.padded_ms, "ms") for size in sizes],
        "eager": [wording.measure(size.eager_ms, "ms") for size in sizes],
        "net": [wording.measure(size.net_ms, "ms") for size in sizes],
    }
    known = {name: told[name] for name in told if set(told[name]) != {wording.MISSING}}
    data = {
        "size": np.array([size.requested for size in sizes], np.int64),
        "ms": np.where(np.isnan(replay), eager, replay),
        "color": np.where(np.isnan(replay), palette.EAGER, palette.REPLAY),
        **known,
    }
    shown = {name: title for name, title in _HOVER.items() if name in data}
    return Points(data=data, at=("size", "ms"), color="color", told=shown, outlined=False)


def _losing(sizes: Sequence[SizeCost]) -> Points:
    data = {
        "size": [size.requested for size in sizes],
        "ms": [size.replay_ms for size in sizes],
        "net": [wording.measure(-(size.net_ms or 0.0), "ms") for size in sizes],
        "requested": [wording.count(size.requested) for size in sizes],
    }
    return Points(
        data=data,
        at=("size", "ms"),
        color=palette.EAGER,
        label="eager would win",
        told={"requested": "requested", "net": "eager would save"},
        marker="x",
        size=9,
        width=2,
    )
