"""How every picture looks, and what stands where there is nothing to draw."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
from bokeh.models import (
    AllLabels,
    BasicTicker,
    DatetimeTicker,
    DatetimeTickFormatter,
    HoverTool,
    LogTicker,
    NoOverlap,
    NumeralTickFormatter,
    Ticker,
)

HEIGHT = 380
"""Height of a picture in CSS pixels; its width is the page's."""

_FONTS = {"labels": "13px", "xticks": "12px", "yticks": "12px", "legend": "12px"}
_CLOCK = DatetimeTickFormatter(
    microseconds="%H:%M:%S.%f",
    milliseconds="%H:%M:%S.%3N",
    seconds="%H:%M:%S",
    minsec="%H:%M:%S",
    minutes="%H:%M",
    hourmin="%H:%M",
    hours="%H:%M",
    days="%m-%d",
    months="%Y-%m",
    years="%Y",
    boundary_scaling=False,
).properties_with_values(include_defaults=False)


def framed(
    overlay: hv.Overlay,
    *,
    x: str,
    y: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_log: bool = False,
    y_log: bool = False,
    x_clock: bool = False,
    lanes: Sequence[str] = (),
    columns: int = 3,
) -> hv.Overlay:
    """Return ``overlay`` with its axes, which name their unit, a legend above and tools.

    No tool is active at first: a finger or a wheel on the picture scrolls the page.

    Parameters
    ----------
    overlay
        What is drawn.
    x, y
        Labels of the axes.
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
    options: dict[str, Any] = {"height": HEIGHT, "yformatter": _numbers()}
    if lanes:
        rows = 1 + max(label.count("\n") for label in lanes)
        options["height"] = 120 + (16 + 16 * rows) * len(lanes)
        options["yticks"] = [(-place, label) for place, label in enumerate(lanes)]
        del options["yformatter"]
    if x_clock:
        options |= {"xticks": DatetimeTicker(), "xformatter": DatetimeTickFormatter(**_CLOCK)}
    else:
        options["xticks"] = _powers_of_two() if x_log else BasicTicker(min_interval=_step(x_range))
        options["xformatter"] = _numbers()
    return overlay.opts(
        backend="bokeh",
        responsive=True,
        xlabel=plain(x),
        ylabel=plain(y),
        xlim=x_range,
        ylim=y_range,
        logx=x_log,
        logy=y_log,
        default_tools=["box_zoom", "wheel_zoom", "pan", "reset", "save"],
        active_tools=[],
        legend_position="top",
        legend_cols=columns,
        toolbar="above",
        show_grid=True,
        show_title=False,
        fontsize=_FONTS,
        hooks=[_dress_lanes if lanes else _dress],
        **options,
    )


def hover(**columns: str) -> dict[str, Any]:
    """Return the options that show columns under the pointer: ``steps="steps"`` labels them.

    Bokeh escapes what it shows, so that a value from a trace cannot be markup.
    """
    tooltips = [(label, f"@{{{column}}}") for column, label in columns.items()]
    return {"backend": "bokeh", "tools": ["hover"], "hover_tooltips": tooltips}


def empty(*sentences: str) -> hv.Div:
    """Return words in place of a picture: what was not recorded, and how to record it."""
    return hv.Div(f"<p>{html.escape(' '.join(sentences))}</p>")


def plain(text: str, limit: int = 60) -> str:
    """Return a word of a trace for an axis or a legend, which Bokeh would read TeX in."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in short)
    return shown.replace("$$", "$ $").replace("\\", "/")


def _numbers() -> NumeralTickFormatter:
    return NumeralTickFormatter(format="0,0[.][000]")


def _step(ends: tuple[float, float]) -> float:
    """Return the least distance of ticks: whole numbers, unless that leaves too few of them."""
    return 1 if ends[1] - ends[0] >= 5 else 0


def _powers_of_two() -> Ticker:
    return LogTicker(base=2, mantissas=[1], desired_num_ticks=12, num_minor_ticks=0)


def _dress(plot: Any, _: object) -> None:
    """Let the page's colour through, light or dark, and no label of a narrow page overlap."""
    figure = plot.state
    figure.background_fill_color = None
    figure.border_fill_color = None
    figure.outline_line_color = None
    figure.toolbar.logo = None
    figure.toolbar.autohide = True
    for tool in figure.select(type=HoverTool):
        tool.visible = False  # always on: a button for each kind of mark is clutter
    figure.xgrid.visible = False
    figure.ygrid.grid_line_alpha = 0.6
    for axis in figure.axis:
        axis.major_label_policy = NoOverlap(min_distance=6)
        axis.axis_label_text_font_style = "normal"
    for legend in figure.legend:
        legend.background_fill_alpha = 0
        legend.border_line_color = None
        legend.margin = legend.padding = 3
        legend.spacing = 6
        legend.glyph_height = legend.label_height = 16
        legend.glyph_width = 18
        legend.click_policy = "hide"


def _dress_lanes(plot: Any, element: object) -> None:
    """Dress a picture of rows: its grid goes up and down, and no row is without its label."""
    _dress(plot, element)
    figure = plot.state
    figure.xgrid.visible = True
    figure.xgrid.grid_line_alpha = 0.6
    figure.ygrid.visible = False
    figure.yaxis.major_label_policy = AllLabels()
    figure.yaxis.minor_tick_line_color = None
    figure.yaxis.major_tick_line_color = None
