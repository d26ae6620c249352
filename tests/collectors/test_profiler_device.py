"""Sampled event pairs over a stand-in device: each row once and in order, and nobody waits."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors import Recorder, profiler, profiler_device, profiler_periods
from graphdiag_collectors.profiler_device import DeviceTimer
from tests.collectors import profiler_standins
from tests.collectors.profiler_standins import CudaEvent, Torch
from tests.collectors.rows import Row, read, steps

MS = 1_000_000


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    monkeypatch.setattr(CudaEvent, "made", 0)
    return profiler_standins.install(monkeypatch)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Iterator[None]:
    monkeypatch.setattr(profiler, "_given", recorder)
    monkeypatch.setattr(profiler, "_guard", None)
    monkeypatch.setattr(profiler, "_warm", True)
    yield
    profiler.finish(0)
    assert profiler.window is None


def run(recorder: Recorder, torch: Torch, *sizes: int, **columns: Any) -> None:
    """Run steps whose device time is their size in ms."""
    for size in sizes:
        with recorder.step(size, **columns) as step:
            torch.now_ms += size
            step.replayed(64, "decode/64")


def spans(folder: Path) -> list[tuple[int, int | None]]:
    return [(row["requested"], row["gpu_span_ns"]) for row in steps(folder)]


def told(folder: Path) -> dict[str, Any]:
    (mark,) = (row for row in read(folder, "mark") if row["kind"] == profiler_device.DEVICE_TIME)
    config: dict[str, Any] = json.loads(mark["config"])
    return config


def in_order(rows: list[Row]) -> bool:
    starts = [row["t_ns"] for row in rows]
    return starts == sorted(starts) and [row["step"] for row in rows] == list(range(len(rows)))


def test_every_nth_step_has_its_time_on_the_device(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    timer = profiler.time_steps(recorder, 3)
    assert profiler.window is timer
    run(recorder, torch, *range(1, 9), tokens_out=2)
    recorder.close()
    assert spans(folder) == [
        *((1, None), (2, None), (3, 3 * MS), (4, None), (5, None), (6, 6 * MS), (7, None)),
        (8, None),
    ]
    rows = steps(folder)
    assert in_order(rows)
    assert {(row["bucket"], row["artifact"], row["tokens_out"]) for row in rows} == {
        (64, "decode/64", 2)
    }
    assert {row["gpu_ns"] for row in rows} == {None}  # a span is no busy time
    assert told(folder) == {"every": 3, "timed": 2, "untimed": {}, "error": None}
    assert profiler.window is None
    assert not {"step", "record", "close", "channel"} & set(vars(recorder))


def test_rows_wait_for_the_device_in_order_and_no_longer(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    other = recorder.channel(runner="encoder")
    profiler.time_steps(recorder, 2)
    torch.reached_ms = 0
    run(recorder, torch, 1, 2, 3)
    other.record(7)
    recorder.flush()
    # The sampled step and the one after it on its channel wait; other channels do not.
    assert sorted(row["requested"] for row in steps(folder)) == [1, 7]
    torch.reached_ms = 3
    run(recorder, torch, 4, 5)
    recorder.flush()
    target = [row for row in steps(folder) if row["runner"] == "target"]
    assert [(row["requested"], row["gpu_span_ns"]) for row in target] == [
        *((1, None), (2, 2 * MS), (3, None)),
    ]
    torch.reached_ms = math.inf
    recorder.close()
    target = [row for row in steps(folder) if row["runner"] == "target"]
    assert [(row["requested"], row["gpu_span_ns"]) for row in target][3:] == [
        (4, 4 * MS),
        (5, None),
    ]
    assert in_order(target)
    assert CudaEvent.made == 2  # one pair, used again


def test_an_engine_that_tells_of_its_steps_and_records_later(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    late = recorder.channel()
    profiler.time_steps(recorder, 2)
    waiting: list[tuple[int, Any]] = []
    for number in range(7):
        step = profiler.window and profiler.step_begun()
        torch.now_ms += number
        torch.reached_ms = torch.now_ms - 3
        if len(waiting) == 2:
            index, of = waiting.pop(0)
            profiler.record(of, late, index + 1)
        if step is not None:
            profiler.step_ended(step)
        waiting.append((number, step))
    for index, of in waiting:
        profiler.record(of, late, index + 1)
    torch.reached_ms = math.inf
    recorder.close()
    assert spans(folder) == [
        *((1, None), (2, MS), (3, None), (4, 3 * MS), (5, None), (6, 5 * MS), (7, None)),
    ]
    assert in_order(steps(folder))


def test_a_plain_row_belongs_to_the_sampled_step_of_its_model_and_thread(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 2)
    for number in range(1, 5):
        step = profiler.step_begun()
        torch.now_ms += number
        recorder.record(9, kind="dummy")
        recorder.record(9, runner="draft")
        thread = threading.Thread(target=recorder.record, args=(8,))
        thread.start()
        thread.join()
        if number % 4:
            recorder.record(number)
        profiler.step_ended(step)
    profiler.step_begun()  # the last sampled step had no row: the next row is not its own
    recorder.record(5)
    recorder.close()
    assert [row for row in spans(folder) if row[0] < 8] == [
        *((1, None), (2, 2 * MS), (3, None), (5, None)),
    ]
    assert {span for size, span in spans(folder) if size > 7} == {None}


def test_nothing_is_recorded_or_asked_within_a_capture(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 2)
    run(recorder, torch, 1)
    torch.capturing = True
    run(recorder, torch, 2)
    torch.capturing = False
    torch.reached_ms = 0
    run(recorder, torch, 3)  # sampled in place of the one before
    torch.capturing = True
    run(recorder, torch, 4)
    torch.capturing = False
    torch.reached_ms = math.inf
    with recorder.step(5):  # sampled; a capture begins in it
        torch.capturing = True
    torch.capturing = False
    run(recorder, torch, 6)
    recorder.close()
    assert spans(folder) == [
        *((1, None), (2, None), (3, 3 * MS), (4, None), (5, None), (6, None)),
    ]
    assert told(folder)["untimed"] == {"a capture was under way": 1}


def test_a_step_that_ends_on_another_stream_has_no_time(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    with recorder.step(1):
        torch.stream = "another"
    run(recorder, torch, 2)
    recorder.close()
    assert spans(folder) == [(1, None), (2, 2 * MS)]
    assert told(folder)["untimed"] == {"it ended on another stream": 1}


@pytest.mark.parametrize("call", ["record", "query", "elapsed_time"])
def test_events_that_raise_cost_the_times_and_then_the_sampling(
    recorder: Recorder, folder: Path, torch: Torch, call: str
) -> None:
    profiler.time_steps(recorder, 1)
    torch.fail[call] = RuntimeError("CUDA error")
    run(recorder, torch, *range(1, 9))
    assert profiler.window is None
    assert "step" not in vars(recorder)
    recorder.close()
    assert spans(folder) == [(size, None) for size in range(1, 9)]
    assert in_order(steps(folder))
    assert told(folder)["error"] == (
        "it switched itself off after failures (RuntimeError: CUDA error)"
    )
    (off,) = (row for row in read(folder, "mark") if row["kind"] == "hook_off")
    assert json.loads(off["config"])["hook"] == "torch.device_time"


def test_a_failure_now_and_then_costs_a_time_or_two(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    for size in range(1, 9):
        torch.fail = {"query": RuntimeError("CUDA error")} if size in (3, 6) else {}
        run(recorder, torch, size)
    recorder.close()
    assert [size for size, span in spans(folder) if span is None] == [2, 3, 5, 6]
    assert told(folder) == {
        **{"every": 1, "timed": 4, "untimed": {"its events raised": 2}, "error": None},
    }


def test_a_time_that_is_none_is_none(recorder: Recorder, folder: Path, torch: Torch) -> None:
    profiler.time_steps(recorder, 1)
    for later in (-5.0, math.nan):
        with recorder.step(1):
            torch.now_ms += later
        torch.now_ms, torch.reached_ms = 0, math.inf
    recorder.close()
    assert spans(folder) == [(1, None)] * 2
    assert sum(told(folder)["untimed"].values()) == 2


def test_a_busy_device_costs_times_and_no_rows(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    timer = profiler.time_steps(recorder, 1)
    torch.reached_ms = -1
    run(recorder, torch, *range(1, 21))
    recorder.flush()
    assert len(steps(folder)) == 20 - profiler_device.RING
    timer.tidy()
    recorder.flush()
    assert len(steps(folder)) == 20 - profiler_device.RING  # not old yet
    torch.reached_ms = math.inf
    run(recorder, torch, 21)
    recorder.close()
    timed = [size for size, span in spans(folder) if span is not None]
    assert timed == list(range(5, 22))
    assert in_order(steps(folder))
    assert told(folder)["untimed"] == {"too many were under way": 4}


def test_what_no_step_asks_for_is_recorded_without_a_time_before_long(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_device, "OLD_SECONDS", 0.0)
    monkeypatch.setattr(profiler_device, "LOST_SECONDS", 0.0)
    timer = profiler.time_steps(recorder, 2)
    run(recorder, torch, 1, 2)
    calls = list(torch.calls)
    timer.tidy()
    recorder.flush()
    assert spans(folder) == [(1, None), (2, None)]
    profiler.step_begun()
    step = profiler.step_begun()  # and it raises, so that nobody says it ended
    assert step is not None
    timer.tidy()
    profiler.step_ended(step)
    assert torch.calls == [*calls, "record"]  # that thread asks for no event
    run(recorder, torch, 3, 4, 5)
    recorder.close()
    assert spans(folder)[2:] == [(3, None), (4, 4 * MS), (5, None)]
    assert told(folder)["untimed"] == {"not known within 0 s": 1, "it was not said to end": 1}


def test_too_many_rows_are_not_held(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_device, "MOST_ROWS", 3)
    profiler.time_steps(recorder, 1)
    step = profiler.step_begun()
    for size in range(1, 7):
        profiler.record(step, recorder, size)
    recorder.flush()
    assert len(steps(folder)) == 6
    profiler.step_ended(step)


def test_closing_asks_once_and_waits_for_nothing(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    torch.reached_ms = 1
    run(recorder, torch, 1, 2, 3)
    recorder.close()
    assert spans(folder) == [(1, MS), (2, None), (3, None)]
    assert told(folder) == {
        **{"every": 1, "timed": 1, "untimed": {"the recording ended": 2}, "error": None},
    }


def test_detaching_asks_for_nothing_in_another_thread(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    run(recorder, torch, 1, 2)
    thread = threading.Thread(target=profiler.finish)
    thread.start()
    thread.join()
    assert profiler.window is None
    assert torch.calls.count("query") == 1
    run(recorder, torch, 3)
    recorder.close()
    assert spans(folder) == [(1, MS), (2, None), (3, None)]


def test_without_cuda_it_is_refused_in_words(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    torch.ready = False
    profiler.time_steps(recorder, 2)
    run(recorder, torch, 1, 2, 3, 4)
    assert profiler.window is None
    run(recorder, torch, 5)
    recorder.close()
    assert spans(folder) == [(size, None) for size in range(1, 6)]
    assert torch.calls == []
    assert told(folder)["error"] == profiler_device.NO_CUDA
    notes = [json.loads(row["config"]).get("notes") for row in read(folder, "run")]
    assert notes == [None, [profiler_device.NO_CUDA]]


def test_cuda_may_come_with_the_first_step(recorder: Recorder, folder: Path, torch: Torch) -> None:
    torch.ready = False
    profiler.time_steps(recorder, 1)
    with recorder.step(1):
        torch.ready = True
    run(recorder, torch, 2)
    recorder.close()
    assert spans(folder) == [(1, None), (2, 2 * MS)]


def test_without_torch_it_is_refused_too(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    profiler.time_steps(recorder, 1)
    for size in (1, 2, 3):
        recorder.record(size)
        with recorder.step(size):
            pass
    recorder.close()
    assert len(steps(folder)) == 6
    assert told(folder)["error"] == profiler_device.NO_CUDA


def test_a_profile_window_goes_first_and_sampling_goes_on_after_it(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    from tests.collectors.test_profiler import opened, replaying

    torch.serve = replaying
    timer = profiler.time_steps(recorder, 1)
    before = profiler.step_begun()
    window = opened(2)
    assert profiler.window is window
    profiler.step_ended(before)
    profiler.record(before, recorder, 1)
    run(recorder, torch, 2, 3, 4)
    assert window.finished.wait(10)
    assert window.error is None
    assert profiler.window is timer
    run(recorder, torch, 5, 6)
    recorder.close()
    rows = steps(folder)
    assert [(row["requested"], row["gpu_span_ns"], row["kernels"]) for row in rows] == [
        *((1, None, None), (2, None, None), (3, None, 1), (4, None, 2)),
        *((5, 5 * MS, None), (6, 6 * MS, None)),
    ]
    assert in_order(rows)
    assert told(folder)["untimed"] == {"a profile window was opened": 1}


def test_a_late_row_of_a_window_keeps_its_figures_beside_sampling(
    recorder: Recorder, folder: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphdiag_collectors import profiler_window
    from tests.collectors.test_profiler import opened, replaying

    monkeypatch.setattr(profiler_window, "ROW_SECONDS", 0.01)
    torch.serve = replaying
    profiler.time_steps(recorder, 1)
    window = opened(1)
    profiler.step_begun()
    profiled = profiler.step_begun()
    profiler.step_ended(profiled)
    assert window.finished.wait(10)
    torch.reached_ms = -1
    sampled = profiler.step_begun()
    profiler.step_ended(sampled)
    profiler.record(sampled, recorder, 1)
    profiler.record(profiled, recorder, 2)
    torch.reached_ms = math.inf
    recorder.close()
    assert [(row["requested"], row["kernels"]) for row in steps(folder)] == [(1, None), (2, 1)]


def test_closing_within_a_window_closes_the_sampling_as_well(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    from tests.collectors.test_profiler import opened

    profiler.time_steps(recorder, 1)
    run(recorder, torch, 1)
    opened(5)
    run(recorder, torch, 2, 3)
    recorder.close()
    assert [row["requested"] for row in steps(folder)] == [1, 2, 3]
    assert told(folder)["untimed"] == {"a profile window was opened": 1}
    assert profiler.window is None


def test_channels_made_later_are_held_too(recorder: Recorder, folder: Path, torch: Torch) -> None:
    profiler.time_steps(recorder, 1)
    draft = recorder.channel(runner="draft")
    with draft.step(1):
        torch.now_ms += 1
    run(recorder, torch, 2)
    recorder.close()
    assert sorted(spans(folder)) == [(1, MS), (2, 2 * MS)]


def test_a_step_that_raises_is_recorded_and_the_error_is_the_engines(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    for _ in range(2):
        with pytest.raises(KeyError, match="the engine's"), recorder.step(5):
            raise KeyError("the engine's")
    recorder.close()
    assert spans(folder) == [(5, 0)] * 2


def test_a_forked_child_begins_without_the_parents_samples(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    profiler.time_steps(recorder, 1)
    torch.reached_ms = -1
    run(recorder, torch, 1)
    pid = os.fork()
    if pid == 0:
        wrong = 1
        try:
            run(recorder, torch, 2, 3)
            wrong = int(profiler.window is not None or "step" in vars(recorder))
            recorder.close()
        finally:
            os._exit(wrong)
    assert os.waitpid(pid, 0)[1] == 0
    torch.reached_ms = math.inf
    recorder.close()
    assert [row["requested"] for row in steps(folder) if row["pid"] == pid] == [2, 3]
    assert [row["requested"] for row in steps(folder) if row["pid"] == os.getpid()] == [1]


def test_steps_of_many_threads_come_once_each(
    recorder: Recorder, folder: Path, torch: Torch
) -> None:
    timer = profiler.time_steps(recorder, 3)
    channels = [recorder.channel() for _ in range(3)]

    def work(channel: Any) -> None:
        for size in range(1, 400):
            with channel.step(size):
                torch.now_ms += 0.001

    threads = [threading.Thread(target=work, args=(channel,)) for channel in channels]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        timer.tidy()
    recorder.close()
    assert recorder.status().dropped == 0
    sizes = sorted(row["requested"] for row in steps(folder))
    assert sizes == sorted(list(range(1, 400)) * 3)


def test_the_variable() -> None:
    assert profiler_periods.parse_device("every:50") == 50
    for text in ("", "50", "every:0", "every:-1", "every:1,steps:2", "every:1e3", "every: 5"):
        with pytest.raises(ValueError, match="GRAPHDIAG_DEVICE_TIME="):
            profiler_periods.parse_device(text)


def test_a_thread_times_whichever_recorder_there_is(
    recorder: Recorder, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Over(Exception):
        pass

    tidied: list[DeviceTimer] = []
    monkeypatch.setattr(DeviceTimer, "tidy", lambda self: tidied.append(self))
    looks: Iterator[Callable[[], None]] = iter(
        [
            lambda: monkeypatch.setattr(profiler, "_given", None),
            lambda: monkeypatch.setattr(profiler, "_given", recorder),
            lambda: None,
            lambda: None,
        ]
    )

    def look(seconds: float) -> None:
        try:
            next(looks)()
        except StopIteration:
            raise Over from None

    with pytest.raises(Over):
        profiler_periods._time_steps(7, look)
    assert tidied == [profiler.window] * 2


_ENVIRONMENT = """
import sys, time
import pytest
from graphdiag_collectors import Recorder, profiler
from tests.collectors import profiler_standins
torch = profiler_standins.install(pytest.MonkeyPatch())
recorder = Recorder(sys.argv[1], {"engine": "mine"})
profiler.offer(recorder)
while profiler.window is None:
    time.sleep(0.01)
for size in (1, 2, 3, 4):
    with recorder.step(size):
        torch.now_ms += size
# and no close: leaving does that
"""


def test_the_environment_switches_it_on(folder: Path) -> None:
    root = Path(__file__).parents[2]
    path = f"{root}:{root / 'collectors'}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_ENVIRONMENT), str(folder)],
        env={**os.environ, "GRAPHDIAG_DEVICE_TIME": "every:2", "PYTHONPATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert spans(folder) == [(1, None), (2, 2 * MS), (3, None), (4, 4 * MS)]
