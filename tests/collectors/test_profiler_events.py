"""Figures of profiled steps: known values, and the same as the importer's for the same events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag_collectors.profiler_events import read_profile
from tests.collectors.profiler_standins import Event
from tests.importers.kineto_traces import (
    BASE_NS,
    call,
    copy,
    eager_step,
    kernel,
    of,
    one_line,
    random_events,
    replayed_step,
    rows,
    step,
    write,
)

FIGURES = (
    "host_ns",
    "blocked_ns",
    "graph_launch_ns",
    "replays",
    "launches",
    "kernels",
    "graph_kernels",
    "gpu_ns",
    "gap_ns",
)


def events_of(trace: list[dict[str, Any]]) -> tuple[list[Event], dict[str, int]]:
    """The events of a trace as torch holds them, its steps renamed by their order in time."""
    notes = [e for e in trace if e.get("cat") == "user_annotation"]
    outer, reached = [], -1.0
    for note in sorted(notes, key=lambda note: note["ts"]):
        if note["ts"] >= reached:
            outer.append(note)
            reached = note["ts"] + note["dur"]
    names = {id(note): f"mine {number}" for number, note in enumerate(outer)}
    events = [Event(e, BASE_NS, names.get(id(e))) for e in trace if e.get("ph") == "X"]
    return events, {name: number for number, name in enumerate(names.values())}


def test_a_replayed_and_an_eager_step() -> None:
    label = "execute_context_0(0)_generation_4(4)"
    trace = [
        *replayed_step(label, 1_000_000, 10),
        *eager_step(label, 9_000_000, 20),
        kernel(500_000, 100, 999),  # of a step before the window
    ]
    profile = read_profile(*events_of(trace))
    assert profile.steps == {
        0: {
            "host_ns": 1_000_000,
            "blocked_ns": 1_000_000,
            "graph_launch_ns": 500_000,
            "replays": 1,
            "launches": 1,
            "kernels": 5,
            "graph_kernels": 5,
            "gpu_ns": 5_000 + 5 * 2_500,
            "gap_ns": 5_000 + 4 * 500,
        },
        1: {
            "host_ns": 4_000_000,
            "blocked_ns": 0,
            "graph_launch_ns": 0,
            "replays": 0,
            "launches": 3,
            "kernels": 3,
            "graph_kernels": 0,
            "gpu_ns": 60_000,
            "gap_ns": 2 * 80_000,
        },
    }
    assert profile.first_ns == BASE_NS + 1_000_000
    assert profile.last_ns == BASE_NS + 13_000_000
    assert profile.window is not None
    assert profile.window["t_ns"] == BASE_NS + 500_000
    assert profile.window["config"]["unlinked_events"] == 1
    assert profile.window["kernels"] == 9


def test_a_profile_without_a_gpu_has_no_device_time() -> None:
    profile = read_profile(*events_of([step("execute_context_0(0)_generation_1(1)", 5_000, 700)]))
    assert profile.window is None
    assert profile.steps == {
        0: {
            "host_ns": 700,
            "blocked_ns": 0,
            "graph_launch_ns": 0,
            "launches": 0,
            "kernels": 0,
            "graph_kernels": 0,
        }
    }
    assert read_profile([], {}).steps == {}


def test_calls_of_other_threads_and_overlapping_streams() -> None:
    trace = [
        step("step[DECODE bs=1]", 1_000, 1_000),
        call("cudaLaunchKernel", 1_100, 10, 1, tid=7),
        call("hipGraphLaunch", 1_200, 30, 2),
        call("cuLaunchKernelEx", 1_210, 5, 2),
        call("cudaMemcpy", 1_400, 50, 3),
        kernel(1_150, 10, 1),
        kernel(5_000, 100, 2),
        kernel(5_050, 100, 2, stream=8),
        copy(5_300, 10, 3),
    ]
    (figures,) = read_profile(*events_of(trace)).steps.values()
    assert figures == {
        "host_ns": 950,
        "blocked_ns": 50,
        "graph_launch_ns": 30,
        "replays": 1,
        "launches": 2,
        "kernels": 2,
        "graph_kernels": 2,
        "gpu_ns": 160,
        "gap_ns": 150,
    }


@given(st.integers(0, 10_000))
def test_the_importer_says_the_same(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    trace = random_events(seed)
    imported = rows(write(tmp_path_factory.mktemp("trace"), one_line(trace)))
    found = of(imported, "step")
    profile = read_profile(*events_of(trace))
    assert len(found) == len(profile.steps) > 0
    for number, row in enumerate(sorted(found, key=lambda row: row["t_ns"])):
        figures = profile.steps[number]
        assert {name: figures.get(name) for name in FIGURES} == {n: row.get(n) for n in FIGURES}
    (mark,) = [row for row in imported if row.get("kind") == "gpu_window"]
    assert profile.window is not None
    told = {**profile.window, "config": json.dumps(profile.window["config"])}
    assert json.loads(mark.pop("config")) == json.loads(told.pop("config"))
    assert {name: mark[name] for name in told} == told
