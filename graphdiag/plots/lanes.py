"""Bars that lie in rows, each row with its label: what a waterfall and a comparison are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphdiag.plots import palette
from graphdiag.plots.picture import Boxes, Layer, Picture, Segments

HALF = 0.32
"""Half of a bar's height; rows are 1 apart."""
_ROOM = 0.06
_BOX = ("x0", "y0", "x1", "y1")


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


def in_rows(
    found: Sequence[Bar],
    labels: Sequence[str],
    *,
    x: str,
    x_range: tuple[float, float] | None = None,
    under: Sequence[Layer] = (),
    columns: int = 3,
) -> Picture:
    """Return bars in rows as a picture, as long as they are where ``x_range`` does not say.

    ``labels`` are the rows', from top to bottom; ``under`` lies under the bars.
    """
    return Picture(
        layers=[*under, *_bars(found)],
        x=x,
        y="",
        x_range=reach(found) if x_range is None else x_range,
        y_range=(-(len(labels) - 1) - 0.6, 0.6),
        lanes=labels,
        columns=columns,
    )


def _bars(found: Sequence[Bar]) -> list[Layer]:
    """Return bars as layers, one for each label, and their intervals over them."""
    kinds: dict[str, list[Bar]] = {}
    for bar in found:
        kinds.setdefault(bar.label, []).append(bar)
    layers: list[Layer] = []
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
        color = mine[0].color if label else "color"  # what a legend names has one colour
        columns = {f"told{place}": name for place, name in enumerate(names)}
        layers.append(
            Boxes(data=data, at=_BOX, color=color, label=label, told=columns, outline=color)
        )
    whiskers = [bar for bar in found if bar.ci95 is not None]
    return [*layers, _whiskers(whiskers)] if whiskers else layers


def connectors(places: Sequence[tuple[int, float]]) -> Segments:
    """Return the lines that carry an amount from each (row, x) down to the next row."""
    data = {
        "x0": [x for _, x in places],
        "y0": [-row - HALF for row, _ in places],
        "x1": [x for _, x in places],
        "y1": [-row - 1 + HALF for row, _ in places],
    }
    return Segments(data=data, at=_BOX, color=palette.GREY, dash="dotted")


def reach(found: Sequence[Bar], *, zero: bool = True) -> tuple[float, float]:
    """Return the range of the axis along the bars, their intervals within it."""
    ends = [end for bar in found for end in (bar.start, bar.end, *(bar.ci95 or ()))]
    low, high = min(ends), max(ends)
    room = (high - low or 1.0) * _ROOM
    if zero:
        return (low - room if low < -room / 10 else 0.0), max(high, 0.0) + room
    return low - room, high + room


def _whiskers(found: Sequence[Bar]) -> Segments:
    middles = np.array([-bar.row + (bar.low + bar.high) / 2 for bar in found])
    ends = np.array([bar.ci95 for bar in found], np.float64)
    data = {"x0": ends[:, 0], "y0": middles, "x1": ends[:, 1], "y1": middles}
    return Segments(data=data, at=_BOX, color=palette.INTERVAL, label="95 % interval", width=3)
