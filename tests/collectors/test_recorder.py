from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphdiag_collectors import Recorder
from graphdiag_collectors.schema import COLUMNS, DROPPED, EVENTS, columns_of
from tests.collectors.rows import read, steps, told


def test_three_lines_are_a_step(recorder: Recorder, folder: Path) -> None:
    before = time.time_ns()
    with recorder.step(requested=9) as step:
        time.sleep(0.01)
        step.replayed(bucket=16, artifact="decode/16")
    recorder.close()
    (row,) = steps(folder)
    took = row.pop("dur_ns")
    assert 10_000_000 <= took < 1_000_000_000
    assert before - 1_000_000 <= row.pop("t_ns") <= time.time_ns() - took + 1_000_000
    assert told(row) == {
        "event": "step",
        "run": "run-of-the-tests",
        "rank": 3,
        "pid": os.getpid(),
        "step": 0,
        "weight": 1,
        "runner": "target",
        "phase": "decode",
        "axis": "requests",
        "requested": 9,
        "bucket": 16,
        "padding_ratio": 7 / 9,
        "fallback": False,
        "outcome": "padded",
        "artifact": "decode/16",
    }


def test_fates(recorder: Recorder, folder: Path) -> None:
    with recorder.step(requested=8) as step:
        step.replayed(8, "decode/8", mode="full", replays=2)
    with recorder.step(requested=600) as step:
        step.fallback("over_max", mode="compiled")
    with recorder.step(requested=3) as step:
        step.eager()
    with recorder.step(requested=4) as step:
        step.captured(bucket=4, artifact="decode/4", compile_ns=5)
    with recorder.step(requested=5) as step:
        pass
    with recorder.step(requested=6) as step:
        step.fallback("because of the moon")
    with recorder.step(requested=7) as step:
        step.replayed(8, "decode/8")
        step.fallback("dynamic")
    recorder.close()
    columns = ("outcome", "fallback", "reason", "mode", "bucket", "replays", "compile_ns")
    assert [tuple(row[name] for name in columns) for row in steps(folder)] == [
        ("exact", False, None, "full", 8, 2, None),
        ("fallback", True, "over_max", "compiled", None, None, None),
        ("eager", False, None, None, None, None, None),
        ("capture", False, None, None, 4, None, 5),
        (None, None, None, None, None, None, None),
        ("fallback", True, "unknown", None, None, None, None),
        ("fallback", True, "dynamic", None, None, None, None),
    ]
    assert [row["step"] for row in steps(folder)] == list(range(7))


def test_requests(recorder: Recorder, folder: Path) -> None:
    at = 1_700_000_000_000_000_000
    recorder.request(
        arrival_ns=at,
        scheduled_ns=at + 2,
        first_token_ns=at + 5,
        end_ns=at + 9,
        prompt_tokens=7,
        output_tokens=3,
        reason="length",
    )
    recorder.request(arrival_ns=at)
    recorder.request(arrival_ns=at, first_token_ns=at - 1, end_ns=at + 9)
    recorder.request(arrival_ns=None)  # type: ignore[arg-type]
    recorder.close()
    whole, never_ran = read(folder, "request")
    told_whole = ("t_ns", "queued_ns", "ttft_ns", "dur_ns", "tokens_in", "tokens_out", "reason")
    assert [whole[name] for name in told_whole] == [at, 2, 5, 9, 7, 3, "length"]
    assert never_ran["dur_ns"] > 0
    assert never_ran["ttft_ns"] is None
    (mark,) = [row for row in read(folder, "mark") if row["kind"] == DROPPED]
    assert mark["weight"] == 2


@pytest.mark.parametrize(
    ("requested", "bucket", "outcome", "ratio"),
    [
        (16, 16, "exact", 0.0),
        (9, 16, "padded", 7 / 9),
        (17, None, None, None),
    ],
)
def test_outcome_follows_from_sizes(
    folder: Path, requested: int, bucket: int | None, outcome: str | None, ratio: float | None
) -> None:
    with Recorder(folder) as recorder:
        recorder.record(requested=requested, bucket=bucket)
        recorder.record(requested=requested, bucket=bucket, outcome="capture")
    derived, explicit = steps(folder)
    assert (derived["outcome"], derived["padding_ratio"]) == (outcome, ratio)
    assert derived["fallback"] is (None if outcome is None else False)
    assert explicit["outcome"] == "capture"


