from __future__ import annotations

import json
from pathlib import Path

from graphdiag.reporters import schema_page
from graphdiag_collectors import schema as trace

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"


def test_the_page_in_docs_is_the_output() -> None:
    assert PAGE.read_text(encoding="utf-8") == schema_page.render_markdown()


def test_markdown_has_one_row_a_column_and_a_key() -> None:
    lines = schema_page.render_markdown().splitlines()
    assert "| `requested` | int32 | rows | step | Rows the batch needed on the axis. |" in lines
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(trace.COLUMNS) + len(trace.RUN_CONFIG)


def test_json_has_everything_of_every_column() -> None:
    document = json.loads(schema_page.render_json())
    assert document["format"] == trace.FORMAT
    assert [column["name"] for column in document["columns"]] == trace.column_names()
    (outcome,) = (column for column in document["columns"] if column["name"] == "outcome")
    assert outcome["words"] == list(trace.OUTCOMES)
    assert document["run_config"] == trace.RUN_CONFIG


def test_text_has_every_column_in_80_columns() -> None:
    lines = schema_page.render_text().splitlines()
    assert max(map(len, lines)) <= 80
    first_words = {line.split()[0] for line in lines if line.startswith("  ")}
    assert {column.name for column in trace.COLUMNS} <= first_words
    assert "  t_ns   int64, ns. Start of the event, wall clock, since 1970-01-01 UTC." in lines
