"""What the importer makes of steps, graphs, GPU time and of what a trace leaves open."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphdiag.importers import kineto, registry
from graphdiag.importers.source import Source
from graphdiag_collectors.schema import arrow_schema
from tests.importers.kineto_traces import (
    BASE_NS,
    HEADER,
    call,
    config,
    copy,
    eager_step,
    event,
    kernel,
    of,
    one_line,
    replayed_step,
    rows,
    step,
    us,
    write,
)

DECODE = "execute_context_0(0)_generation_8(8)"
PREFILL = "execute_context_2(600)_generation_0(0)"


def read(tmp_path: Path, events: list[dict[str, Any]], **header: Any) -> list[dict[str, Any]]:
    return rows(write(tmp_path, one_line(events, {**HEADER, **header})))


def notes(found: list[dict[str, Any]]) -> str:
    return " ".join(config(found)["notes"])


def test_batches_are_of_the_format_and_the_registry_knows_them(tmp_path: Path) -> None:
    path = write(tmp_path, one_line(replayed_step(DECODE, 1_000_000, 1)))
    importer = registry.recognise(Source(str(path)))
    assert importer.NAME == "kineto"
    for batch in importer.read([Source(str(path))]):
        assert batch.schema.equals(arrow_schema(), check_metadata=True)


def test_a_replayed_step(tmp_path: Path) -> None:
    found = read(tmp_path, replayed_step(DECODE, 1_000_000, 1, kernels=5))
    (row,) = of(found, "step")
    told = {key: value for key, value in row.items() if value is not None}
    assert told == {
        "event": "step",
        "t_ns": BASE_NS + 1_000_000,
        "dur_ns": 2_000_000,
        "run": "ABCD",
        "rank": 3,
        "pid": 100,
        "step": 0,
        "weight": 1,
        "runner": "target",
        "phase": "decode",
        "axis": "tokens",
        "requested": 8,
        "num_reqs": 8,
        "num_tokens": 8,
        "query_len": 1,
        "fallback": False,
        "mode": "full",
        "replays": 1,
        "host_ns": 1_000_000,
        "blocked_ns": 1_000_000,
        "graph_launch_ns": 500_000,
        "gpu_ns": 5_000 + 5 * 2_500,
        "gap_ns": 5_000 + 4 * 500,
        "launches": 1,
        "kernels": 5,
        "graph_kernels": 5,
        "tokens_out": 8,
    }
    run = config(found)
    assert (run["engine"], run["device"], run["driver"]) == ("vllm", "NVIDIA H200", "12080")
    assert (run["importer"], run["world_size"]) == ("kineto", 8)
    assert "does not name the captured size" in notes(found)


def test_eager_steps_are_fallback_only_where_their_phase_replays(tmp_path: Path) -> None:
    events = [
        *replayed_step(DECODE, 1_000_000, 1),
        *eager_step(DECODE, 11_000_000, 100),
        *eager_step(PREFILL, 21_000_000, 200),
        step(DECODE, 31_000_000, 1_000_000),
    ]
    found = read(tmp_path, events)
    fates = [
        (r["phase"], r["mode"], r["outcome"], r["reason"], r["fallback"]) for r in of(found, "step")
    ]
    assert fates == [
        ("decode", "full", None, None, False),
        ("decode", "eager", "fallback", "unknown", True),
        ("prefill", "eager", None, None, None),
        ("decode", None, None, None, None),  # no launch seen: nothing is known
    ]
    assert [r["step"] for r in of(found, "step")] == [0, 1, 2, 3]
    assert "No prefill step replays a graph here" in notes(found)
    assert "No decode step" not in notes(found)
    assert of(found, "step")[3]["gpu_ns"] is None


def test_modes_by_what_the_launches_ran(tmp_path: Path) -> None:
    def with_graphs(start: int, sizes: list[int], eager: int) -> list[dict[str, Any]]:
        events = [step(DECODE, start, 4_000_000)]
        at = start + 5_000_000
        for i, size in enumerate(sizes):
            correlation = start // 1000 + i
            events.append(call("cudaGraphLaunch", start + 1000 * i, 500, correlation))
            events += [kernel(at + 10 * j, 5, correlation) for j in range(size)]
        for i in range(eager):
            correlation = start // 1000 + 100 + i
            events.append(call("cudaLaunchKernel", start + 100_000 + 1000 * i, 500, correlation))
            events.append(kernel(at + 10_000 + i, 1, correlation))
        return events

    events = [
        *with_graphs(10_000_000, [40], eager=100),
        *with_graphs(20_000_000, [4, 12, 15, 15, 15], eager=8),
        *with_graphs(30_000_000, [400, 12, 12, 12], eager=3),  # a drafter's beside the full one
        *with_graphs(40_000_000, [0, 0], eager=0),
    ]
    found = read(tmp_path, events)
    assert [r["mode"] for r in of(found, "step")] == ["full", "piecewise", "full", "piecewise"]
    assert [r["replays"] for r in of(found, "step")] == [1, 5, 4, 2]
    assert "2 of 12 graph launches have no GPU event" in notes(found)


def test_nested_labels_count_once_and_twins_not_at_all(tmp_path: Path) -> None:
    events = [
        *replayed_step(DECODE, 1_000_000, 1),
        step("step[DECODE bs=8]", 1_100_000, 1_500_000),
        event("gpu_user_annotation", DECODE, 4_000_000, 1_000, pid=0, tid=7),
        step("step[DECODE bs=2]", 1_200_000, 100, tid=101),  # another thread's own step
        step("ProfilerStep#7", 900_000, 9_000_000),
    ]
    found = read(tmp_path, events)
    steps = of(found, "step")
    assert [(r["axis"], r["requested"]) for r in steps] == [("requests", 8), ("requests", 2)]
    assert config(found)["engine"] == "sglang"
    assert [r["kernels"] for r in steps] == [5, 0]


def test_draft_loop_names_its_bucket(tmp_path: Path) -> None:
    loop = "step[DRAFT_LOOP raw_bs={} bs=4 topk=1]"
    events = [
        *replayed_step(loop.format(3), 1_000_000, 1),
        *replayed_step(loop.format(4), 11_000_000, 10),
        *eager_step(loop.format(3), 21_000_000, 20),
        *replayed_step("step[VERIFY bs=3]", 31_000_000, 30),
        step("step[DRAFT bs=3]", 1_100_000, 100_000),
    ]
    steps = of(read(tmp_path, events), "step")
    told = [(r["runner"], r["requested"], r["bucket"], r["outcome"]) for r in steps]
    assert told == [
        ("draft", 3, 4, "padded"),
        ("draft", 4, 4, "exact"),
        ("draft", 3, None, "fallback"),
        ("target", 3, None, None),
    ]
    assert [r["padding_ratio"] for r in steps] == [pytest.approx(1 / 3), 0, None, None]
    assert [r["step"] for r in steps] == [0, 1, 2, 0]  # counted in each runner


def test_idle_steps_are_no_real_steps(tmp_path: Path) -> None:
    events = [
        *replayed_step("step[DECODE bs=4]", 1_000_000, 1),
        *eager_step("step[IDLE bs=0]", 11_000_000, 10),
    ]
    steps = of(read(tmp_path, events), "step")
    assert [(r["kind"], r["outcome"]) for r in steps] == [(None, None), ("filler", None)]


def test_capture_inside_a_step(tmp_path: Path) -> None:
    events = [
        *eager_step(DECODE, 1_000_000, 1),
        call("cudaStreamBeginCapture", 2_000_000, 10, 50),
        call("cudaStreamEndCapture", 2_500_000, 10, 51),
        call("cudaGraphInstantiateWithFlags", 2_600_000, 100_000, 52),
        *replayed_step(DECODE, 21_000_000, 60),
    ]
    steps = of(read(tmp_path, events), "step")
    assert [(r["outcome"], r["compile_ns"]) for r in steps] == [("capture", 700_000), (None, None)]


def test_annotated_captures(tmp_path: Path) -> None:
    events = [
        step("capture_16_FULL", 1_000_000, 300_000),
        step("capture_8_PIECEWISE", 2_000_000, 200_000),
    ]
    found = read(tmp_path, events)
    told = [
        (r["size"], r["mode"], r["artifact"], r["t_ns"] - BASE_NS, r["dur_ns"], r["weight"])
        for r in of(found, "capture")
    ]
    assert told == [
        (16, "full", "full/16", 1_000_000, 300_000, 1),
        (8, "piecewise", "piecewise/8", 2_000_000, 200_000, 1),
    ]
    assert not of(found, "mark")
    assert "no GPU event and no runtime call" in notes(found)


def test_gpu_time_is_charged_by_correlation_not_by_overlap(tmp_path: Path) -> None:
    events = [
        step(DECODE, 1_000_000, 1_000_000),
        step(DECODE, 2_000_000, 1_000_000),
        call("cudaLaunchKernel", 1_999_999, 10, 1),
        call("cudaLaunchKernel", 2_000_000, 10, 2),
        call("cudaLaunchKernel", 2_500_000, 10, 3, tid=101),  # another thread's
        kernel(2_100_000, 700, 1),
        kernel(1_500_000, 800, 2),  # "before" its call: clocks of two devices
        kernel(2_600_000, 900, 3),
        kernel(2_700_000, 50, 99),  # launched before the trace began
    ]
    found = read(tmp_path, events)
    assert [r["gpu_ns"] for r in of(found, "step")] == [700, 800]
    (mark,) = of(found, "mark")
    assert (mark["gpu_ns"], mark["kernels"], mark["launches"]) == (2450, 4, 3)
    assert json.loads(mark["config"])["unlinked_events"] == 1
    assert "1 of 4 GPU events are unlinked" in notes(found)


def test_overlapping_streams_are_busy_once(tmp_path: Path) -> None:
    events = [
        step(DECODE, 0, 1_000_000),
        *(call("cudaLaunchKernel", i, 1, i) for i in (1, 2, 3)),
        kernel(1000, 500, 1, stream=7),
        kernel(1200, 100, 2, stream=8),
        kernel(1400, 300, 3, stream=8),
        copy(2000, 100, 4),
    ]
    (row,) = of(read(tmp_path, events), "step")
    assert (row["gpu_ns"], row["gap_ns"]) == (700, 0)


def test_no_launch_recognised_is_said_loudly(tmp_path: Path) -> None:
    events = [step(DECODE, 0, 1_000_000), call("musaLaunch", 5, 1, 1), kernel(1000, 500, 1)]
    found = read(tmp_path, events)
    assert "No launch recognised: no runtime call launches" in notes(found)
    assert of(found, "step")[0]["mode"] is None


def test_times_without_a_base(tmp_path: Path) -> None:
    at = 1_683_564_901_540_885_321
    events = [step(DECODE, 0, 1000), call("cudaLaunchKernel", 1, 1, 1), kernel(5, 7, 1)]
    for each in events:
        each["ts"] = f"@{at + round(each['ts'] * 1000)}@"
    text = one_line(events, {**HEADER, "baseTimeNanoseconds": 0})
    for each in events:
        ns = int(each["ts"].strip("@"))
        text = text.replace(f'"{each["ts"]}"', f"{ns // 1000}.{ns % 1000:03}")
    found = rows(write(tmp_path, text))
    # float64 would be off by up to 125 ns here
    assert of(found, "step")[0]["t_ns"] == at
    assert of(found, "mark")[0]["t_ns"] == at + 5
    assert (of(found, "mark")[0]["dur_ns"], of(found, "step")[0]["gpu_ns"]) == (7, 7)


def test_absolute_times_stay_whatever_base_the_header_names(tmp_path: Path) -> None:
    events = replayed_step(DECODE, 1_683_564_901_540_885_000, 1)
    for each in events:
        each["ts"], each["dur"] = round(each["ts"]), round(each["dur"])
    found = read(tmp_path, events)
    assert of(found, "step")[0]["t_ns"] == 1_683_564_901_540_885_000
    assert "whole microseconds" in notes(found)


def test_several_files_are_ranks_or_windows_of_one_run(tmp_path: Path) -> None:
    paths = [
        write(
            tmp_path,
            one_line(
                replayed_step(DECODE, start, 1),
                {**HEADER, "distributedInfo": {"rank": rank}},
            ),
            f"{index}.json",
        )
        for index, (rank, start) in enumerate([(0, 1_000_000), (1, 1_000_000), (0, 99_000_000)])
    ]
    found = rows(*paths)
    told = [(r["run"], r["rank"], r["step"]) for r in of(found, "step")]
    assert told == [("ABCD", 0, 0), ("ABCD", 1, 0), ("ABCD", 0, 1)]
    assert len(of(found, "mark")) == len(of(found, "run")) == 3


def test_run_is_named_after_the_file_where_the_trace_has_no_id(tmp_path: Path) -> None:
    header = {key: value for key, value in HEADER.items() if key != "trace_id"}
    text = one_line(replayed_step(DECODE, 1_000_000, 1), header)
    found = rows(write(tmp_path, text, "host_12.pt.trace.json"))
    assert {r["run"] for r in found} == {"host_12"}


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (b'{"schemaVersion": 1, "deviceProperties": [', True),
        (b'\xef\xbb\xbf\n{"traceEvents": [', True),
        (b'{"displayTimeUnit": "ns",\n "traceEvents" : [ {}', True),
        (b'[\n {"name": "a", "ph": "M", "ts": 0}', True),
        (b'{"a": 1}', False),
        (b'{"note": "traceEvents"}', False),
        (b"[1, 2]", False),
        (b"[2025-01-01 10:00:00] Decode batch", False),
        (b'[2025-01-01] {"ph": "X", "ts": 1}', False),
        (b"INFO traceEvents: []", False),
        (b"PAR1", False),
        (b"", False),
    ],
)
def test_recognition_by_content(head: bytes, known: bool) -> None:
    assert kineto.recognises(head) is known


def test_trace_of_something_else(tmp_path: Path) -> None:
    browser = [{"name": "Paint", "ph": "X", "cat": "blink", "ts": us(5), "dur": us(1)}]
    found = read(tmp_path, browser)
    assert [r["event"] for r in found] == ["run"]
    assert "no GPU event and no runtime call" in notes(found)
    assert "No step of vLLM or SGLang" in notes(found)
    assert found[0]["t_ns"] is None
    assert config(found)["engine"] is None
