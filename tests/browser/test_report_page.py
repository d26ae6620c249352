import pytest

from graphdiag.plots import palette
from graphdiag.reporters import report_html
from tests.browser.conftest import PHONE, TOUCHED, count, pixels
from tests.plots import runs

COLORS = [
    (palette.REPLAY, palette.EAGER, palette.COMPILE),
    (palette.EXACT, palette.PADDING, palette.FALLBACK[0]),
    (palette.REPLAY, palette.PADDING, palette.EAGER, palette.NOW),
    (palette.REPLAY, palette.EAGER),
    (palette.ACHIEVABLE, palette.CASES["shapes"], palette.CASES["fallback"], palette.NOW),
    (palette.SERVED, palette.MEMORY),
    (palette.FRONTIER, palette.NOW),
    (palette.HOST, palette.BUSY, palette.BLOCKED),
    (palette.HOST, palette.BUSY),
]
FOCUSED = """() => {
  const box = document.activeElement.getBoundingClientRect();
  return [document.activeElement.tagName, box.top + scrollY];
}"""


@pytest.fixture(scope="module")
def made():
    return runs.all_of()


@pytest.fixture(scope="module")
def text(made):
    return report_html.render(*made)


@pytest.fixture(scope="module")
def page(keep_open, text):
    return keep_open(text)


def drawn(page) -> list[dict[str, bool]]:
    assert len(page.plots) == len(COLORS)
    found = []
    for plot, wanted in zip(page.plots, COLORS, strict=True):
        image = pixels(plot)
        found.append({color: count(image, color) > 10 for color in wanted})
    return found


def test_it_loads_without_a_network_and_without_a_complaint(page):
    assert page.complaints == []
    assert len(page.requests) == 1
    page.keep("report-light")


def test_every_picture_is_drawn_light_and_dark(page):
    wanted = [dict.fromkeys(colors, True) for colors in COLORS]
    assert drawn(page) == wanted
    page.tab.emulate_media(color_scheme="dark")
    page.tab.wait_for_timeout(300)
    assert drawn(page) == wanted
    words = pixels(page.plots[4])[:, :90]  # the labels of the ledger's rows
    assert words[2, 2].mean() < 40
    assert words.mean(axis=2).max() > 180
    page.keep("report-dark")
    page.tab.emulate_media(color_scheme="light")
    page.tab.wait_for_timeout(300)


def test_hover_tells_the_exact_figures(page):
    told = page.hover(page.plots[4], palette.CASES["shapes"])
    assert "3.33" in told
    assert "33.9 %" in told
    told = page.hover(page.plots[1], palette.FALLBACK[0])
    assert "fallback: over_max" in told
    assert "%)" in told
    told = page.hover(page.plots[5], palette.MEMORY)
    assert "MiB (" in told


def test_tab_goes_down_the_page_and_enter_copies_the_flag(page, made):
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.tab.mouse.click(5, 5)
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate(FOCUSED)[0] == "BUTTON"
    page.tab.keyboard.press("Enter")
    page.tab.get_by_text("Copied").wait_for(timeout=5000)
    assert (
        page.tab.evaluate("navigator.clipboard.readText()") == made[0].recommendation.flags["vllm"]
    )
    places = []
    for _ in range(8):
        places.append(page.tab.evaluate(FOCUSED)[1])
        page.tab.keyboard.press("Tab")
    assert places == sorted(places)
    assert len(set(places)) > 4


def test_paper_is_white_and_drawn_also_where_the_screen_is_dark(page):
    page.tab.emulate_media(color_scheme="dark")
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.tab.emulate_media(media="print", color_scheme="dark")
    image = pixels(page.plots[4])
    assert image[2, 2].mean() > 250
    assert image[:, :90].min() < 100
    assert count(image, palette.CASES["shapes"]) > 10
    assert page.tab.locator("button").first.is_hidden()
    page.tab.emulate_media(media="screen", color_scheme="light")
    page.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.complaints == []


def test_a_phone_scrolls_only_down(show, text):
    shown = show(text, **PHONE, color_scheme="dark")
    shown.keep("report-phone")
    widths = shown.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths == [360, 360]
    assert drawn(shown) == [dict.fromkeys(colors, True) for colors in COLORS]
    assert shown.tab.evaluate(TOUCHED) == []
    assert shown.complaints == []
