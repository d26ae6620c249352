from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from sample_reports import GOLDEN, NAMES, hostile, read

from graphdiag.reporters import format as fmt
from graphdiag.reporters import markdown

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LINK_STOP = "<!-- -->"


def _flat(tokens: list[Token]) -> list[Token]:
    return [part for token in tokens for part in (token, *_flat(token.children or []))]


def _shown(tokens: list[Token]) -> str:
    """The text a reader sees."""
    return "".join(
        token.content for token in _flat(tokens) if token.type in ("text", "code_inline")
    )


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_markdown(name: str) -> None:
    assert markdown.render(read(name)) == (GOLDEN / f"{name}.md").read_text(encoding="utf-8")


def test_has_verdict_cases_evidence_and_the_flag_in_a_code_block() -> None:
    lines = markdown.render(read("padding")).splitlines()
    assert lines[0] == "### graphdiag report"
    assert lines[2].startswith("**Verdict:** Case 4, padding outweighs what replay saves: ")
    assert (
        "| 3 fallback | fallback rate 0.01 % of the 12,000 steady steps that graphs should have "
        "served | "
        r"costs \< 0.001 ms/step (95 % interval 0 to 0.001) |"
    ) in lines
    flag = lines.index("--cuda-graph-bs-decode 1 4 8 9 10 16 24 32")
    assert (lines[flag - 1], lines[flag + 1]) == ("```text", "```")


def test_a_damaged_source_is_said_under_its_name() -> None:
    cut = "The trace is not whole: the file is cut short (it has no end)."
    report = msgspec.structs.replace(read("padding"), notes=[cut], damage=[cut])
    lines = markdown.render(report).splitlines()
    assert lines[4].startswith("Source: ")
    assert lines[6] == f"**Note**: {cut}"
    assert "#### Notes" not in lines


def test_what_is_not_known_is_not_called_free() -> None:
    cases = [msgspec.structs.replace(case, evidence=[]) for case in read("padding").cases]
    quiet = [msgspec.structs.replace(c, ms_per_step=0.0, share=0.0, advice=[]) for c in cases]
    shown = markdown.render(msgspec.structs.replace(read("empty"), cases=quiet))
    metric = "fallback rate not identifiable: no step is known to be one that graphs should have"
    assert f"| 3 fallback | {metric} served | not identifiable |" in shown
    assert "none on record | not identifiable |" in markdown.render(read("healthy"))


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_as_many_cells_as_headers(name: str) -> None:
    tokens = PARSER.parse(markdown.render(read(name)))
    widths = {"th": 0, "td": 0}
    for token in tokens:
        if token.type in ("th_open", "td_open"):
            widths[token.tag] += 1
        elif token.type == "thead_open":
            widths["th"] = 0
        elif token.type == "tr_open":
            widths["td"] = 0
        elif token.type == "tr_close" and widths["td"]:
            assert widths["td"] == widths["th"]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain words, 37.0 % of 12,034 steps.", "plain words, 37.0 % of 12,034 steps."),
        ("cuda_graph_bs --max-num-seqs", "cuda_graph_bs --max-num-seqs"),
        ("a|b", r"a\|b"),
        ("`x", r"\`x"),
        ("run `vllm serve --x` now", "run `vllm serve --x` now"),
        ("``a`` `b", r"\`\`a\`\` \`b"),
        ("<b>", r"\<b\>"),
        ("@user and #12", "@<!-- -->user and #<!-- -->12"),
        ("1. no list", r"1\. no list"),
        ("- no list", r"\- no list"),
        ("# no title", r"\# no title"),
        ("a\nb", r"a\\nb"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert markdown.escape(text) == escaped


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=40) | st.text("|\\`*_<>[]()#-+=~&;!@1.) ab\n", max_size=30))
def test_escaped_text_reads_as_itself_in_a_bullet_and_in_a_cell(text: str) -> None:
    want = re.sub(markdown._CODE, lambda span: span[0][1:-1], fmt.clean(text).strip())
    bullet = PARSER.parse(f"- {markdown.escape(text)}")
    cell = PARSER.parse(f"| a | b |\n|---|---|\n| {markdown.escape(text)} | end |")
    for tokens, rest in ((bullet, ""), (cell, "abend")):
        kinds = {token.type for token in _flat(tokens)}
        html = {token.content for token in _flat(tokens) if token.type == "html_inline"}
        assert html <= {LINK_STOP}
        assert not kinds & {"link_open", "image", "em_open", "strong_open", "s_open", "html_block"}
        assert not kinds & {"heading_open", "hr", "fence", "code_block"}
        squeezed = re.sub(r"\s", "", _shown(tokens))
        expected = re.sub(r"\s", "", want)
        assert squeezed == (f"ab{expected}end" if rest else expected)


@given(st.text("`a ", max_size=20))
def test_a_code_block_holds_any_backticks(text: str) -> None:
    tokens = PARSER.parse("\n".join(markdown.block(text)))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == f"{text}\n"


def test_a_hostile_report_stays_text() -> None:
    shown = markdown.render(hostile())
    assert len(shown) < 200_000
    assert "\x1b" not in shown
    html = [t.content for t in _flat(PARSER.parse(shown)) if t.type.startswith("html")]
    assert {part.strip() for part in html} <= {
        LINK_STOP,
        "<details><summary>Tables and configuration</summary>",
        "</details>",
    }
