"""A page's figure and a notebook's object of one picture show the same."""

from typing import Any

import holoviews as hv
import pytest
from bokeh.core.property.vectorization import Field
from bokeh.models import HoverTool

from graphdiag.plots import pictures, style
from graphdiag.plots.elements import element
from graphdiag.plots.figures import figure
from graphdiag.plots.picture import Picture, Words
from tests.plots import answers, runs


@pytest.fixture(scope="module")
def several() -> dict[str, Picture | Words]:
    """Pictures with every kind of layer and of axis."""
    report, summary, _ = runs.all_of()
    found, _, _ = runs.both(runs.service(late=False), runs.service())
    plan = answers.timed()
    return {
        "step_times": pictures.step_times(summary),
        "sizes_served": pictures.sizes_served(report),
        "artifacts_served": pictures.artifacts_served(report),
        "cost_by_size": pictures.cost_by_size(plan),
        "frontier": pictures.frontier(plan),
        "change_terms": pictures.change_terms(found),
        "sizes_of_both": pictures.sizes_of_both(found),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("step_times", "sizes_served", "artifacts_served", "cost_by_size"),
        *("frontier", "change_terms", "sizes_of_both"),
    ],
)
def test_a_page_and_a_notebook_show_the_same(several, name):
    page, notebook = figure(several[name]), hv.render(element(several[name]), backend="bokeh")
    assert page.height == notebook.height
    assert _axes(page) == _axes(notebook)
    assert _marks(page) == _marks(notebook)
    assert _legend(page) == _legend(notebook)
    assert _told(page) == _told(notebook)


def _axes(plot: Any) -> list[Any]:
    found: list[Any] = [
        *((one.start, one.end) for one in (plot.x_range, plot.y_range)),
        *(type(one).__name__ for one in (plot.x_scale, plot.y_scale)),
    ]
    for axis in plot.axis:
        formatter = getattr(axis.formatter, "format", None)
        found += [type(axis).__name__, axis.axis_label, axis.major_label_overrides]
        found += [type(axis.ticker).__name__, type(axis.major_label_policy).__name__]
        found += [] if axis.major_label_overrides else [formatter]
    return found


def _marks(plot: Any) -> list[Any]:
    """Kind, colours and number of what each layer draws; an area has twice the points."""
    found = []
    for renderer in plot.renderers:
        glyph, columns = renderer.glyph, renderer.data_source.data
        kind = type(glyph).__name__.replace("Patch", "VArea")
        color = getattr(glyph, "fill_color", None) or glyph.line_color
        colors = {*columns[color.field]} if isinstance(color, Field) else {color}
        number = len(next(iter(columns.values())))
        found.append((kind, colors, None if kind == "VArea" else number))
    return found


def _legend(plot: Any) -> list[Any]:
    return [
        (item.label.value, len(item.renderers)) for legend in plot.legend for item in legend.items
    ]


def _told(plot: Any) -> list[Any]:
    tools = [tool for tool in plot.toolbar.tools if isinstance(tool, HoverTool)]
    return sorted((len(tool.renderers), tool.tooltips) for tool in tools)


@pytest.mark.parametrize(
    ("ends", "log", "decimals"),
    [((0, 9.8), False, 3), ((0, 0.0004), False, 6), ((0.00002, 30), True, 7), ((0, 0), False, 3)],
)
def test_ticks_have_the_decimals_that_tell_them_apart(ends, log, decimals):
    picture = Picture(layers=[], x="x", y="y", x_range=(0, 1), y_range=ends, y_log=log)
    assert style.y_formatter(picture).format == f"0,0[.][{'0' * decimals}]"


def test_words_are_escaped():
    assert Words("<b> & more").html == "<p>&lt;b&gt; &amp; more</p>"
