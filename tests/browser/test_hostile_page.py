"""Strings of a trace are shown and never run, wherever on a page they stand."""

import pytest
from msgspec.structs import replace

from graphdiag.plots import palette
from graphdiag.plots.picture import Boxes, Picture
from graphdiag.reporters import buckets_html, compare_html, report_html
from graphdiag.reporters.html import Figure, Flag, Page, Section, render
from graphdiag.reporters.tables import Sheet
from tests.build import event
from tests.plots import answers, runs

HOSTILE = [
    "<img src=x onerror=\"document.title='hit'\">",
    "</script><script>document.title='hit'</script>",
    "'\"><svg onload=\"document.title='hit'\">",
    "<!--<script>document.title='hit'",
    r"$$\href{javascript:document.title='hit'}{x}$$",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "@what{safe} @{what} ${document.title='hit'} {{ 7*7 }}",
]


def was_hit(shown) -> bool:
    return "hit" in shown.tab.evaluate("document.title").replace("document.title='hit'", "")


def page(text: str) -> Page:
    bars = Boxes(
        data={"x0": [0], "y0": [0], "x1": [1], "y1": [1], "what": [text]},
        at=("x0", "y0", "x1", "y1"),
        color=palette.PADDING,
        label="bars",
        told={"what": "what"},
    )
    plot = Picture(layers=[bars], x=text, y=text, x_range=(0, 1), y_range=(0, 1))
    return Page(
        title="graphdiag",
        answer=text,
        about=[text],
        advice=[Section(text, [text, text], [Flag(text, text)])],
        figures=[Figure(text, text, plot)],
        sheets=[Sheet(text, (text,), [(text,)], 1, (text,))],
        notes=[Section(text, [text])],
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_shown_and_not_run(show, text):
    shown = show(render(page(text)))
    shown.tab.wait_for_timeout(200)
    assert shown.complaints == []
    assert len(shown.requests) == 1
    assert not was_hit(shown)
    assert shown.tab.locator("h1").inner_text() == text
    assert shown.tab.locator("td").inner_text() == text
    assert shown.tab.locator("pre").inner_text() == text
    assert text in shown.hover(shown.plots[0], palette.PADDING)
    assert shown.complaints == []
    assert not was_hit(shown)


def test_a_trace_s_words_in_the_bucket_page(show):
    text = HOSTILE[1]
    answer = replace(
        answers.practice(),
        source=text,
        axis=text,
        phase=text,
        engine_version=text,
        sentence=text * 20_000,
        notes=[text, "x" * (1 << 20)],
        not_identifiable=[text],
    )
    page = buckets_html.render(answer)
    assert len(page) < 5 << 20
    shown = show(page)
    assert shown.complaints == []
    assert not was_hit(shown)
    assert shown.tab.locator("h1").inner_text().startswith(text)
    assert text in shown.tab.locator(".about").first.inner_text()
    assert len(shown.plots) == 3


def test_a_script_that_got_in_would_not_run(show):
    text = buckets_html.render(answers.practice())
    injected = "<script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"
    shown = show(text.replace("<main>", f"<main>{injected}"))
    assert not was_hit(shown)
    assert any("Content Security Policy" in words for words in shown.complaints)


def hostile_rows() -> runs.Rows:
    """A service whose every free word is hostile, and one of them a megabyte long."""
    rows = [
        row | {"artifact": f"{HOSTILE[place % len(HOSTILE)]}{row['artifact']}"}
        for place, row in enumerate(runs.service(150, late=False))
        if row.get("artifact")
    ]
    for place, row in enumerate(rows):
        if row["event"] == "step":
            row["phase"] = HOSTILE[1]
            row["reason"] = HOSTILE[place % 3] if place % 2 else None
            row["outcome"] = "fallback" if place % 2 else row["outcome"]
    told = {
        "engine": HOSTILE[0],
        "engine_version": HOSTILE[2],
        "mode": HOSTILE[4],
        HOSTILE[1]: HOSTILE[3],
        "capture_sizes": [8, 16, 32],
        "notes": [*HOSTILE, "x" * (1 << 20)],
        "damage": [HOSTILE[5]],
    }
    return [event("run", -5000.0, config=told), *rows]


def test_a_trace_s_words_in_the_pages_of_report_and_compare(show):
    rows = hostile_rows()
    report = report_html.render(*runs.all_of(rows))
    compare = compare_html.render(*runs.both(rows, runs.service(60)))
    for text in (report, compare):
        assert len(text) < 5 << 20
        shown = show(text)
        assert shown.complaints == []
        assert len(shown.requests) == 1
        assert not was_hit(shown)
        assert HOSTILE[0] in shown.tab.locator(".about").first.inner_text()
        for plot in shown.plots[1:6:2]:
            plot.hover()
        assert not was_hit(shown)
        widths = shown.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] == widths[1]
    assert HOSTILE[3] in shown.tab.locator("table").first.inner_text()
