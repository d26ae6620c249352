from __future__ import annotations

import msgspec
from sample_reports import read

from graphdiag.findings import ArtifactRow, SizeRow
from graphdiag.reporters.tables import Sheet, sheets


def _sheet(report_name: str, title: str, **changes: object) -> Sheet:
    report = msgspec.structs.replace(read(report_name), **changes)
    return next(sheet for sheet in sheets(report) if sheet.title.startswith(title))


def _size(**values: object) -> SizeRow:
    row = {"requested": 9, "steps": 1, "bucket": None, "outcome": None, "step_ms": 1.0}
    return SizeRow(**{**row, **values})  # type: ignore[arg-type]


def test_a_table_comes_only_where_there_is_something_in_it() -> None:
    titles = [sheet.title for sheet in sheets(read("empty"))]
    assert titles == ["Compile and capture"]
    bare = msgspec.structs.replace(read("empty"), metrics=read("padding").phases["prefill"])
    assert list(sheets(bare)) == []


def test_no_bucket_is_none_only_where_the_step_is_known_to_have_replayed_none() -> None:
    sizes = [
        _size(outcome="fallback"),
        _size(outcome=None),
        _size(outcome="padded", bucket=16),
        _size(outcome="exact", requested=0, bucket=0),
    ]
    sheet = _sheet("padding", "Requested sizes", sizes=sizes)
    bucket, padding = (sheet.headers.index(name) for name in ("bucket", "padding %"))
    cells = [(row[bucket], row[padding]) for row in sheet.rows]
    assert cells == [("none", ""), ("n/a", "n/a"), ("16", "77.8"), ("0", "n/a")]


def test_sizes_come_by_steps_and_what_is_left_out_is_counted() -> None:
    sizes = [_size(requested=size, steps=size, bucket=64) for size in range(1, 31)]
    sheet = _sheet("padding", "Requested sizes", sizes=sizes)
    assert [row[sheet.headers.index("requested")] for row in sheet.rows][:3] == ["30", "29", "28"]
    assert f"Left out: 18 rows with {sum(range(1, 19))} steps." in sheet.legend


def test_a_column_without_any_value_is_named_and_not_printed() -> None:
    sheet = _sheet("fallback", "Requested sizes")
    assert "mean ms" not in sheet.headers
    assert sheet.legend.endswith("Not identifiable: phase, mean ms.")
    assert sheet.left == 1


def test_only_unused_captures_count_as_never_replayed() -> None:
    assert "Captured and never replayed: 1." in _sheet("padding", "Artifacts").legend


def test_a_period_without_compile_or_capture_has_no_row() -> None:
    report = read("padding")
    held = msgspec.structs.replace(report.periods["warm"], graph_bytes=1 << 20, dropped_rows=3)
    sheet = _sheet("padding", "Compile", periods={**report.periods, "warm": held})
    assert [row[0] for row in sheet.rows] == ["whole trace", "cold"]


def test_the_gpu_keeps_nanoseconds() -> None:
    rows = dict(_sheet("healthy", "GPU").rows)
    assert rows["idle"] == "463.977 ms"
    assert rows["kernels in graphs"] == "544"


def test_runners_come_where_there_is_more_than_one() -> None:
    metrics = read("padding").metrics
    sheet = _sheet("padding", "Rates", runners={"target": metrics, "draft": metrics})
    assert [row[0] for row in sheet.rows] == [
        *("whole trace", "decode", "prefill", "runner target", "runner draft", "warm", "steady")
    ]


def test_step_times_count_the_steps_that_have_one() -> None:
    metrics = msgspec.structs.replace(read("padding").metrics, steps=467, timed_steps=420)
    sheet = _sheet("padding", "Step time", metrics=metrics)
    assert sheet.headers[1] == "timed"
    assert sheet.rows[0][1] == "420"


def test_only_a_recording_says_how_many_rows_it_dropped() -> None:
    assert "0 rows dropped while recording" in _sheet("padding", "Compile").legend
    imported = {"name": "sglang", "importer": "sglang-log"}
    assert "dropped" not in _sheet("padding", "Compile", engine=imported).legend


def test_graph_memory_alone_makes_no_compile_or_capture() -> None:
    made = {"capture_count": 0, "capture_seconds": 0.0, "graph_bytes": 1 << 20}
    metrics = msgspec.structs.replace(read("padding").metrics, **made)
    sheet = _sheet("padding", "Compile", metrics=metrics, periods={})
    assert sheet.rows == [("whole trace", "n/a", "n/a", "n/a", "n/a")]


def test_a_compiled_region_is_no_capture_that_never_replayed() -> None:
    region = ArtifactRow(
        artifact="f a.py:1", kind="dynamo", served=0, captured=True, compile_ms=3.0
    )
    graph = ArtifactRow(artifact="decode/4", kind="cuda_graph", served=0, captured=True)
    legend = _sheet("padding", "Artifacts", artifacts=[region, graph]).legend
    assert "Captured and never replayed: 1." in legend
    legend = _sheet("padding", "Artifacts", artifacts=[region, graph], steps=0).legend
    assert "never replayed" not in legend


def test_replays_outside_steps_have_a_column_where_there_are_any() -> None:
    rows = [
        ArtifactRow(artifact="a", kind="cuda_graph", served=0, captured=True),
        ArtifactRow(artifact="b", kind="cuda_graph", served=0, captured=True, replays=1200),
    ]
    sheet = _sheet("padding", "Artifacts", artifacts=rows, steps=0)
    assert sheet.headers[-1] == "replays"
    assert [(row[0], row[-1]) for row in sheet.rows] == [("b", "1,200"), ("a", "0")]
    assert "Captured and never replayed: 1." in sheet.legend
    assert "replays" not in _sheet("padding", "Artifacts").headers
