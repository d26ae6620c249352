"""Pictures that are renewed in place."""

import pytest

pytest.importorskip("panel", reason='needs pip install "graphdiag[dashboard]"')

import numpy as np
from bokeh.models import Range1d
from bokeh.plotting import figure

from graphdiag.dashboard.renewing import Figure


def picture(heights, color="#112233", bars=1):
    shown = figure(
        x_range=Range1d(0, 3, reset_start=0, reset_end=3),
        y_range=Range1d(0, max(heights), reset_start=0, reset_end=max(heights)),
        title=f"most {max(heights)}",
    )
    for _ in range(bars):
        shown.vbar(x=np.arange(len(heights)), top=np.array(heights), color=color)
    return Figure(shown)


def data(shown):
    return shown.figure.renderers[0].data_source.data["top"].tolist()


def test_what_differs_is_changed_and_nothing_else():
    shown = picture([1, 2])
    assert shown.changes_to(picture([1, 2])) == []
    for heights in ([1, 5], [1, 2, 7]):
        changes = shown.changes_to(picture(heights))
        assert {change.name for change in changes} == {"data", "end", "reset_end", "text"}
        shown.apply(changes)
        assert data(shown) == heights
        assert shown.figure.y_range.end == max(heights)
        assert shown.figure.title.text == f"most {max(heights)}"
        assert shown.changes_to(picture(heights)) == []
    (change,) = {change.name for change in shown.changes_to(picture([1, 2, 7], "#445566"))} - {
        "line_color",
        "hatch_color",
    }
    assert change == "fill_color"


def test_where_a_reader_zoomed_to_stays():
    shown = picture([1, 2])
    shown.figure.y_range.end = 1.5
    shown.apply(shown.changes_to(picture([1, 9])))
    assert (shown.figure.y_range.end, shown.figure.y_range.reset_end) == (1.5, 9)


def test_a_picture_of_other_parts_is_put_in_its_place():
    assert picture([1, 2]).changes_to(picture([1, 2], bars=2)) is None
