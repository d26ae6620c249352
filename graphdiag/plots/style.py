"""How every picture looks, and what stands where there is nothing to draw."""

from __future__ import annotations

import html
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
from bokeh.models import BasicTicker, HoverTool, LogTicker, NoOverlap, NumeralTickFormatter, Ticker

HEIGHT = 380
"""Height of a picture in CSS pixels; its width is the page's."""

_FONTS = {"labels": "13px", "xticks": "12px", "yticks": "12px", "legend": "12px"}


def framed(
    overlay: hv.Overlay,
    *,
    x: str,
    y: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_log: bool = False,
) -> hv.Overlay:
    """Return ``overlay`` with its axes, which name their unit, a legend above and tools.

    No tool is active at first: a finger or a wheel on the picture scrolls the page.
    """
    return overlay.opts(
        backend="bokeh",
        responsive=True,
        height=HEIGHT,
        xlabel=plain(x),
        ylabel=plain(y),
        xlim=x_range,
        ylim=y_range,
        logx=x_log,
        default_tools=["box_zoom", "wheel_zoom", "pan", "reset", "save"],
        active_tools=[],
        legend_position="top",
        legend_cols=3,
        toolbar="above",
        show_grid=True,
        fontsize=_FONTS,
        xticks=_powers_of_two() if x_log else BasicTicker(min_interval=1),
        xformatter=NumeralTickFormatter(format="0,0"),
        yformatter=NumeralTickFormatter(format="0,0[.][000]"),
        hooks=[_dress],
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


def _powers_of_two() -> Ticker:
    return LogTicker(base=2, mantissas=[1], desired_num_ticks=12, num_minor_ticks=0)


def _dress(plot: Any, _: object) -> None:
    """Let the page's colour through, light or dark, and no label of a narrow page overlap."""
    figure = plot.state
    figure.background_fill_color = None
    figure.border_fill_color = None
    figure.outline_line_color = None
    figure.toolbar.logo = None
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
        legend.click_policy = "hide"
