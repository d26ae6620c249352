import pytest

from graphdiag.buckets.planner import Wishes
from graphdiag.plots import palette
from graphdiag.reporters import buckets_html
from tests.browser.conftest import PHONE, TOUCHED, count, pixels
from tests.plots import answers

COLORS = [
    (palette.REPLAY, palette.PADDING, palette.NOW, palette.RECOMMENDED),
    (palette.PADDING, palette.NOW),
    (palette.FRONTIER, palette.NOW, palette.RECOMMENDED, palette.WHAT_IF),
]
TIMED = [
    (palette.REPLAY, palette.PADDING),
    (palette.PADDING,),
    (palette.FRONTIER, palette.NOW),
    (palette.REPLAY, palette.EAGER),
]


@pytest.fixture(scope="module")
def answer():
    return answers.practice(Wishes(what_if=(8, 32)))


@pytest.fixture(scope="module")
def text(answer):
    return buckets_html.render(answer)


@pytest.fixture(scope="module")
def timed():
    return buckets_html.render(answers.timed())


def test_it_loads_without_a_network_and_without_a_complaint(show, text):
    shown = show(text)
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith("file://")] == []
    assert len(shown.requests) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("page", "colors"), [("text", COLORS), ("timed", TIMED)])
def test_every_picture_is_drawn(show, request, page, colors, scheme):
    shown = show(request.getfixturevalue(page), color_scheme=scheme)
    shown.keep(f"buckets-{page}-{scheme}")
    assert len(shown.plots) == len(colors)
    for plot, wanted in zip(shown.plots, colors, strict=True):
        image = pixels(plot)
        assert {color: count(image, color) > 20 for color in wanted} == dict.fromkeys(wanted, True)


def ink(image):
    """Return the colour of a picture's ground and how dark its darkest strokes are."""
    ground = image[2, 2]
    below = image[-30:]  # the axis label
    return ground.mean(), below.mean(axis=2)


def test_words_in_a_picture_follow_light_and_dark(show, text):
    shown = show(text)
    ground, below = ink(pixels(shown.plots[0]))
    assert ground > 250
    assert below.min() < 100
    shown.tab.emulate_media(color_scheme="dark")
    shown.tab.wait_for_timeout(500)
    ground, below = ink(pixels(shown.plots[0]))
    assert ground < 40
    assert below.max() > 180


def test_paper_is_white_also_where_the_screen_is_dark(show, text):
    shown = show(text, color_scheme="dark")
    shown.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown.tab.emulate_media(media="print", color_scheme="dark")
    ground, below = ink(pixels(shown.plots[0]))
    assert ground > 250
    assert below.min() < 100
    shown.tab.emulate_media(media="screen", color_scheme="dark")
    shown.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    shown.tab.wait_for_timeout(300)
    ground, below = ink(pixels(shown.plots[0]))
    assert ground < 40
    assert below.max() > 180


def test_hover_tells_the_exact_figures(show, text):
    shown = show(text)
    told = shown.hover(shown.plots[1], palette.PADDING)
    # Nine is the most padded size of the practice distribution.
    figures = dict(line.split(":\t") for line in told.splitlines())
    assert figures == {
        "requested": "9",
        "steps": "3.6 %",
        "bucket": "16",
        "padding": "77.8 % of requested",
        "of all padding": "9.1 %",
    }


def test_hover_on_the_frontier_tells_the_set(show, text):
    shown = show(text)
    told = shown.hover(shown.plots[2], palette.WHAT_IF, top=110)
    assert "what if" in told
    assert "graphs" in told


@pytest.mark.parametrize("clipboard", [True, False])
def test_copy_takes_the_whole_flag(show, text, answer, clipboard):
    shown = show(text)
    shown.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not clipboard:
        shown.tab.evaluate("delete Navigator.prototype.clipboard")
    button = shown.tab.locator("button.copy").first
    button.focus()
    shown.tab.keyboard.press("Enter")
    button.get_by_text("Copied").wait_for(timeout=5000)
    field = shown.tab.evaluate_handle(
        "document.body.appendChild(document.createElement('textarea'))"
    )
    field.as_element().focus()
    shown.tab.keyboard.press("Control+V")
    assert field.evaluate("field => field.value") == answer.flags["vllm"]


def test_a_phone_scrolls_only_down(show, text):
    shown = show(text, **PHONE)
    shown.keep("buckets-phone")
    widths = shown.tab.evaluate("[document.documentElement.scrollWidth, screen.width]")
    assert widths == [360, 360]
    for plot, wanted in zip(shown.plots, COLORS, strict=True):
        box = plot.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert all(count(pixels(plot), color) > 10 for color in wanted)
    # A finger on a picture scrolls the page: nothing in it takes touches for itself.
    assert shown.tab.evaluate(TOUCHED) == []


def test_every_control_is_reached_by_tab(show, text):
    shown = show(text)
    reached = set()
    for _ in range(12):
        shown.tab.keyboard.press("Tab")
        reached.add(shown.tab.evaluate("document.activeElement.tagName"))
    assert {"BUTTON", "PRE"} <= reached
