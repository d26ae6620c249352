"""How the axes and the legend of every picture look, whichever library lays the layers out."""

from __future__ import annotations

from math import floor, log10
from typing import Any

from bokeh.models.formatters import DatetimeTickFormatter, NumeralTickFormatter, TickFormatter
from bokeh.models.labeling import AllLabels, NoOverlap
from bokeh.models.tickers import BasicTicker, DatetimeTicker, FixedTicker, LogTicker, Ticker

from graphdiag.plots.picture import Picture, plain

FONT = "12px"
LABEL_FONT = "13px"
MOST_DIGITS = 12


def x_ticker(picture: Picture) -> Ticker:
    """Return what places the ticks along x."""
    if picture.x_clock:
        return DatetimeTicker()
    if picture.x_log:
        return LogTicker(base=2, mantissas=[1], desired_num_ticks=12, num_minor_ticks=0)
    low, high = picture.x_range
    # Whole numbers, unless that leaves too few of them.
    return BasicTicker(min_interval=1 if high - low >= 5 else 0)


def x_formatter(picture: Picture) -> TickFormatter:
    """Return what writes the ticks along x."""
    if picture.x_clock:
        return DatetimeTickFormatter(
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
        )
    return _numbers(picture.x_range, log=picture.x_log)


def y_ticker(picture: Picture) -> Ticker:
    """Return what places the ticks along y."""
    if picture.lanes:
        return FixedTicker(ticks=[-place for place in range(len(picture.lanes))])
    # A range may hold one power of ten, or none: 2 and 5 times it get a label too.
    return LogTicker(mantissas=[1, 2, 5]) if picture.y_log else BasicTicker()


def y_label(picture: Picture) -> str:
    """Return the label of y, which says where its scale is logarithmic."""
    return plain(f"{picture.y}, log scale" if picture.y_log else picture.y)


def y_formatter(picture: Picture) -> TickFormatter:
    """Return what writes the ticks along y."""
    return _numbers(picture.y_range, log=picture.y_log)


def lane_labels(picture: Picture) -> dict[float | str, Any]:
    """Return the label of each row by its place on y."""
    return {-place: label for place, label in enumerate(picture.lanes)}


def dress(figure: Any, picture: Picture) -> None:
    """Let the page's colour through, light or dark, and no label of a narrow page overlap.

    A picture of rows has its grid up and down, and no row is without its label.
    """
    across = bool(picture.lanes)
    figure.update(background_fill_color=None, border_fill_color=None, outline_line_color=None)
    figure.toolbar.update(logo=None, autohide=True)
    for grids, visible in ((figure.xgrid, across), (figure.ygrid, not across)):
        for grid in grids:
            grid.update(visible=visible, grid_line_alpha=0.6)
    for axis in figure.axis:
        axis.update(
            major_label_policy=NoOverlap(min_distance=6),
            axis_label_text_font_style="normal",
        )
    if across:
        for axis in figure.yaxis:
            axis.update(
                major_label_policy=AllLabels(),
                minor_tick_line_color=None,
                major_tick_line_color=None,
            )
    for legend in figure.legend:
        legend.update(
            background_fill_alpha=0,
            border_line_color=None,
            location="bottom_left",
            margin=6,
            padding=0,
            spacing=6,
            glyph_height=16,
            label_height=16,
            glyph_width=18,
            click_policy="hide",
        )


def _numbers(ends: tuple[float, float], *, log: bool) -> NumeralTickFormatter:
    """Return a format with the decimals that tell the ticks between ``ends`` apart."""
    finest = ends[0] if log else ends[1] - ends[0]
    digits = 2 - floor(log10(finest)) if finest > 0 else 3
    return NumeralTickFormatter(format=f"0,0[.][{'0' * min(max(digits, 3), MOST_DIGITS)}]")