def test_a_phase_whose_graphs_are_off_is_eager(folder: Path) -> None:
    with Recorder(folder, {"graphs_off": ["prefill"]}) as recorder:
        recorder.record(requested=1, phase="prefill")
        recorder.record(requested=1, phase="decode")
        recorder.record(requested=1, phase="prefill", bucket=1)
        recorder.flush()
        recorder.run({"graphs_off": True})
        recorder.record(requested=1, phase="decode")
    assert [row["outcome"] for row in steps(folder)] == ["eager", None, "exact", "eager"]


_STEP_COLUMNS = {
    "runner": "draft",
    "phase": "verify",
    "axis": "tokens",
    "kind": "dummy",
    "mode": "piecewise",
    "outcome": "padded",
    "reason": "lora",
    "artifact": "a/1",
}
_FILLED = ("event", "run", "rank", "pid", "padding_ratio", "fallback")


def test_every_column_of_a_step_round_trips(recorder: Recorder, folder: Path) -> None:
    columns: dict[str, Any] = dict(_STEP_COLUMNS)
    for place, column in enumerate(columns_of("step"), start=100):
        if column.name not in columns and column.name not in _FILLED:
            columns[column.name] = place
    recorder.record(**columns)
    with recorder.step(
        columns["requested"],
        **{name: value for name, value in columns.items() if name != "requested"},
    ):
        pass
    recorder.close()
    for row in steps(folder):
        assert told(row) == columns | {
            "event": "step",
            "run": "run-of-the-tests",
            "rank": 3,
            "pid": os.getpid(),
            "fallback": False,
            "padding_ratio": (columns["bucket"] - columns["requested"]) / columns["requested"],
        }


@pytest.mark.parametrize("event", [event for event in EVENTS if event not in ("step", "run")])
def test_every_column_of_an_event_round_trips(recorder: Recorder, folder: Path, event: str) -> None:
    columns: dict[str, Any] = {}
    for place, column in enumerate(columns_of(event), start=100):
        if column.name in ("event", "run", "rank", "pid"):
            continue
        if column.name in ("key", "identity", "config"):
            columns[column.name] = {"b": [1, None], "a": {"x": 2.5}}
        elif str(column.type) == "string":
            columns[column.name] = column.words[0] if column.words else f"text {place} é"
        else:
            columns[column.name] = place
    recorder.event(event, **columns)
    recorder.close()
    (row,) = read(folder, event)
    for name in ("key", "identity", "config"):
        if name in columns:
            columns[name] = '{"a": {"x": 2.5}, "b": [1, null]}'
    assert told(row) == columns | {
        "event": event,
        "run": "run-of-the-tests",
        "rank": 3,
        "pid": os.getpid(),
    }


def test_captures_compiles_memory_and_marks(recorder: Recorder, folder: Path) -> None:
    recorder.capture(artifact="decode/8", size=8, dur_ns=1000, key={"n": 8}, cache="miss", weight=2)
    recorder.compile(artifact="region/0", dur_ns=5, reason="tensor 'x' size mismatch", t_ns=17)
    recorder.memory(mem_before=10, pool_bytes=3)
    recorder.mark("gpu_window", {"graph_launches": 2}, gpu_ns=7, launches=3)
    now = time.time_ns()
    recorder.close()
    (capture,) = read(folder, "capture")
    assert (capture["size"], capture["weight"], capture["key"]) == (8, 2, '{"n": 8}')
    assert abs(now - 1000 - capture["t_ns"]) < 1_000_000_000
    (compiled,) = read(folder, "compile")
    assert (compiled["t_ns"], compiled["weight"]) == (17, 1)
    assert compiled["reason"] == "tensor 'x' size mismatch"
    (memory,) = read(folder, "memory")
    assert (memory["mem_before"], memory["mem_after"], memory["pool_bytes"]) == (10, None, 3)
    (mark,) = read(folder, "mark")
    assert (mark["kind"], mark["gpu_ns"]) == ("gpu_window", 7)
    assert json.loads(mark["config"]) == {"graph_launches": 2}


def test_the_run_event_is_there_at_once_and_may_follow(folder: Path) -> None:
    with Recorder(folder, {"engine": "mine", "mode": Path("x")}, axis="tokens") as recorder:
        (first,) = read(folder)
        recorder.run({"capture_sizes": [1, 2]})
    assert json.loads(first["config"]) == {"axis": "tokens", "engine": "mine", "mode": "x"}
    configs = [json.loads(row["config"]) for row in read(folder, "run")]
    assert configs[1] == {"axis": "tokens", "capture_sizes": [1, 2]}


