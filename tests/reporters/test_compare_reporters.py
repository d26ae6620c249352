"""A comparison in text, Markdown and JSON."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.text import Text
from sample_comparisons import GOLDEN, NAMES, read
from sample_reports import NASTY

from graphdiag.comparison.answer import Comparison, Goodput, Terms
from graphdiag.reporters import compare_markdown, compare_tables, compare_text
from graphdiag.reporters import json as reporter

DOCS = Path(__file__).parents[2] / "docs"
PARSER = MarkdownIt("commonmark").enable(["table"])


def hostile(length: int = 1_000_000) -> Comparison:
    """A comparison whose every free string is nasty and long."""
    return msgspec.convert(_spoil(msgspec.to_builtins(read("other_traffic")), length), Comparison)


def _spoil(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return NASTY + "A" * length
    if isinstance(value, list):
        return [_spoil(item, length) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in ("case", "severity") else _spoil(item, length)
            for key, item in value.items()
        }
    return value


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_text(name: str) -> None:
    golden = (GOLDEN / f"compare_{name}.txt").read_text(encoding="utf-8")
    assert compare_text.render(read(name)) == golden


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_markdown(name: str) -> None:
    golden = (GOLDEN / f"compare_{name}.md").read_text(encoding="utf-8")
    assert compare_markdown.render(read(name)) == golden


def test_the_verdict_is_first_and_differences_are_above_the_numbers() -> None:
    shown = compare_text.render(read("other_traffic"))
    assert shown.startswith("Verdict: The candidate is slower by 1.82 ms (95 %: ")
    titles = [
        "What differs in the configuration",
        "From base to candidate",
        "Has it succeeded?",
        "What the change is made of",
        "Mean step time in ms",
        "Each by itself",
        "Start-up",
        "Goodput: tokens at most 9 ms after the one before",
        "Sizes whose change costs most",
        "Key audit: what changed and is in no artifact's key",
        "Not identifiable from these sources",
    ]
    places = [shown.index(f"\n\n{title}\n") for title in titles]
    assert places == sorted(places)
    headings = compare_markdown.render(read("other_traffic"))
    places = [headings.index(f"\n#### {title}\n") for title in titles]
    assert places == sorted(places)


def test_the_terms_are_in_a_table_with_their_sum() -> None:
    shown = compare_text.render(read("chapter_one")).split("What the change is made of\n")[1]
    rows = {line.split()[0]: line.split()[1:] for line in shown.split("\n\n")[0].splitlines()}
    assert float(rows["padding"][0]) == pytest.approx(1.2, abs=0.01)
    assert rows["launch"][:2] == ["saving", "-0.700"]
    assert rows["sum"][0] == "+0.500"
    assert rows["shapes"][0] == "0.000"


def test_what_is_unknown_is_said_and_never_zero() -> None:
    shown = compare_text.render(read("untimed"))
    assert "What the change is made of" not in shown
    assert "Mean step time" not in shown
    assert "  of it: compile              n/a        0 s" in shown
    assert "  artifacts made              n/a          3" in shown
    assert "mode           not recorded  FULL" in shown


def test_a_table_without_a_figure_is_left_out() -> None:
    found = read("chapter_one")
    titles = ("Goodput: tokens at most", "Sizes whose change costs most")
    assert all(title in compare_text.render(found) for title in titles)
    assert found.objectives is not None
    none = Goodput(tokens_per_s=None, share=None, steady_tokens_per_s=None, steady_share=None)
    silent = msgspec.structs.replace(found.objectives, base=none, candidate=none)
    # Without terms a size is not the same thing in both, such as rows here and tokens there.
    bare = msgspec.structs.replace(found, terms=None, objectives=silent)
    assert not any(title in compare_text.render(bare) for title in titles)


def test_lists_show_what_only_one_of_them_holds() -> None:
    shown = compare_text.render(read("other_traffic"))
    assert "64 values; only here: 24, 40, 48" in shown
    assert "and 49 more" in shown
    assert "  kv_tokens      100,000    90,000" in shown


def test_no_difference_is_said_as_such_only_where_both_tell_their_configuration() -> None:
    found = msgspec.structs.replace(read("chapter_one"), differences=[])
    assert "None on record: both ran with the same configuration." in compare_text.render(found)
    bare = msgspec.structs.replace(found.base, engine={"name": None, "version": None})
    shown = compare_text.render(msgspec.structs.replace(found, base=bare))
    assert "One of the two carries no configuration" in shown


def test_a_long_list_of_differences_is_cut() -> None:
    found = read("other_traffic")
    many = msgspec.structs.replace(found, differences=found.differences * 20)
    assert "36 more differences in --json." in compare_text.render(many)
    assert "36 more differences in --json." in compare_markdown.render(many)


@pytest.mark.parametrize("width", [40, 59, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for found in (*map(read, NAMES), hostile()):
        lines = compare_text.render(found, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width


def test_a_narrow_terminal_gets_rows_with_names() -> None:
    shown = " ".join(compare_text.render(read("chapter_one"), width=40).split())
    assert "- mode: base NONE, candidate FULL" in shown
    assert "- launch saving: ms/step -0.700" in shown


def test_large_numbers_fit_80_columns() -> None:
    found = read("chapter_one")
    sizes = [
        msgspec.structs.replace(
            one,
            base_steps=123_456_789,
            candidate_steps=123_456_789,
            requested=16_384,
            base_bucket=16_384,
            candidate_bucket=16_384,
            base_ms=12_345.6,
            candidate_ms=12_345.6,
        )
        for one in found.sizes
    ]
    shown = compare_text.render(msgspec.structs.replace(found, sizes=sizes))
    row = next(line for line in shown.splitlines() if line.startswith("  decode"))
    assert row.split()[1:4] == ["16,384", "16,384", "16,384"]
    assert row.split()[6:8] == ["12,346", "12,346"]


def test_hostile_strings_are_shown_and_not_obeyed() -> None:
    shown = compare_text.render(hostile())
    assert len(shown) < 200_000
    assert all(char == "\n" or unicodedata.category(char)[0] != "C" for char in shown)
    assert r"\x1b[31mred\x1b[0m [red]x[/red]" in shown


def test_hostile_strings_stay_text_in_markdown() -> None:
    shown = compare_markdown.render(hostile())
    assert len(shown) < 200_000
    assert "\x1b" not in shown
    tokens = PARSER.parse(shown)
    flat = [part for token in tokens for part in (token, *(token.children or []))]
    html = [token.content for token in flat if token.type.startswith("html")]
    assert {part.strip() for part in html} <= {
        "<!-- -->",
        "<details><summary>Start-up, goodput and sizes</summary>",
        "</details>",
    }
    assert not {token.type for token in flat} & {"link_open", "image", "fence"}


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_as_many_cells_as_headers(name: str) -> None:
    widths = {"th": 0, "td": 0}
    for token in PARSER.parse(compare_markdown.render(read(name))):
        if token.type in ("th_open", "td_open"):
            widths[token.tag] += 1
        elif token.type == "thead_open":
            widths["th"] = 0
        elif token.type == "tr_open":
            widths["td"] = 0
        elif token.type == "tr_close" and widths["td"]:
            assert widths["td"] == widths["th"]


@pytest.mark.parametrize("name", NAMES)
def test_color_adds_codes_and_no_words(name: str) -> None:
    colored = compare_text.render(read(name), color=True)
    assert "\x1b[" in colored
    plain = Text.from_ansi(colored).plain
    shown = compare_text.render(read(name)).splitlines()
    assert [line.rstrip() for line in plain.splitlines()] == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.2, -0.7, 0.0], ["+1.200", "-0.700", "0.000"]),
        ([12.34, 0.0001], ["+12.34", "0.00"]),
        ([-1e-9, 0.0], ["0.000000", "0.000000"]),
        ([None, 1234.5], ["n/a", "+1,234"]),
        ([0.0, None], ["0", "n/a"]),
        ([], []),
    ],
)
def test_changes_have_a_sign_and_the_same_decimals(
    values: list[float | None], shown: list[str]
) -> None:
    assert compare_tables._signed(values) == shown


# --- JSON -----------------------------------------------------------------------------------------


def test_the_schema_file_is_in_step_with_the_answer() -> None:
    text = reporter.COMPARE_SCHEMA_FILE.read_text(encoding="utf-8")
    assert text == reporter.schema(Comparison, "compare")


@pytest.mark.parametrize("name", NAMES)
def test_output_obeys_the_schema_and_reads_back(name: str) -> None:
    text = reporter.render(read(name))
    schema = json.loads(reporter.COMPARE_SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    assert msgspec.json.decode(text, type=Comparison) == read(name)


def test_every_key_of_the_contract_is_there() -> None:
    shown = json.loads(reporter.render(read("chapter_one")))
    contract = {"format", "delta_ms_per_step", "ci95", "terms", "verdict", "base", "candidate"}
    assert contract <= set(shown)
    assert shown["format"] == 1
    assert list(shown["terms"]) == list(Terms.__struct_fields__)
    assert sum(shown["terms"].values()) == pytest.approx(shown["delta_ms_per_step"], rel=1e-9)
    assert shown["base"]["format"] == 1


def test_the_page_explains_every_key() -> None:
    page = (DOCS / "json.md").read_text(encoding="utf-8")
    schema = json.loads(reporter.COMPARE_SCHEMA_FILE.read_text(encoding="utf-8"))
    of_report = json.loads(reporter.SCHEMA_FILE.read_text(encoding="utf-8"))["$defs"]
    for name, part in schema["$defs"].items():
        for key in part["properties"]:
            assert name in of_report or f"`{key}`" in page, f"{name}.{key}"


def test_hostile_strings_survive_unchanged() -> None:
    found = hostile(100)
    shown = json.loads(reporter.render(found))
    assert shown["differences"][0]["key"] == found.differences[0].key
