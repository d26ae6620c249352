"""Pictures as HoloViews objects, for a notebook."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh
from bokeh.models.tools import HoverTool

from graphdiag.plots import style
from graphdiag.plots.picture import (
    Band,
    Boxes,
    Layer,
    Line,
    Picture,
    Points,
    Segments,
    Words,
    plain,
)

_KINDS = {
    Line: hv.Curve,
    Band: hv.Area,
    Points: hv.Scatter,
    Boxes: hv.Rectangles,
    Segments: hv.Segments,
}


def element(picture: Picture | Words) -> hv.Overlay | hv.Div:
    """Return a picture as an overlay that Bokeh draws, or words as a ``Div``.

    No tool is active at first: a finger or a wheel on the picture scrolls the page.
    """
    if isinstance(picture, Words):
        return hv.Div(picture.html)
    options: dict[str, Any] = {"yformatter": style.y_formatter(picture)}
    if picture.lanes:
        options = {"yticks": list(style.lane_labels(picture).items())}
    return hv.Overlay([_element(layer) for layer in picture.layers]).opts(
        backend="bokeh",
        responsive=True,
        height=picture.height,
        xlabel=plain(picture.x),
        ylabel=style.y_label(picture),
        xlim=picture.x_range,
        ylim=picture.y_range,
        logx=picture.x_log,
        logy=picture.y_log,
        xticks=style.x_ticker(picture),
        xformatter=style.x_formatter(picture),
        default_tools=["box_zoom", "wheel_zoom", "pan", "reset", "save"],
        active_tools=[],
        legend_position="top",
        legend_cols=picture.columns,
        toolbar="above",
        show_grid=True,
        show_title=False,
        fontsize={
            "labels": style.LABEL_FONT,
            "xticks": style.FONT,
            "yticks": style.FONT,
            "legend": style.FONT,
        },
        hooks=[lambda plot, _: _dress(plot.state, picture)],
        **options,
    )


def _element(layer: Layer) -> hv.Element:
    is_box = isinstance(layer, Boxes | Segments)
    dimensions = 4 if is_box else 1
    places, values = layer.at[:dimensions], layer.at[dimensions:]
    more = [name for name in layer.data if name not in layer.at]
    if isinstance(layer, Line | Band):
        more = []
    made = _KINDS[type(layer)](layer.data, [*places], [*values, *more], label=layer.label)
    options: dict[str, Any] = {"color": layer.color}
    match layer:
        case Line():
            options |= {"line_dash": layer.dash, "line_width": layer.width}
        case Band():
            options |= {"alpha": layer.alpha, "line_width": 0}
        case Points():
            options |= {"marker": layer.marker, "size": layer.size, "line_width": layer.width}
            options["line_color"] = layer.color if layer.outlined else None
        case Boxes():
            options |= {"alpha": layer.alpha, "line_width": layer.width}
            options["line_color"] = layer.outline
        case Segments():
            options |= {"line_dash": layer.dash, "line_width": layer.width, "alpha": layer.alpha}
    if layer.told:
        tooltips = [(title, f"@{{{column}}}") for column, title in layer.told.items()]
        options |= {"tools": ["hover"], "hover_tooltips": tooltips}
    return made.opts(backend="bokeh", **options)


def _dress(figure: Any, picture: Picture) -> None:
    style.dress(figure, picture)
    for tool in figure.select(type=HoverTool):
        tool.visible = False