def test_steps_within_steps(recorder: Recorder, folder: Path) -> None:
    draft = recorder.channel(runner="draft")
    with recorder.step(requested=4) as outer:
        with draft.step(requested=2) as other:
            other.replayed(2, "draft/2")
            with draft.step(requested=1) as inner:
                inner.replayed(1, "draft/1")
        with recorder.step(requested=3) as inner:
            inner.fallback("lora")
        outer.replayed(4, "decode/4")
    with recorder.step(requested=5) as step:
        step.replayed(8, "decode/8")
    recorder.close()
    found = [
        (row["runner"], row["step"], row["requested"], row["artifact"]) for row in steps(folder)
    ]
    assert sorted(found) == [
        ("draft", 0, 1, "draft/1"),
        ("draft", 1, 2, "draft/2"),
        ("target", 0, 3, None),
        ("target", 1, 4, "decode/4"),
        ("target", 2, 5, "decode/8"),
    ]


def test_narrow_and_wide_steps_stay_in_order(recorder: Recorder, folder: Path) -> None:
    for size in range(1, 21):
        with recorder.step(requested=size) as step:
            if size % 3 == 0:
                step.set(num_tokens=size * 10)
    recorder.close()
    rows = steps(folder)
    assert [row["requested"] for row in rows] == list(range(1, 21))
    assert [row["step"] for row in rows] == list(range(20))
    assert rows[2]["num_tokens"] == 30
    assert rows[3]["num_tokens"] is None
    assert all(a["t_ns"] <= b["t_ns"] for a, b in pairwise(rows))


def test_an_exception_of_the_engine_passes_and_its_step_is_there(
    recorder: Recorder, folder: Path
) -> None:
    error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError) as caught, recorder.step(requested=9) as step:  # noqa: PT012
        step.replayed(16, "decode/16")
        raise error
    assert caught.value is error
    recorder.close()
    assert [row["outcome"] for row in steps(folder)] == ["padded"]


@pytest.mark.parametrize(
    "columns",
    [
        {"requested": None},
        {},
        {"requested": "9"},
        {"requested": 9.5},
        {"requested": 2**31},
        {"requested": 10**30},
        {"requested": 9, "bucket": "16"},
        {"requested": 9, "kv_tokens": 2**63},
        {"requested": 9, "num_reqs": []},
        {"requested": 9, "artifact": 16},
        {"requested": 9, "artifact": ["a"]},
        {"requested": 9, "artifact": "\ud800"},
        {"requested": 9, "phase": "decoding"},
        {"requested": 9, "no_column": 1},
        {"requested": 9, "clock": 1.0},
        {"requested": 0},
        {"requested": -3},
        {"requested": -3, "kind": "filler"},
        {"requested": 9, "bucket": 0},
        {"requested": 9, "bucket": -16},
        {"requested": 9, "bucket": 8},
        {"requested": 9, "bucket": 8, "outcome": "padded"},
    ],
)
def test_bad_arguments_do_not_raise_and_are_counted(
    recorder: Recorder, folder: Path, columns: dict[str, Any]
) -> None:
    with recorder.step(**columns) as step:
        step.set(**{name: value for name, value in columns.items() if name != "requested"})
    with recorder.step(requested=1) as step:
        step.replayed(1, "decode/1")
    recorder.flush()
    assert recorder.status().dropped == 1
    recorder.close()
    (row,) = steps(folder)
    assert row["artifact"] == "decode/1"
    (mark,) = read(folder, "mark")
    assert (mark["kind"], mark["weight"]) == (DROPPED, 1)
    assert json.loads(mark["config"])["why"]


def test_steps_keep_their_index_when_others_are_dropped(recorder: Recorder, folder: Path) -> None:
    for size in (1, -633, 2, 0, 3):
        with recorder.step(requested=size) as step:
            step.replayed(4)
    recorder.record(requested=9, bucket=8, step=70)
    recorder.record(requested=8, bucket=8, step=71)
    recorder.flush()
    assert recorder.status().dropped == 3
    recorder.close()
    found = [(row["step"], row["requested"]) for row in steps(folder)]
    assert found == [(0, 1), (2, 2), (4, 3), (71, 8)]
    marks = read(folder, "mark")  # one, or two where the writer's thread wrote half-way
    assert sum(mark["weight"] for mark in marks) == 3
    for mark in marks:
        assert json.loads(mark["config"])["why"].startswith("requested is below 1")


