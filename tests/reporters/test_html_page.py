import re
from html import unescape
from html.parser import HTMLParser

import pytest

from graphdiag.plots.picture import Picture, Points, Words, plain
from graphdiag.reporters.html import Figure, Flag, Page, Section, render
from graphdiag.reporters.tables import Sheet

HOSTILE = '<img src=x onerror="hit()">\'</script><script>hit()</script>&amp;'


def page(text: str = "plain", **more: object) -> Page:
    points = Points(
        data={"x": [1, 2], "y": [1, 2], "what": [text, text]},
        at=("x", "y"),
        color="#000000",
        told={"what": "what"},
    )
    plot = Picture(layers=[points], x="x", y="y", x_range=(0, 3), y_range=(0, 3))
    parts = {
        "title": text,
        "answer": text,
        "about": [text],
        "advice": [Section(text, [text, text], [Flag(text, text)])],
        "figures": [Figure(text, text, plot)],
        "sheets": [Sheet(text, (text, "n"), [(text, "1")], 1, (text,))],
        "notes": [Section(text, [text])],
        **more,
    }
    return Page(**parts)


class Elements(HTMLParser):
    """The tags and attributes of a page, and the text outside its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within not in ("script", "style"):
            self.text += data


def test_hostile_text_adds_no_element_and_no_attribute():
    harmless, hostile = Elements(render(page())), Elements(render(page(HOSTILE)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    names = [sorted(attributes) for _, attributes in hostile.tags]
    assert names == [sorted(attributes) for _, attributes in harmless.tags]
    assert hostile.text.count(HOSTILE) == 17  # each place of the page


def test_a_picture_s_data_cannot_end_its_script():
    items = re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', render(page(HOSTILE))
    )
    assert len(items) == 1
    assert not set("<>&'") & set(items[0])


def test_nothing_comes_from_a_network():
    for tag, attributes in Elements(render(page())).tags:
        assert tag not in ("link", "iframe", "object", "base")
        assert not {"src", "href", "srcset"} & attributes.keys()


def test_only_the_page_s_own_scripts_may_run():
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', render(page()))
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy[1]).split(";"))
    assert rules["default-src"] == "'none'"
    sources = rules["script-src"].split()
    assert sources
    assert all(source.startswith("'sha256-") for source in sources)


def test_a_megabyte_of_text_is_shown_short():
    endless = "x" * (1 << 20)
    notes = [Section("Notes", [endless] * 1000)]
    figures = [Figure(endless, endless, Words(plain(endless)))]
    text = render(page(endless, notes=notes, figures=figures))
    assert len(text) < 1 << 20
    assert "900 more are in --json." in text


def test_words_stand_where_there_is_no_picture():
    text = render(page(figures=[Figure("Cost", "How to read it.", Words("Record <times>."))]))
    assert "Record &lt;times&gt;." in text
    assert "How to read it." not in text
    assert len(text) < 20_000  # Bokeh's scripts are left out


@pytest.mark.parametrize("lines", [[], ["one"], ["one", "two"]])
def test_several_lines_are_a_list(lines):
    text = render(page(figures=[], advice=[Section("Do", lines)], notes=[], sheets=[]))
    assert text.count("<li>") == (len(lines) if len(lines) > 1 else 0)
