"""The answer of ``graphdiag buckets`` in text, Markdown and JSON."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import jsonschema
import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text
from sample_answers import GOLDEN, NAMES, planned, read
from sample_reports import NASTY

from graphdiag.buckets.answer import BucketAnswer, as_json
from graphdiag.reporters import buckets_markdown, buckets_tables, buckets_text
from graphdiag.reporters import json as reporter

DOCS = Path(__file__).parents[2] / "docs"


def hostile() -> BucketAnswer:
    """An answer whose free strings break what does not escape them."""
    answer = read("vllm")
    return msgspec.structs.replace(
        answer,
        source=NASTY,
        sentence=NASTY,
        engine_version=NASTY,
        notes=[NASTY],
        not_identifiable=[NASTY],
        what_if_remarks=[NASTY],
    )


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_text(name: str) -> None:
    shown = buckets_text.render(read(name))
    assert shown == (GOLDEN / f"buckets_{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_markdown(name: str) -> None:
    shown = buckets_markdown.render(read(name))
    assert shown == (GOLDEN / f"buckets_{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_planner_still_answers_as_the_golden_answer(name: str) -> None:
    ours, golden = as_json(planned()[name]), as_json(read(name))
    assert _rounded(ours) == _rounded(golden)


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


def test_the_answer_comes_first_and_each_part_once() -> None:
    shown = buckets_text.render(read("vllm"))
    assert shown.startswith("Answer: The best 12 sizes within 24 graphs pad 5.3 %")
    titles = [
        "The best single change",
        "The best change without one more graph",
        "The set to capture",
        "What if",
        "Sets",
        "The best set of each count",
        "Sizes that cost most now",
        "Captured, and hardly served",
        "Notes",
    ]
    places = [shown.index(f"\n\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert "--cuda-graph-bs" not in shown  # vLLM was recorded: no other engine's flag


def test_no_line_is_wider_than_the_page() -> None:
    for width in (40, 59, 80, 100):
        for answer in (*map(read, NAMES), hostile()):
            lines = buckets_text.render(answer, width=width).splitlines()
            assert max(map(cell_len, lines)) <= width


def test_color_adds_codes_and_no_words() -> None:
    colored = buckets_text.render(read("vllm"), color=True)
    assert "\x1b[" in colored
    plain = Text.from_ansi(colored).plain.splitlines()
    assert [line.rstrip() for line in plain] == buckets_text.render(read("vllm")).splitlines()


def test_hostile_strings_are_shown_and_not_obeyed() -> None:
    for shown in (buckets_text.render(hostile()), buckets_markdown.render(hostile())):
        assert all(char == "\n" or unicodedata.category(char)[0] != "C" for char in shown)
    assert "<script>" not in buckets_markdown.render(hostile()).replace("\\<script\\>", "")


def test_what_is_not_known_is_left_out_and_named() -> None:
    shown = buckets_text.render(read("practice"))
    assert "Not identifiable: ms/step, MiB, warm-up s." in " ".join(shown.split())
    assert "Net:" not in shown


def test_where_rows_are_free_no_digits_of_a_tie_are_shown() -> None:
    answer = read("vllm")
    sizes = [
        msgspec.structs.replace(size, padded_ms=None if size.bucket is None else 0.0)
        for size in answer.sizes
    ]
    shown = buckets_text.render(msgspec.structs.replace(answer, sizes=sizes))
    assert "0.00000" not in shown


def test_a_long_frontier_keeps_the_rows_that_matter() -> None:
    practice = read("practice")
    sheets = {sheet.title: sheet for sheet in buckets_tables.sheets(practice)}
    rows = sheets["The best set of each count"].rows
    assert len(practice.frontier) == 32
    assert len(rows) <= buckets_tables.FRONTIER_ROWS + 2
    assert rows[0][0] == "1"
    assert rows[-1][0] == "32"
    assert [row[-1] for row in rows if row[-1]] == ["knee", "as many as now"]


def test_a_long_list_is_shortened_for_reading_and_whole_in_the_flag() -> None:
    assert buckets_tables.listed(list(range(1, 25))).count(",") == 23
    assert "12, …, 29" in buckets_tables.listed(list(range(1, 41)))


def test_the_subject_of_shares_has_no_count() -> None:
    assert buckets_tables.subject(read("practice")) == "shares of steps of 1 to 32 rows"
    assert buckets_tables.subject(read("vllm")) == "vllm 0.32.0, 1,296 steps of 20 to 300 tokens"


@pytest.mark.parametrize("name", NAMES)
def test_json_obeys_the_schema_and_reads_back(name: str) -> None:
    text = reporter.render(read(name))
    schema = json.loads(reporter.schema(BucketAnswer, "buckets"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    assert msgspec.json.decode(text, type=BucketAnswer) == read(name)


def test_the_schema_file_is_in_step_with_the_answer() -> None:
    shown = reporter.BUCKETS_SCHEMA_FILE.read_text(encoding="utf-8")
    assert shown == reporter.schema(BucketAnswer, "buckets")


def test_the_page_explains_every_key() -> None:
    page = (DOCS / "json.md").read_text(encoding="utf-8")
    _, _, page = page.partition("# graphdiag buckets --json")
    schema = json.loads(reporter.schema(BucketAnswer, "buckets"))
    for name, part in schema["$defs"].items():
        for key in part["properties"]:
            assert f"`{key}`" in page, f"{name}.{key}"
