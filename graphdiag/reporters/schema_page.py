"""The trace format as a page: ``graphdiag schema`` and ``docs/schema.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from graphdiag_collectors import schema as trace

INTRODUCTION = (
    "One table, one row an event. A column that an event does not have is null. A row stands "
    "for weight things and its times are totals over them, so counts are sum(weight) and times "
    "are sum(dur_ns)."
)


def render_json() -> str:
    """Return the format as JSON: ``format``, ``columns`` and ``run_config``."""
    document = {
        "format": trace.FORMAT,
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "unit": column.unit,
                "events": list(column.events),
                "meaning": column.meaning,
                "words": list(column.words),
            }
            for column in trace.COLUMNS
        ],
        "run_config": trace.RUN_CONFIG,
    }
    return json.dumps(document, indent=2) + "\n"


def render_markdown() -> str:
    """Return the format in GitHub Markdown: the text of ``docs/schema.md``."""
    return "\n".join(_markdown()) + "\n"


def _markdown() -> Iterator[str]:
    yield from (f"# The trace, format {trace.FORMAT}", "", INTRODUCTION, "")
    key = trace.FORMAT_KEY.decode()
    yield f"The Parquet file carries `{key} = {trace.FORMAT}` in its key-value metadata."
    yield "This page is the output of `graphdiag schema --markdown`."
    yield from ("", "## Columns", "")
    yield from ("| column | type | unit | events | meaning |", "|---|---|---|---|---|")
    for column in trace.COLUMNS:
        cells = (f"`{column.name}`", column_type(column), column.unit, events(column))
        yield f"| {' | '.join((*cells, meaning(column)))} |"
    yield from ("", "## Configuration of a run", "")
    yield from ("A run event's `config` is a JSON object with these keys; others are kept.", "")
    yield from ("| key | meaning |", "|---|---|")
    yield from (f"| `{key}` | {text} |" for key, text in trace.RUN_CONFIG.items())


def column_type(column: trace.Column) -> str:
    """Return a column's type as the page names it: text, int64, double, bool."""
    return {"string": "text"}.get(str(column.type), str(column.type))


def events(column: trace.Column) -> str:
    """Return the events that may carry a column."""
    return "all" if column.events == trace.EVENTS else ", ".join(column.events)


def meaning(column: trace.Column) -> str:
    """Return a column's meaning with its legal words."""
    words = f" One of {', '.join(column.words)}." if column.words else ""
    return f"{column.meaning}{words}"


def render_text(width: int = 80) -> str:
    """Return the format for a terminal, columns grouped by the events that carry them."""
    from rich.console import RenderableType
    from rich.text import Text

    from graphdiag.reporters.text import bullets, heading, to_text

    groups: dict[str, list[tuple[str, str]]] = {}
    for column in trace.COLUMNS:
        unit = f", {column.unit}" if column.unit else ""
        entry = (column.name, f"{column_type(column)}{unit}. {meaning(column)}")
        groups.setdefault(events(column), []).append(entry)
    sections: list[RenderableType] = [
        Text(f"The trace, format {trace.FORMAT}", "bold"),
        Text(INTRODUCTION),
    ]
    for carriers, entries in groups.items():
        sections += [heading(f"{carriers.capitalize()} events"), bullets(entries)]
    sections += [heading("Keys of a run event's config"), bullets(trace.RUN_CONFIG.items())]
    return to_text(sections, width=width)
