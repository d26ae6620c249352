"""Profile windows over hooked runners of vLLM, with a stand-in profiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import profiler, session
from tests.attachable import until
from tests.collectors import profiler_standins, test_vllm_v2
from tests.collectors.profiler_standins import Event, Torch
from tests.collectors.rows import Row, steps
from tests.collectors.test_vllm_v1 import Make, make
from tests.collectors.vllm_standins import plan
from tests.importers.kineto_traces import BASE_NS, replayed_step

__all__ = ["make", "make_v2"]
MS = 1_000_000
ASYNCHRONOUS = SimpleNamespace(async_scheduling=True, max_num_seqs=8, max_num_batched_tokens=64)
make_v2 = test_vllm_v2.make


def replaying(notes: list[str]) -> list[Event]:
    """A step of 2 ms a note: one graph of ``number + 1`` kernels."""
    events = []
    for number, name in enumerate(notes):
        trace = replayed_step("its annotation", (number + 1) * 10 * MS, 10 * number, number + 1)
        trace[0]["name"] = name
        events += [Event(event, BASE_NS) for event in trace]
    return events


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Torch]:
    torch = profiler_standins.install(monkeypatch)
    torch.serve = replaying
    for name, value in (("_given", None), ("_guard", None), ("_warm", True), ("_last", None)):
        monkeypatch.setattr(profiler, name, value)
    yield torch
    if profiler.window is not None:
        profiler.window.cancel("the test is over")
        profiler._close()


def opened(count: int) -> Any:
    window = profiler.open_window(count, 30)
    until(lambda: window.state != "starting")
    return window


def done(window: Any) -> None:
    assert window.finished.wait(20)
    assert window.state == "done", window.error


def figures(rows: list[Row]) -> list[tuple[int, int | None]]:
    return [(row["requested"], row["kernels"]) for row in rows]


def test_profiled_steps_have_their_figures(make: Make) -> None:
    engine = make("0.32")
    engine.step(1)
    window = opened(2)
    engine.step(2)  # prepares the profiler
    assert engine.runner.execute_model(plan()) == "empty"
    engine.step(3)
    engine.runner._dummy_run(7)
    engine.step(3, (6,))
    done(window)
    engine.step(5)
    rows = [row for row in engine.rows() if row["kind"] is None]
    assert figures(rows) == [(1, None), (2, None), (3, 1), (9, 2), (5, None)]
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    for row, kernels in zip(rows[2:4], (1, 2), strict=True):
        assert row["launches"] == 1
        assert row["graph_kernels"] == kernels
        assert 0 <= row["host_ns"] <= row["dur_ns"]
        assert row["dispatch_ns"] > 0
    assert [row["phase"] for row in rows] == ["decode", "decode", "decode", "mixed", "decode"]
    assert [row["kv_tokens"] for row in rows] == [101, 202, 303, 309, 505]
    assert engine.state.hooks.describe()["failures"] == {}


def test_results_that_come_later_go_to_their_own_steps(make: Make) -> None:
    engine = make("0.32", scheduler_config=ASYNCHRONOUS)
    engine.runner.wrap = engine.output
    engine.step(1).get_output()
    before = engine.step(2)
    window = opened(2)
    preparing = engine.step(3)
    before.get_output()
    first = engine.step(4)
    preparing.get_output()
    second = engine.step(5)
    first.get_output()
    after = engine.step(6)
    second.get_output()
    done(window)
    after.get_output()
    engine.step(7).get_output()
    rows = engine.rows()
    assert figures(rows) == [
        *((1, None), (2, None), (3, None), (4, 1), (5, 2), (6, None), (7, None))
    ]
    assert all(row["dur_ns"] > 0 for row in rows)
    assert [row["tokens_out"] for row in rows] == [row["requested"] for row in rows]


def test_a_step_that_raises_does_not_stop_the_window(make: Make) -> None:
    engine = make("0.32")
    engine.step(1)
    window = opened(2)
    engine.step(2)
    engine.runner.fail = True
    with pytest.raises(RuntimeError, match="the model"):
        engine.step(3)
    engine.runner.fail = False
    engine.step(4)
    done(window)
    assert figures(engine.rows()) == [(1, None), (2, None), (4, 2)]


@pytest.mark.parametrize("version", ["0.19", "0.32"])
def test_the_second_runner(make_v2: Any, folder: Path, version: str) -> None:
    engine = make_v2(version)
    engine.step(1)
    window = opened(2)
    engine.step(2)
    engine.runner.execute_model(plan(8), dummy_run=True)
    engine.step(3)
    engine.step(4)
    done(window)
    engine.step(5)
    session.close()
    rows = [row for row in steps(folder) if row["kind"] is None]
    assert figures(rows) == [(1, None), (2, None), (3, 1), (4, 2), (5, None)]
    assert engine.state.hooks.describe()["failures"] == {}
