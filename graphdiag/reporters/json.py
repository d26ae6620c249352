"""The report as JSON, format 1, and the JSON schema it obeys.

``python -m graphdiag.reporters.json`` writes ``report.schema.json`` anew after a change of
:mod:`graphdiag.findings`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from graphdiag.findings import Report

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


def render(report: Report) -> str:
    """Return the report as indented JSON, keys in :class:`Report`'s order.

    A float that is no number becomes null, which means "not identifiable", and half a surrogate
    pair, which no UTF-8 can hold, the replacement character.
    """
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(report)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    return value


def schema() -> str:
    """Return the JSON schema of :func:`render`'s output, as the text of its file."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "graphdiag report --json, format 1",
        **msgspec.json.schema(Report),
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema(), encoding="utf-8")
