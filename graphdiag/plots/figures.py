"""Pictures as Bokeh figures, for a page.

Made of Bokeh's own models and no more than a page needs: a figure per picture through HoloViews
takes many times as long, and importing it as long again.
"""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import field, value
from bokeh.models.annotations import Legend, LegendItem
from bokeh.models.axes import LinearAxis, LogAxis
from bokeh.models.glyphs import Line, Quad, Scatter, Segment, VArea
from bokeh.models.grids import Grid
from bokeh.models.plots import Plot
from bokeh.models.ranges import Range1d
from bokeh.models.renderers import GlyphRenderer
from bokeh.models.scales import LinearScale, LogScale
from bokeh.models.sources import ColumnDataSource
from bokeh.models.tools import (
    BoxZoomTool,
    HoverTool,
    PanTool,
    ResetTool,
    SaveTool,
    Toolbar,
    WheelZoomTool,
)

from graphdiag.plots import picture as marks
from graphdiag.plots import style
from graphdiag.plots.picture import Layer, Picture


def figure(picture: Picture) -> Plot:
    """Return a picture as a figure that is as wide as what it stands in.

    No tool is active at first: a finger or a wheel on the picture scrolls the page.
    """
    plot = Plot(
        height=picture.height,
        width=None,
        sizing_mode="stretch_width",
        x_range=_range(picture.x_range),
        y_range=_range(picture.y_range),
        x_scale=LogScale() if picture.x_log else LinearScale(),
        y_scale=LogScale() if picture.y_log else LinearScale(),
        toolbar=Toolbar(active_drag=None),
        toolbar_location="above",
        min_border=10,
    )
    _lay_axes(plot, picture)
    renderers = [_renderer(layer) for layer in picture.layers]
    plot.renderers = [*renderers]
    plot.toolbar.tools = [
        WheelZoomTool(zoom_together="none"),
        *_hovers(picture, renderers),
        SaveTool(),
        PanTool(),
        BoxZoomTool(),
        ResetTool(),
    ]
    items: dict[str, list[GlyphRenderer[Any]]] = {}
    for layer, renderer in zip(picture.layers, renderers, strict=True):
        if layer.label:
            items.setdefault(layer.label, []).append(renderer)
    if items:
        legend = Legend(
            items=[LegendItem(label=value(name), renderers=those) for name, those in items.items()],
            ncols=picture.columns,
            label_text_font_size=style.FONT,
        )
        plot.add_layout(legend, "above")
    style.dress(plot, picture)
    return plot


def _range(ends: tuple[float, float]) -> Range1d:
    return Range1d(start=ends[0], end=ends[1], reset_start=ends[0], reset_end=ends[1])


def _lay_axes(plot: Plot, picture: Picture) -> None:
    alike: dict[str, Any] = {
        "axis_label_text_font_size": style.LABEL_FONT,
        "major_label_text_font_size": style.FONT,
    }
    along: dict[str, Any] = {
        "axis_label": marks.plain(picture.x),
        "ticker": style.x_ticker(picture),
        "formatter": style.x_formatter(picture),
    }
    up: dict[str, Any] = {
        "axis_label": style.y_label(picture),
        "ticker": style.y_ticker(picture),
        "formatter": style.y_formatter(picture),
        "major_label_overrides": style.lane_labels(picture),
    }
    x = (LogAxis if picture.x_log else LinearAxis)(**along, **alike)
    y = (LogAxis if picture.y_log else LinearAxis)(**up, **alike)
    plot.add_layout(x, "below")
    plot.add_layout(y, "left")
    plot.center = [Grid(axis=x, dimension=0), Grid(axis=y, dimension=1)]


def _renderer(layer: Layer) -> GlyphRenderer[Any]:
    return GlyphRenderer(
        name=layer.label, data_source=ColumnDataSource(data=layer.data), glyph=_glyph(layer)
    )


def _glyph(layer: Layer) -> Any:
    at = [field(name) for name in layer.at]
    color = _color(layer, layer.color)
    match layer:
        case marks.Line():
            x, y = at
            return Line(x=x, y=y, line_color=color, line_dash=layer.dash, line_width=layer.width)
        case marks.Band():
            x, low, high = at
            return VArea(x=x, y1=low, y2=high, fill_color=color, fill_alpha=layer.alpha)
        case marks.Points():
            x, y = at
            return Scatter(
                x=x,
                y=y,
                marker=layer.marker,
                size=layer.size,
                fill_color=color,
                line_color=color if layer.outlined else None,
                line_width=layer.width,
            )
        case marks.Boxes():
            left, bottom, right, top = at
            return Quad(
                left=left,
                bottom=bottom,
                right=right,
                top=top,
                fill_color=color,
                fill_alpha=layer.alpha,
                line_color=None if layer.outline is None else _color(layer, layer.outline),
                line_width=layer.width,
            )
        case marks.Segments():
            x0, y0, x1, y1 = at
            return Segment(
                x0=x0,
                y0=y0,
                x1=x1,
                y1=y1,
                line_color=color,
                line_dash=layer.dash,
                line_width=layer.width,
                line_alpha=layer.alpha,
            )
    raise TypeError(f"no such layer: {type(layer).__name__}")


def _color(layer: Layer, color: str) -> Any:
    return field(color) if color in layer.data else color


def _hovers(picture: Picture, renderers: list[GlyphRenderer[Any]]) -> list[HoverTool]:
    """Return what shows the figures under the pointer: one for all layers that tell alike.

    It is always on: a button for each kind of mark would be clutter.
    """
    alike: dict[tuple[tuple[str, str], ...], list[GlyphRenderer[Any]]] = {}
    for layer, renderer in zip(picture.layers, renderers, strict=True):
        if layer.told:
            alike.setdefault(tuple(layer.told.items()), []).append(renderer)
    return [
        HoverTool(
            tooltips=[(title, f"@{{{column}}}") for column, title in told],
            renderers=[*those],
            visible=False,
        )
        for told, those in alike.items()
    ]
