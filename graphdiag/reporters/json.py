"""Reports and answers as JSON, format 1, and the JSON schemas they obey.

``python -m graphdiag.reporters.json`` writes the schema files anew after a change of
:mod:`graphdiag.findings`, :mod:`graphdiag.buckets.answer`, :mod:`graphdiag.comparison.answer` or
:mod:`graphdiag.experiment.answer`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from graphdiag.buckets.answer import BucketAnswer
from graphdiag.comparison.answer import Comparison
from graphdiag.experiment.answer import Experiment
from graphdiag.findings import Report

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")
BUCKETS_SCHEMA_FILE = Path(__file__).with_name("buckets.schema.json")
COMPARE_SCHEMA_FILE = Path(__file__).with_name("compare.schema.json")
EXPERIMENT_SCHEMA_FILE = Path(__file__).with_name("experiment.schema.json")


def render(report: msgspec.Struct) -> str:
    """Return a report or an answer as indented JSON, keys in the order of its class.

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


def schema(kind: type[msgspec.Struct] = Report, command: str = "report") -> str:
    """Return the JSON schema of what ``command`` prints, as the text of its file."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"graphdiag {command} --json, format 1",
        **msgspec.json.schema(kind),
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema(), encoding="utf-8")
    BUCKETS_SCHEMA_FILE.write_text(schema(BucketAnswer, "buckets"), encoding="utf-8")
    COMPARE_SCHEMA_FILE.write_text(schema(Comparison, "compare"), encoding="utf-8")
    EXPERIMENT_SCHEMA_FILE.write_text(schema(Experiment, "experiment"), encoding="utf-8")
