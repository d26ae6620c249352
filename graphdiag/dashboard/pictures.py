"""The page's pictures, in its colours, and what a drag or a tap on them means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.events import SelectionGeometry, Tap
from bokeh.models.annotations import BoxAnnotation, Legend
from bokeh.models.tools import BoxSelectTool

from graphdiag.plots.figures import figure
from graphdiag.plots.picture import Picture, Words
from graphdiag.timerange import TimeRange

_NS_PER_MS = 1_000_000

LIGHT = {"ink": "#1b1f24", "muted": "#57606a", "line": "#d0d7de", "accent": "#0065a0"}
DARK = {"ink": "#e6e8eb", "muted": "#a3abb5", "line": "#3a424c", "accent": "#6cc0f0"}
_COLORS = {
    "axis_label_text_color": "ink",
    "axis_line_color": "muted",
    "grid_line_color": "line",
    "label_text_color": "ink",
    "major_label_text_color": "ink",
    "major_tick_line_color": "muted",
    "minor_tick_line_color": "line",
}
"""Properties of Bokeh's axes, grids and legends, and the colour each takes."""
_HEIGHT = 300
_OUTSIDE = "#808080"


def drawn(plot: Picture | Words, *, dark: bool) -> Any:
    """Return a picture as a figure in the page's colours; HTML where it is words."""
    if isinstance(plot, Words):
        return plot.html
    found = figure(plot)
    colors = DARK if dark else LIGHT
    for model in found.references():
        for name, color in _COLORS.items():
            if name in model.properties():
                setattr(model, name, colors[color])
    legends: list[Any] = list(found.select(type=Legend))
    for legend in legends:
        legend.ncols = min(legend.ncols, 2)  # no wider than a phone
        legend.margin = 0
    found.output_backend = "canvas"
    found.sizing_mode = "stretch_width"
    found.height = min(found.height or _HEIGHT, 2 * _HEIGHT)
    return found


def selectable(
    found: Any, chosen: TimeRange | None, on_select: Callable[[TimeRange], None]
) -> None:
    """Let a drag along the time axis select a window; shade what lies outside of ``chosen``."""
    tool = BoxSelectTool(dimensions="width", persistent=False)
    found.add_tools(tool)
    found.toolbar.active_drag = tool

    def selected(event: Any) -> None:
        start, end = (round(event.geometry[side] * _NS_PER_MS) for side in ("x0", "x1"))
        if event.final and end > start:
            on_select(TimeRange(start, end))

    found.on_event(SelectionGeometry, selected)
    start = 0.0 if chosen is None else chosen.start_ns / _NS_PER_MS
    end = 0.0 if chosen is None else chosen.end_ns / _NS_PER_MS
    for shade in (BoxAnnotation(right=start), BoxAnnotation(left=end)):
        shade.update(fill_color=_OUTSIDE, fill_alpha=0.35, visible=chosen is not None)
        found.add_layout(shade)


def tappable(found: Any, on_size: Callable[[int], None]) -> None:
    """Let a tap on an axis of sizes name one."""
    found.on_event(Tap, lambda event: on_size(round(event.x)))