def test_sizes_that_only_look_impossible_are_kept(recorder: Recorder, folder: Path) -> None:
    recorder.record(requested=0, kind="filler")  # an idle data-parallel rank
    recorder.record(requested=0, bucket=4, kind="filler")
    recorder.record(requested=9, bucket=8, outcome="capture")
    recorder.record(requested=9, bucket=8, outcome="fallback", reason="over_max")
    recorder.close()
    kept = [(row["requested"], row["bucket"], row["padding_ratio"]) for row in steps(folder)]
    assert kept == [(0, None, None), (0, 4, None), (9, 8, None), (9, 8, None)]
    assert recorder.status().dropped == 0


def test_a_bad_record_does_not_raise(recorder: Recorder) -> None:
    recorder.record(9, clock=1.0)  # type: ignore[arg-type]
    recorder.record("9")  # type: ignore[arg-type]
    recorder.record()
    assert recorder.status().dropped == 3


def test_bad_events_do_not_raise_and_are_counted(recorder: Recorder, folder: Path) -> None:
    recorder.capture(size="8")  # type: ignore[arg-type]
    recorder.capture(size=2**40)
    recorder.capture(requested=8)
    recorder.compile(cache="maybe")
    recorder.mark(7)  # type: ignore[arg-type]
    recorder.event("party")
    recorder.run(None)  # type: ignore[arg-type]
    recorder.capture(artifact="kept", key={"device": object, "nan": float("nan"), "set": {2, 1}})
    recorder.close()
    assert recorder.status().dropped == 7
    assert sum(row["weight"] for row in read(folder, "mark")) == 7
    (kept,) = read(folder, "capture")
    assert json.loads(kept["key"]) == {"device": "<class 'object'>", "nan": None, "set": [1, 2]}


def test_a_none_is_a_null(recorder: Recorder, folder: Path) -> None:
    recorder.record(requested=9, bucket=None, num_reqs=None, kv_tokens=5, host_ns=None, mode=None)
    recorder.close()
    (row,) = steps(folder)
    assert (row["bucket"], row["num_reqs"], row["kv_tokens"], row["host_ns"]) == (
        None,
        None,
        5,
        None,
    )


def test_a_measured_step_without_a_start_ended_now(recorder: Recorder, folder: Path) -> None:
    recorder.record(requested=9, dur_ns=3_600_000_000_000)
    recorder.record(requested=9)
    now = time.time_ns()
    recorder.close()
    first, second = steps(folder)
    assert abs(now - 3_600_000_000_000 - first["t_ns"]) < 1_000_000_000
    assert first["dur_ns"] == 3_600_000_000_000
    assert second["dur_ns"] is None


def test_closing_twice_and_recording_after(recorder: Recorder, folder: Path) -> None:
    recorder.close()
    recorder.close()
    with recorder.step(requested=9) as step:
        step.replayed(16, "decode/16")
    recorder.mark("late")
    recorder.flush()
    assert recorder.status().dropped == 2
    assert steps(folder) == []
    assert [path.name[:5] for path in folder.iterdir()] == ["part-"]


def test_a_clean_close_leaves_one_part_in_the_schema_of_the_format(
    recorder: Recorder, folder: Path
) -> None:
    recorder.record(requested=1)
    recorder.close()
    (row,) = steps(folder)
    assert list(row) == [column.name for column in COLUMNS]


def test_from_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Recorder.from_environment() is None
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    monkeypatch.delenv("GRAPHDIAG_RUN")
    recorder = Recorder.from_environment({"engine": "mine"}, rank=1)
    assert recorder is not None
    recorder.close()
    (row,) = read(folder)
    assert row["run"] == os.environ["GRAPHDIAG_RUN"] != ""
    assert row["rank"] == 1


def test_what_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(tmp_path / "file")
    with pytest.raises(ValueError, match="axis 'rows' is not one of"):
        Recorder(tmp_path / "trace.parquet", axis="rows")


_I32 = st.integers(0, 2**31 - 1)
_I64 = st.integers(0, 2**63 - 1)
_TEXT = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
_NUMBERS = {
    column.name: st.none() | (_I32 if str(column.type) == "int32" else _I64)
    for column in columns_of("step")
    if str(column.type) in ("int32", "int64")
    and column.name not in (*_FILLED, "requested", "bucket")
}
_RECORDS = st.fixed_dictionaries(
    {"requested": st.integers(1, 2**31 - 1)},
    optional=_NUMBERS | {"artifact": _TEXT, "kind": _TEXT},
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_RECORDS, min_size=1, max_size=6))
def test_records_round_trip(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    with Recorder(folder) as recorder:
        for record in records:
            recorder.record(**record)
    rows = steps(folder)
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        for name, value in record.items():
            if value is None and name in ("t_ns", "step", "weight"):
                continue  # filled in
            assert row[name] == value
