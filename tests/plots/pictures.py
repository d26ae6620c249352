"""What a test reads off a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import holoviews as hv


def layer(overlay: hv.Overlay, kind: type, label: str = "") -> hv.Element:
    """The one layer of a kind with that label."""
    found = [one for one in overlay if isinstance(one, kind) and one.label == label]
    assert len(found) == 1, [(type(one).__name__, one.label) for one in overlay]
    return found[0]


def rows(element: hv.Element) -> list[dict[str, Any]]:
    """The marks of a layer."""
    return element.dframe().to_dict("records")


@dataclass
class Axes:
    """Labels of a picture's axes and legend, and of its lanes from top to bottom."""

    x: str
    y: str
    labels: list[str]
    lanes: list[str]


def axes(overlay: hv.Overlay) -> Axes:
    """Draw a picture and return what its axes say."""
    figure = hv.render(overlay, backend="bokeh")
    legends = [item.label.value for legend in figure.legend for item in legend.items]
    lanes = figure.yaxis[0].major_label_overrides
    return Axes(
        figure.xaxis[0].axis_label,
        figure.yaxis[0].axis_label,
        legends,
        [lanes[place] for place in sorted(lanes, reverse=True)],
    )
