import pytest

from graphdiag.plots import palette
from graphdiag.reporters import compare_html
from tests.browser.conftest import PHONE, count, pixels
from tests.plots import runs

COLORS = [
    (palette.SLOWER, palette.BASE, palette.CANDIDATE),
    (palette.BASE, palette.CANDIDATE),
    (palette.BASE, palette.CANDIDATE),
    (palette.EXACT, palette.PADDING, palette.FALLBACK[0]),
    (palette.BASE, palette.CANDIDATE),
    (palette.BASE, palette.CANDIDATE),
]


@pytest.fixture(scope="module")
def page(keep_open):
    return keep_open(compare_html.render(*runs.both(runs.service(late=False), runs.service())))


def test_it_loads_and_every_picture_is_drawn(page):
    page.keep("compare-light")
    assert page.complaints == []
    assert len(page.requests) == 1
    assert len(page.plots) == len(COLORS)
    for plot, wanted in zip(page.plots, COLORS, strict=True):
        image = pixels(plot)
        assert {color: count(image, color) > 10 for color in wanted} == dict.fromkeys(wanted, True)


def test_hover_tells_the_exact_figures(page):
    told = page.hover(page.plots[0], palette.SLOWER, top=110)
    assert "shapes" in told
    assert "+3.33" in told
    told = page.hover(page.plots[5], palette.CANDIDATE, top=60)
    assert "mean of the " in told


def test_a_phone_scrolls_only_down(page):
    page.tab.set_viewport_size(PHONE["viewport"])
    page.tab.wait_for_timeout(300)
    page.keep("compare-phone")
    widths = page.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths == [360, 360]
    assert page.complaints == []
