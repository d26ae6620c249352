"""The real traces give the figures of truth.json, to the nanosecond."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.kineto_traces import config, of, rows

SERVING = ("vllm_decode_full", "sglang_decode")


def read(shared: Path, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    truth = json.loads((shared / "traces" / "truth.json").read_text())["traces"][name]
    return rows(shared / "traces" / f"{name}.json.gz"), truth


@pytest.mark.parametrize("name", SERVING)
def test_step_figures(shared: Path, name: str) -> None:
    found, truth = read(shared, name)
    steps = of(found, "step")
    assert len(steps) == truth["step_count"] == 1
    (row,), (want,) = steps, truth["steps"]
    requests = want["context_reqs"] + want["generation_reqs"]
    assert row["num_reqs"] == row["requested"] == requests
    assert row["num_tokens"] == want["tokens_total_in_name"]
    assert row["kv_tokens"] == want["context_agg"]["sk"] + want["generation_agg"]["sk"]
    assert row["dur_ns"] == want["step_cpu_dur_ns"]
    assert row["launches"] == want["launch_calls"]
    assert row["replays"] == want["graph_launches"]
    assert row["graph_launch_ns"] == want["graph_launch_host_ns"]
    assert row["kernels"] == want["kernels_in_graphs"] + want["kernels_outside_graphs"]
    assert row["graph_kernels"] == want["kernels_in_graphs"]
    assert row["gpu_ns"] == want["gpu_busy_union_ns"]
    assert row["gap_ns"] == want["gpu_idle_in_span_ns"]
    assert row["gpu_ns"] + row["gap_ns"] == want["gpu_span_ns"]
    assert row["host_ns"] + row["blocked_ns"] == want["step_cpu_dur_ns"]
    assert (row["mode"], row["phase"], row["query_len"]) == ("full", "decode", 1)
    assert row["bucket"] is row["outcome"] is row["artifact"] is None


@pytest.mark.parametrize("name", SERVING)
def test_window_figures(shared: Path, name: str) -> None:
    found, truth = read(shared, name)
    (mark,), (want,) = of(found, "mark"), truth["steps"]
    (step,) = of(found, "step")
    assert mark["kind"] == "gpu_window"
    assert mark["t_ns"] - step["t_ns"] == want["gpu_first_start_minus_step_start_ns"]
    last_end = mark["t_ns"] + mark["dur_ns"] - step["t_ns"]
    assert last_end == want["gpu_last_end_minus_step_start_ns"]
    assert mark["dur_ns"] == want["gpu_span_ns"]
    assert mark["gpu_ns"] == want["gpu_busy_union_ns"]
    assert mark["gap_ns"] == want["gpu_idle_in_span_ns"]
    assert mark["launches"] == want["launch_calls"]
    assert mark["kernels"] == want["kernels_in_graphs"] + want["kernels_outside_graphs"]
    assert mark["graph_kernels"] == want["kernels_in_graphs"]
    details = json.loads(mark["config"])
    assert details["graph_launches"] == want["graph_launches"]
    assert details["graph_launch_ns"] == want["graph_launch_host_ns"]
    assert details["kernels_outside_graphs"] == want["kernels_outside_graphs"]
    assert details["gpu_events"] == truth["gpu_events_total"] == want["gpu_events"]
    in_graphs = want["kernels_in_graphs"] + want["memcpy_in_graphs"]
    assert details["gpu_events_in_graphs"] == in_graphs
    assert details["graph_gpu_busy_ns"] == want["graph_kernel_busy_union_ns"]
    assert details["unlinked_events"] == truth["gpu_events_without_runtime_parent"]


def test_engines_and_clock(shared: Path) -> None:
    vllm, truth = read(shared, "vllm_decode_full")
    sglang, _ = read(shared, "sglang_decode")
    assert (config(vllm)["engine"], config(sglang)["engine"]) == ("vllm", "sglang")
    assert of(vllm, "step")[0]["axis"] == "tokens"
    assert of(sglang, "step")[0]["axis"] == "requests"
    start = of(vllm, "step")[0]["t_ns"]
    assert start - truth["baseTimeNanoseconds"] == 6_520_618_853_487_683
    assert any("back to back" in note for note in config(vllm)["notes"])


def test_blocking_copy_is_kept_out_of_host_time(shared: Path) -> None:
    found, truth = read(shared, "sglang_decode")
    (row,) = of(found, "step")
    name, duration = truth["steps"][0]["longest_runtime_call"]
    assert name == "hipMemcpyWithStream"
    assert row["blocked_ns"] == duration
    assert row["host_ns"] == truth["steps"][0]["step_cpu_dur_ns"] - duration


def test_training_trace_has_gpu_figures_and_no_steps(shared: Path) -> None:
    found, truth = read(shared, "nvidia_training_rank0")
    want = truth["whole_trace"]
    assert not of(found, "step")
    (mark,) = of(found, "mark")
    details = json.loads(mark["config"])
    assert details["gpu_events"] == want["gpu_events"]
    assert details["gpu_events_in_graphs"] == want["gpu_events_under_graph_launch"]
    assert details["graph_launches"] == want["graph_launches"]
    assert details["unlinked_events"] == want["gpu_events_without_runtime_call"]
    assert details["graph_gpu_busy_ns"] == want["graph_gpu_busy_us"] * 1000
    assert mark["dur_ns"] == want["gpu_span_us"] * 1000
    assert mark["gpu_ns"] == want["gpu_busy_union_us"] * 1000
    assert mark["gap_ns"] == want["gpu_idle_us"] * 1000
    run = config(found)
    assert run["engine"] is None
    assert run["device"] == "NVIDIA A100-SXM4-80GB"
    notes = " ".join(run["notes"])
    for words in ("872 of 7,747", "whole microseconds", "No step of vLLM or SGLang"):
        assert words in notes
    assert "back to back" not in notes  # that is HIP's, and this is CUDA
