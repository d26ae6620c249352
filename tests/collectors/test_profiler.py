"""Profile windows over a stand-in profiler: each row once, with its figures, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors import Recorder, profiler, profiler_periods, profiler_window
from graphdiag_collectors.control import Refused
from tests.attachable import until
from tests.collectors import profiler_standins
from tests.collectors.profiler_standins import Event, Torch
from tests.collectors.rows import Row, read, steps
from tests.importers.kineto_traces import BASE_NS, replayed_step

MS = 1_000_000


def replaying(notes: list[str]) -> list[Event]:
    """A step of 2 ms a note: one graph of ``number + 1`` kernels, half of the step blocked."""
    events = []
    for number, name in enumerate(notes):
        trace = replayed_step("its annotation", (number + 1) * 10 * MS, 10 * number, number + 1)
        trace[0]["name"] = name
        events += [Event(event, BASE_NS) for event in trace]
    return events


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return profiler_standins.install(monkeypatch)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Iterator[None]:
    monkeypatch.setattr(profiler, "_given", recorder)
    monkeypatch.setattr(profiler, "_guard", None)
    monkeypatch.setattr(profiler, "_warm", True)
    yield
    if profiler.window is not None:
        profiler.window.cancel("the test is over")
        profiler._close()


def opened(count: int, seconds: float = 30) -> profiler_window.Window:
    window = profiler.open_window(count, seconds)
    until(lambda: window.state != "starting")
    return window


def run(recorder: Recorder, count: int, requested: int = 5) -> None:
    for _ in range(count):
        with recorder.step(requested, num_reqs=2) as step:
            step.replayed(8, "decode/8")


def closed(recorder: Recorder, folder: Path) -> list[Row]:
    recorder.close()
    return steps(folder)


def marks(folder: Path, kind: str) -> list[Row]:
    return [row for row in read(folder, "mark") if row["kind"] == kind]


def test_each_step_once_and_the_profiled_ones_with_their_figures(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    run(recorder, 2)
    window = opened(3)
    run(recorder, 6, requested=6)
    assert window.finished.wait(10)
    assert window.state == "done"
    assert profiler.window is None
    assert not {"step", "record", "close"} & set(vars(recorder))
    run(recorder, 2)
    rows = closed(recorder, folder)
    assert [row["requested"] for row in rows] == [5, 5, 6, 6, 6, 6, 6, 6, 5, 5]
    assert [row["step"] for row in rows] == list(range(10))
    assert [row["kernels"] for row in rows] == [None] * 3 + [1, 2, 3] + [None] * 4
    assert [row["graph_kernels"] for row in rows[3:6]] == [1, 2, 3]
    assert [row["gpu_ns"] for row in rows[3:6]] == [7_500, 10_000, 12_500]
    assert [row["gap_ns"] for row in rows[3:6]] == [5_000, 5_500, 6_000]
    assert {row["blocked_ns"] for row in rows[3:6]} == {MS}
    assert {row["graph_launch_ns"] for row in rows[3:6]} == {MS // 2}
    assert {row["launches"] for row in rows[3:6]} == {row["replays"] for row in rows[3:6]} == {1}
    assert {(row["bucket"], row["artifact"], row["num_reqs"]) for row in rows} == {
        (8, "decode/8", 2)
    }
    starts = [row["t_ns"] for row in rows]
    assert starts == sorted(starts)
    assert recorder.status().dropped == 0
    (gpu,) = marks(folder, "gpu_window")
    assert (gpu["kernels"], gpu["launches"]) == (6, 3)
    (mark,) = marks(folder, "profile_window")
    told = json.loads(mark["config"])
    assert (told["steps"], told["error"], told["notes"]) == (3, None, [])
    assert (mark["t_ns"], mark["dur_ns"]) == (BASE_NS + 10 * MS, 22 * MS)
    assert torch.calls == ["cpu+cuda", "prepare", "start", *["annotate"] * 3, "stop", "events"]


def test_an_engine_that_tells_where_its_steps_begin_and_end(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    window = opened(2)
    for number in range(4):
        step = profiler.step_begun()
        with recorder.channel(runner="draft").step(1):
            pass
        if number % 2:
            profiler.step_ended(step)
        recorder.record(9, kind="dummy")
        recorder.record(number + 1, 8, "decode/8", dur_ns=3 * MS, t_ns=BASE_NS, replays=7)
        recorder.record(number + 1, runner="draft")
        if not number % 2:
            profiler.step_ended(step)
    assert window.finished.wait(10)
    rows = closed(recorder, folder)
    target = [row for row in rows if row["runner"] == "target" and row["kind"] is None]
    assert [(row["requested"], row["kernels"]) for row in target] == [
        (1, None),
        (2, 1),
        (3, 2),
        (4, None),
    ]
    assert [row["replays"] for row in target] == [7] * 4  # the engine knows better
    assert [row["host_ns"] for row in target] == [None, MS, MS, None]
    others = [row for row in rows if row not in target]
    assert len(others) == 12
    assert {row["kernels"] for row in others} == {None}


def test_an_asynchronous_engine_says_whose_row_it_is(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    window = opened(3)
    waiting: list[tuple[int, Any]] = []
    for number in range(6):
        step = profiler.step_begun()
        if len(waiting) == 2:
            index, of = waiting.pop(0)
            profiler.record(of, recorder, index + 1)
        profiler.step_ended(step)
        waiting.append((number, step))
    for index, of in waiting:
        profiler.record(of, recorder, index + 1)
    assert window.finished.wait(10)
    rows = closed(recorder, folder)
    assert [(row["requested"], row["kernels"]) for row in rows] == [
        *((1, None), (2, 1), (3, 2), (4, 3), (5, None), (6, None)),
    ]


def test_a_row_that_comes_after_the_profile_was_read_still_gets_its_figures(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_window, "ROW_SECONDS", 0.01)
    torch.serve = replaying
    window = opened(1)
    profiler.step_ended(profiler.step_begun())
    step = profiler.step_begun()
    profiler.step_ended(step)
    assert window.finished.wait(10)
    profiler.record(step, recorder, 4)
    profiler.record(step, recorder, 5)
    assert [row["kernels"] for row in closed(recorder, folder)] == [1, None]


@pytest.mark.parametrize("call", ["prepare", "start", "annotate", "stop", "events"])
def test_a_failure_of_the_profiler_costs_the_figures_only(
    recorder: Recorder, folder: Path, torch: Torch, call: str
) -> None:
    torch.serve = replaying
    torch.fail[call] = RuntimeError("broken")
    window = opened(2)
    run(recorder, 5)
    assert window.finished.wait(10)
    assert window.state == "failed"
    assert "broken" in str(window.error)
    assert profiler.window is None
    run(recorder, 1)
    assert "step" not in vars(recorder)
    rows = closed(recorder, folder)
    assert [row["requested"] for row in rows] == [5] * 6
    assert {row["kernels"] for row in rows} == {None}
    (mark,) = marks(folder, "profile_window")
    assert "broken" in json.loads(mark["config"])["error"]


def test_three_failures_in_a_row_switch_profiling_off(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.fail["prepare"] = RuntimeError("broken")
    for _ in range(3):
        window = opened(1)
        run(recorder, 2)
        assert window.finished.wait(10)
    with pytest.raises(Refused, match=r"switched itself off after failures .*broken"):
        profiler.open_window(1)
    assert len(closed(recorder, folder)) == 6
    (mark,) = marks(folder, "hook_off")
    assert json.loads(mark["config"])["hook"] == "torch.profiler"


def test_a_step_that_raises_is_recorded_and_the_error_is_the_engines(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    window = opened(2)
    for _ in range(3):
        with pytest.raises(KeyError, match="the engine's"), recorder.step(5):
            raise KeyError("the engine's")
    assert window.finished.wait(10)
    assert [row["kernels"] for row in closed(recorder, folder)] == [None, 1, 2]


def test_closing_within_a_window_loses_no_row(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    window = opened(10)
    run(recorder, 5)
    rows = closed(recorder, folder)
    assert len(rows) == 5
    assert window.error == "the recording ended within the window"
    assert torch.calls[-1] == "stop"
    assert profiler.window is None


def test_a_window_given_up_elsewhere_is_stopped_by_the_engines_next_step(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    window = opened(10)
    run(recorder, 3)
    other = threading.Thread(target=window.cancel, args=("no time",))
    other.start()
    other.join()
    assert window.state == "failed"
    assert torch.calls[-1] == "annotate"
    recorder.flush()
    assert len(steps(folder)) == 3
    run(recorder, 2)
    assert torch.calls[-1] == "stop"
    assert profiler.window is None
    assert len(closed(recorder, folder)) == 5


def test_no_step_within_the_time_is_a_failure(recorder: Recorder, torch: Torch) -> None:
    window = opened(2, seconds=0.05)
    assert window.finished.wait(10)
    assert window.error == "no step was profiled within 0.05 s"
    assert torch.calls == []


def test_nothing_is_prepared_or_stopped_within_a_capture(recorder: Recorder, torch: Torch) -> None:
    torch.serve = replaying
    torch.capturing = True
    window = opened(1)
    run(recorder, 3)
    assert torch.calls == []
    torch.capturing = False
    run(recorder, 1)
    torch.capturing = True
    run(recorder, 1)
    torch.capturing = False
    with recorder.step(5):
        torch.capturing = True
    assert torch.calls == ["cpu+cuda", "prepare", "start", "annotate"]
    torch.capturing = False
    run(recorder, 1)
    assert torch.calls[4:5] == ["stop"]
    assert window.finished.wait(10)
    assert window.state == "done"


def test_other_threads_steps_are_recorded_and_not_profiled(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    other = recorder.channel(runner="encoder")
    window = opened(1)
    run(recorder, 1)

    def work() -> None:
        for _ in range(3):
            with other.step(1):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    run(recorder, 1)
    assert window.finished.wait(10)
    rows = closed(recorder, folder)
    assert [row["kernels"] for row in rows if row["runner"] == "encoder"] == [None] * 3
    assert [row["kernels"] for row in rows if row["runner"] == "target"] == [None, 1]


def test_refusals(recorder: Recorder, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    window = opened(1)
    with pytest.raises(Refused, match="a window is open"):
        profiler.open_window(1)
    window.cancel("enough")
    sys.modules["torch"].autograd.profiler._is_profiler_enabled = True  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="another profiler runs"):
        profiler.open_window(1)
    monkeypatch.setattr(profiler, "_given", None)
    with pytest.raises(Refused, match="records nothing"):
        profiler.open_window(1)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(Refused, match="not imported torch"):
        profiler.open_window(1)
    for question in ({}, {"steps": 0}, {"steps": 5, "seconds": -1}, {"window": -1}):
        with pytest.raises(Refused):
            profiler.command(question)


def test_periods(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    period = profiler_periods.parse("every:1000,steps:3,share:0.02")
    assert period == profiler_periods.Period(1000, 3, 0.02)
    assert profiler_periods.parse("every:7") == profiler_periods.Period(7, 5, 0.01)
    assert period.pause(0.2) == pytest.approx(9.8)
    for text in ("", "1000", "every:0", "every:9,share:2", "every:9,share:nan", "every:9,x:1"):
        with pytest.raises(ValueError, match="GRAPHDIAG_PROFILE="):
            profiler_periods.parse(text)

    torch.serve = replaying

    class Over(Exception):
        pass

    def look(seconds: float) -> None:
        time.sleep(seconds / 200)
        if len(windows) == 2:
            raise Over

    windows: list[int] = []
    open_window = profiler.open_window

    def counted(count: int) -> profiler_window.Window:
        windows.append(recorder.status().rows)
        return open_window(count)

    monkeypatch.setattr(profiler, "open_window", counted)
    over = threading.Event()

    def periods() -> None:
        with pytest.raises(Over):
            profiler_periods._run(profiler_periods.Period(20, 2, 1.0), look)
        over.set()

    threading.Thread(target=periods).start()
    deadline = time.monotonic() + 20
    while not over.is_set() and time.monotonic() < deadline:
        run(recorder, 1)
        recorder.flush()
        over.wait(0.002)
    assert over.is_set()
    assert windows[0] >= 20
    assert windows[1] >= windows[0] + 20
    rows = closed(recorder, folder)
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert [row["kernels"] for row in rows if row["kernels"]][:2] == [1, 2]


def test_a_forked_child_begins_without_the_parents_window(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    window = opened(2)
    run(recorder, 2)
    pid = os.fork()
    if pid == 0:
        wrong = 1
        try:
            run(recorder, 3)
            wrong = int(profiler.window is not None or "step" in vars(recorder))
            recorder.close()
        finally:
            os._exit(wrong)
    assert os.waitpid(pid, 0)[1] == 0
    run(recorder, 1)
    assert window.finished.wait(10)
    rows = closed(recorder, folder)
    assert [row["kernels"] for row in rows if row["pid"] == os.getpid()] == [None, 1, 2]
    assert [row["kernels"] for row in rows if row["pid"] == pid] == [None] * 3


def test_a_window_can_be_ended_early_by_another_thread(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    window = opened(100)
    profiler.finish()
    assert window.error == "the recording ended within the window"
    window = opened(100)
    run(recorder, 3)
    thread = threading.Thread(target=profiler.finish, args=(10,))
    thread.start()
    until(lambda: window.wanted < 100)
    run(recorder, 1)
    thread.join()
    assert (window.state, window.error, profiler.window) == ("done", None, None)
    assert torch.calls[-2:] == ["stop", "events"]
    assert [row["kernels"] for row in closed(recorder, folder)] == [None, 1, 2, None]


def test_a_profiler_started_before_the_first_step_wins(recorder: Recorder, torch: Torch) -> None:
    window = opened(1)
    sys.modules["torch"].autograd.profiler._is_profiler_enabled = True  # type: ignore[attr-defined]
    run(recorder, 1)
    assert window.error == "another profiler was started in it meanwhile"
    assert torch.calls == []


@pytest.mark.parametrize("steps_run", [1, 3])
def test_a_prepared_profiler_is_stopped_by_a_step_as_well(
    recorder: Recorder, folder: Path, torch: Torch, steps_run: int
) -> None:
    window = opened(10)
    run(recorder, steps_run)
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(profiler.finish(0.05)))
    thread.start()
    thread.join()
    assert (done, window.engaged) == ([False], True)
    recorder.flush()
    assert len(steps(folder)) == steps_run
    run(recorder, 1)
    assert torch.calls.count("start") == torch.calls.count("stop") == 1
    assert torch.calls[-1] == "stop"
    assert (profiler.window, profiler.finish()) == (None, True)
    assert len(closed(recorder, folder)) == steps_run + 1


def test_a_step_that_is_not_said_to_end_keeps_no_profiler_running(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    window = opened(10)
    for _ in range(3):
        profiler.step_begun()  # the second one raises in the engine
    thread = threading.Thread(target=window.cancel, args=("no time",))
    thread.start()
    thread.join()
    assert profiler.step_begun() is None
    assert torch.calls[-1] == "stop"
    assert profiler.window is None


def test_a_late_row_is_not_taken_for_one_of_the_next_window(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_window, "ROW_SECONDS", 0.01)
    torch.serve = replaying

    def one_window(count: int) -> list[Any]:
        window = opened(count)
        profiler.step_begun()
        begun = []
        for _ in range(count):
            begun.append(profiler.step_begun())
            profiler.step_ended(begun[-1])
        assert window.finished.wait(10)
        return begun

    first = one_window(2)
    window = opened(1)
    profiler.step_begun()
    second = profiler.step_begun()
    profiler.record(first[1], recorder, 1)
    profiler.step_ended(second)
    profiler.record(second, recorder, 2)
    assert window.finished.wait(10)
    assert [(row["requested"], row["kernels"]) for row in closed(recorder, folder)] == [
        *((1, 2), (2, 1)),
    ]


def test_a_child_of_multiprocessing_that_ends_within_a_window_loses_no_row(folder: Path) -> None:
    script = """
    import multiprocessing, sys
    import pytest
    from graphdiag_collectors import Recorder, profiler
    from tests.collectors import profiler_standins

    def work(folder):
        profiler_standins.install(pytest.MonkeyPatch())
        recorder = Recorder(folder)
        profiler.offer(recorder)
        window = profiler.open_window(100)
        while window.state == "starting":
            pass
        for size in range(1, 6):
            with recorder.step(size):
                pass

    if __name__ == "__main__":
        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    """
    root = Path(__file__).parents[2]
    path = f"{root}:{root / 'collectors'}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["requested"] for row in steps(folder)] == [1, 2, 3, 4, 5]
