"""What a picture is: layers of marks over two axes, before a library draws them.

A plain description, which :mod:`graphdiag.plots.figures` makes a Bokeh figure of for a page, and
:mod:`graphdiag.plots.elements` a HoloViews object for a notebook.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Dash = Literal["solid", "dashed", "dotted", "dotdash"]
HEIGHT = 380
"""Height of a picture in CSS pixels; its width is the page's."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Marks of one kind.

    Attributes
    ----------
    data
        Columns of one length: where the marks are, and what the pointer tells of each.
    at
        The columns that say where.
    color
        Colour of all, or the column that holds each one's.
    label
        Name in the legend, which layers of one label share; none for marks that need none.
    told
        What the pointer shows: the title of each column. Bokeh escapes what it shows, so that a
        value from a trace cannot be markup.
    """

    data: Mapping[str, Any]
    at: tuple[str, ...]
    color: str
    label: str = ""
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Line(Layer):
    """A line through points at (x, y), broken where y is NaN."""

    dash: Dash = "solid"
    width: float = 2


@dataclass(frozen=True, kw_only=True)
class Band(Layer):
    """An area at (x, low, high)."""

    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Points(Layer):
    """Markers at (x, y) of ``size`` CSS pixels."""

    marker: str = "circle"
    size: float = 4
    outlined: bool = True
    width: float = 1


@dataclass(frozen=True, kw_only=True)
class Boxes(Layer):
    """Rectangles at (left, bottom, right, top); ``outline`` is a colour or a column of them."""

    alpha: float = 1.0
    outline: str | None = None
    width: float = 1


@dataclass(frozen=True, kw_only=True)
class Segments(Layer):
    """Straight lines at (x0, y0, x1, y1)."""

    dash: Dash = "solid"
    width: float = 1
    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Layers over two axes.

    Attributes
    ----------
    layers
        What is drawn, the last on top.
    x, y
        Labels of the axes, which name their unit.
    x_range, y_range
        From where to where they go at first.
    x_log, y_log
        Whether they are logarithmic.
    x_clock
        Whether x is wall clock, in ms since 1970.
    lanes
        Labels of rows from top to bottom, in place of numbers on y: the first is at 0, the next at
        -1 and so on. The picture is as high as they need. A word of a trace in one is made
        :func:`plain` before.
    columns
        Columns of the legend.
    """

    layers: Sequence[Layer]
    x: str
    y: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_log: bool = False
    y_log: bool = False
    x_clock: bool = False
    lanes: Sequence[str] = ()
    columns: int = 3

    @property
    def height(self) -> int:
        """Height in CSS pixels."""
        if not self.lanes:
            return HEIGHT
        lines = 1 + max(label.count("\n") for label in self.lanes)
        return 120 + (16 + 16 * lines) * len(self.lanes)


@dataclass(frozen=True)
class Words:
    """What stands in place of a picture: what was not recorded, and how to record it."""

    text: str

    @property
    def html(self) -> str:
        """The words as a paragraph."""
        return f"<p>{html.escape(self.text)}</p>"


def plain(text: str, limit: int = 60) -> str:
    """Return a word of a trace for an axis or a legend, which Bokeh would read TeX in."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in short)
    return shown.replace("$$", "$ $").replace("\\", "/")
