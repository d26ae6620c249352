"""Bars that lie in rows, each row with its label: what a waterfall and a comparison are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import holoviews as hv
import numpy as np

from graphdiag.plots import palette
from graphdiag.plots.style import hover

HALF = 0.32
"""Half of a bar's height; rows are 1 apart."""
_ROOM = 0.06


@dataclass(frozen=True)
class Bar:
    """A bar in a row.

    Attributes
    ----------
    row
        Its row: 0 is the top one.
    start, end
        From where to where it reaches.
    color
        Its colour; that of all bars of its label.
    told
        What is shown under the pointer, by label; the same labels in all bars of one layer.
    label
        Name in the legend; none where the rows' labels say it.
    low, high
        Its edges, as distances below and above the middle of its row.
    ci95
        Interval of where it ends.
    """

    row: int
    start: float
    end: float
    color: str
    told: dict[str, str]
    label: str = ""
    low: float = -HALF
    high: float = HALF
    ci95: tuple[float, float] | None = field(default=None)


def bars(found: Sequence[Bar]) -> list[hv.Element]:
    """Return bars as layers, one for each label, and their intervals over them."""
    kinds: dict[str, list[Bar]] = {}
    for bar in found:
        kinds.setdefault(bar.label, []).append(bar)
    layers: list[hv.Element] = []
    for label, mine in kinds.items():
        names = list(mine[0].told)
        data = {
            "x0": [min(bar.start, bar.end) for bar in mine],
            "y0": [-bar.row + bar.low for bar in mine],
            "x1": [max(bar.start, bar.end) for bar in mine],
            "y1": [-bar.row + bar.high for bar in mine],
            "color": [bar.color for bar in mine],
            **{
                f"told{place}": [bar.told[name] for bar in mine] for place, name in enumerate(names)
            },
        }
        columns = {f"told{place}": name for place, name in enumerate(names)}
        boxes = hv.Rectangles(data, ["x0", "y0", "x1", "y1"], ["color", *columns], label=label)
        color = mine[0].color if label else "color"  # what a legend names has one colour
        layers.append(boxes.opts(color=color, line_color=color, line_width=1, **hover(**columns)))
    whiskers = [bar for bar in found if bar.ci95 is not None]
    return [*layers, _whiskers(whiskers)] if whiskers else layers


def connectors(places: Sequence[tuple[int, float]]) -> hv.Segments:
    """Return the lines that carry an amount from each (row, x) down to the next row."""
    data = {
        "x0": [x for _, x in places],
        "y0": [-row - HALF for row, _ in places],
        "x1": [x for _, x in places],
        "y1": [-row - 1 + HALF for row, _ in places],
    }
    lines = hv.Segments(data, ["x0", "y0", "x1", "y1"])
    return lines.opts(color=palette.GREY, line_dash="dotted", backend="bokeh")


def reach(found: Sequence[Bar], *, zero: bool = True) -> tuple[float, float]:
    """Return the range of the axis along the bars, their intervals within it."""
    ends = [end for bar in found for end in (bar.start, bar.end, *(bar.ci95 or ()))]
    low, high = min(ends), max(ends)
    room = (high - low or 1.0) * _ROOM
    if zero:
        return (low - room if low < -room / 10 else 0.0), max(high, 0.0) + room
    return low - room, high + room


def height(rows: int) -> tuple[float, float]:
    """Return the range of the axis across the bars."""
    return -(rows - 1) - 0.6, 0.6


def _whiskers(found: Sequence[Bar]) -> hv.Segments:
    middles = np.array([-bar.row + (bar.low + bar.high) / 2 for bar in found])
    ends = np.array([bar.ci95 for bar in found], np.float64)
    data = {"x0": ends[:, 0], "y0": middles, "x1": ends[:, 1], "y1": middles}
    lines = hv.Segments(data, ["x0", "y0", "x1", "y1"], label="95 % interval")
    return lines.opts(color=palette.INTERVAL, line_width=3, backend="bokeh")
