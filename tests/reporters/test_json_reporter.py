from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from sample_reports import GOLDEN, NAMES, hostile, read

from graphdiag.findings import Report
from graphdiag.reporters import json as reporter

DOCS = Path(__file__).parents[2] / "docs"

# The keys that the JSON contract names; more may be added, none renamed.
CONTRACT = {
    "": "format source engine steps sampled window metrics phases periods cases verdict audit "
    "sizes artifacts recommendation gpu not_identifiable",
    "metrics": "exact_hit_rate fallback_rate padding_ratio waste compile_count compile_seconds "
    "capture_count capture_seconds graph_bytes unique_artifacts dropped_rows",
    "window": "start end seconds",
    "verdict": "case sentence",
    "cases": "case ms_per_step ci95 share evidence advice",
    "audit": "kind severity sentence data",
    "sizes": "requested steps bucket outcome step_ms",
    "artifacts": "artifact kind served",
    "recommendation": "add drop buckets why flags",
    "gpu": "busy_ms idle_ms span_ms graph_launches kernels_in_graphs kernels_outside_graphs "
    "unlinked_events",
}


def test_the_schema_file_is_in_step_with_findings() -> None:
    assert reporter.SCHEMA_FILE.read_text(encoding="utf-8") == reporter.schema()


@pytest.mark.parametrize("name", NAMES)
def test_output_obeys_the_schema_and_reads_back(name: str) -> None:
    text = reporter.render(read(name))
    schema = json.loads(reporter.schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    assert msgspec.json.decode(text, type=Report) == read(name)


def test_keys_come_in_the_order_of_the_report() -> None:
    assert list(json.loads(reporter.render(read("padding")))) == list(Report.__struct_fields__)


def test_every_key_of_the_contract_is_there() -> None:
    shown = json.loads(reporter.render(read("padding")))
    shown["gpu"] = json.loads(reporter.render(read("healthy")))["gpu"]
    for place, keys in CONTRACT.items():
        part = shown if not place else shown[place]
        part = part[0] if isinstance(part, list) else part
        assert set(keys.split()) <= set(part), place


def test_a_number_that_is_none_becomes_null() -> None:
    report = read("padding")
    metrics = msgspec.structs.replace(report.metrics, waste=float("nan"), step_ms_p99=float("inf"))
    text = reporter.render(msgspec.structs.replace(report, metrics=metrics))
    shown = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert shown["metrics"]["waste"] is None
    assert shown["metrics"]["step_ms_p99"] is None


def test_hostile_strings_survive_unchanged() -> None:
    shown = json.loads(reporter.render(hostile()))
    assert shown["artifacts"][0]["artifact"] == hostile().artifacts[0].artifact


def test_the_page_explains_every_key() -> None:
    page = (DOCS / "json.md").read_text(encoding="utf-8")
    schema = json.loads(reporter.schema())
    for name, part in schema["$defs"].items():
        for key in part["properties"]:
            assert f"`{key}`" in page, f"{name}.{key}"


def test_golden_files_are_of_the_current_format() -> None:
    for name in NAMES:
        assert json.loads((GOLDEN / f"{name}.json").read_text())["format"] == 1


def test_half_a_surrogate_pair_is_replaced() -> None:
    report = msgspec.structs.replace(
        read("padding"), notes=["caf\udce9.log"], engine={"name": "\ud83d\ude00", "\udc80": 1}
    )
    shown = json.loads(reporter.render(report))
    assert shown["notes"] == ["caf\ufffd.log"]
    assert shown["engine"] == {"name": "\U0001f600", "\ufffd": 1}
