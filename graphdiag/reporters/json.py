"""The report as JSON, format 1, and the JSON schema it obeys.

``python -m graphdiag.reporters.json`` writes ``report.schema.json`` anew after a change of
:mod:`graphdiag.findings`.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from graphdiag.findings import Report

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


def render(report: Report) -> str:
    """Return the report as indented JSON, keys in :class:`Report`'s order.

    A float that is no number becomes null, which means "not identifiable".
    """
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


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
