"""Profile windows over a decode loop on the real torch, on the CPU, in child processes."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attachable import Engines, engines, until
from tests.collectors.rows import read, steps

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("GRAPHDIAG_TORCH_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="GRAPHDIAG_TORCH_PYTHON names no python that has torch and pyarrow"
    ),
]

LOOP = """
import json, sys, time
from graphdiag_collectors import Recorder, control, profiler
import torch
torch.set_num_threads(1)
recorder = Recorder(sys.argv[1], {"engine": "mine"}, phase="decode")
profiler.offer(recorder)
network = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
def decode(size=5):
    with recorder.step(size) as step, torch.no_grad():
        network(torch.randn(8, 64))
        step.replayed(8, "decode/8")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


@pytest.fixture
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


def variables(**more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "collectors"), "OMP_NUM_THREADS": "1", **more}


def run(folder: Path, script: str, **more: str) -> Any:
    """Run ``script`` in a child process; return what it printed last, as JSON."""
    done = subprocess.run(
        [PYTHON, "-c", LOOP + textwrap.dedent(script), str(folder)],
        env={**os.environ, **variables(**more)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "graphdiag" not in done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def told(folder: Path) -> list[dict[str, Any]]:
    marks = [row for row in read(folder, "mark") if row["kind"] == "profile_window"]
    return [json.loads(mark["config"]) for mark in marks]


def test_a_window_records_each_step_once_with_its_host_time(folder: Path) -> None:
    script = """
    count = 0
    for number in range(2):
        opened = profiler.open_window(4)
        while not opened.finished.is_set():
            decode()
            count += 1
        assert opened.state == "done", opened.error
    for _ in range(3):
        decode()
    enabled = torch.autograd.profiler._is_profiler_enabled
    print(json.dumps([count + 3, recorder.status().dropped, enabled, "step" in vars(recorder)]))
    """
    count, dropped, enabled, tapped = run(folder, script)
    assert (dropped, enabled, tapped) == (0, False, False)
    rows = steps(folder)
    assert [row["step"] for row in rows] == list(range(count))
    profiled = [row for row in rows if row["launches"] is not None]
    assert len(profiled) == 8
    for row in profiled:
        assert 0 < row["host_ns"] <= row["dur_ns"]
        assert row["launches"] == row["kernels"] == row["graph_kernels"] == row["blocked_ns"] == 0
        assert row["gpu_ns"] is row["gap_ns"] is row["replays"] is None
    assert {row["host_ns"] for row in rows if row not in profiled} == {None}
    windows = told(folder)
    assert [window["steps"] for window in windows] == [4, 4]
    for window in windows:
        assert window["error"] is None
        (note,) = window["notes"]
        assert "no GPU event" in note
    notes = [json.loads(row["config"]).get("notes") for row in read(folder, "run")]
    assert notes == [None, windows[0]["notes"], windows[1]["notes"]]
    assert not [row for row in read(folder, "mark") if row["kind"] == "gpu_window"]


def test_another_profiler_of_the_engines_is_left_alone(folder: Path) -> None:
    script = """
    with torch.profiler.profile() as own:
        try:
            profiler.open_window(2)
            why = None
        except control.Refused as error:
            why = str(error)
        decode()
    print(json.dumps([why, len(own.events())]))
    """
    why, events = run(folder, script)
    assert why == "another profiler runs in it, and torch allows one a process"
    assert events > 20


def test_a_window_that_is_given_up_leaves_no_profiler_behind(folder: Path) -> None:
    script = """
    import threading
    opened = profiler.open_window(1000)
    count = 0
    while opened.seen < 3:
        decode()
        count += 1
    thread = threading.Thread(target=opened.cancel, args=("enough",))
    thread.start()
    thread.join()
    for _ in range(2):
        decode()
    again = profiler.open_window(2)
    while not again.finished.is_set():
        decode()
        count += 1
    enabled = torch.autograd.profiler._is_profiler_enabled
    print(json.dumps([count + 2, opened.error, again.state, enabled]))
    """
    count, error, state, enabled = run(folder, script)
    assert (error, state, enabled) == ("enough", "done", False)
    assert [row["step"] for row in steps(folder)] == list(range(count))


def test_periods_of_the_environment(folder: Path) -> None:
    script = """
    deadline = time.monotonic() + 60
    profiler_periods = sys.modules["graphdiag_collectors.profiler_periods"]
    while profiler._number < 2 or profiler.window is not None:
        assert time.monotonic() < deadline
        decode()
    print(json.dumps(recorder.status().dropped))
    """
    assert run(folder, script, GRAPHDIAG_PROFILE="every:200,steps:3,share:0.9") == 0
    assert [window["steps"] for window in told(folder)][:2] == [3, 3]
    rows = steps(folder)
    assert sum(row["launches"] is not None for row in rows) in (6, 9)
    assert [row["step"] for row in rows] == list(range(len(rows)))


def test_graphdiag_profile_on_a_running_loop(
    folder: Path, started: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphdiag import profiling

    script = LOOP + 'control.listen()\nprint("ready", flush=True)\nwhile True: decode()\n'
    monkeypatch.setattr("tests.attachable.sys.executable", PYTHON)
    pid = started.start(script, folder, **variables()).pid
    started.listening(pid)
    (answer,) = profiling.profile(pid, 5, 60)
    assert answer.error is None
    assert answer.told["figures"]["steps"] == 5
    until(lambda: len(told(folder)) == 1)
    assert len([row for row in steps(folder) if row["launches"] is not None]) == 5


def test_device_times_on_a_cpu_are_refused_in_words(folder: Path) -> None:
    script = """
    deadline = time.monotonic() + 60
    while profiler.window is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(25):
        decode()
    print(json.dumps([profiler.window is None, recorder.status().dropped]))
    """
    assert run(folder, script, GRAPHDIAG_DEVICE_TIME="every:10") == [True, 0]
    rows = steps(folder)
    assert [row["step"] for row in rows] == list(range(25))
    assert {row["gpu_span_ns"] for row in rows} == {None}
    (mark,) = (row for row in read(folder, "mark") if row["kind"] == "device_time")
    assert "torch's CUDA is not in use" in json.loads(mark["config"])["error"]
    notes = [json.loads(row["config"]).get("notes") for row in read(folder, "run")]
    assert notes[-1] == [json.loads(mark["config"])["error"]]


def test_attach_profile_and_detach_within_a_window(
    folder: Path, started: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphdiag import attaching, profiling

    script = """
    import sys, time
    import torch
    from graphdiag_collectors import control, profiler, session
    torch.set_num_threads(1)
    network = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
    on = False
    def install():
        global on
        on = True
    def uninstall():
        global on
        on = False
    control.offer("mine", install, uninstall)
    print("ready", flush=True)
    while True:
        recorder = session.recorder({"engine": "mine"}, phase="decode") if on else None
        step = profiler.window and profiler.step_begun() if on else None
        with torch.no_grad():
            network(torch.randn(8, 64))
        if step is not None:
            profiler.step_ended(step)
        if recorder is not None:
            recorder.record(5, 8, "decode/8")
    """
    monkeypatch.setattr("tests.attachable.sys.executable", PYTHON)
    pid = started.start(textwrap.dedent(script), **variables()).pid
    started.listening(pid)
    (attached,) = attaching.attach(pid, folder)
    assert attached.error is None
    until(lambda: started.ask(pid, "status")["rows"])
    (answer,) = profiling.profile(pid, 5, 60)
    assert answer.error is None
    assert started.ask(pid, "profile", steps=1000)["ok"]
    until(lambda: started.ask(pid, "profile", window=2)["seen"] > 2)
    (detached,) = attaching.detach(pid)
    assert (detached.error, detached.told["left"]) == (None, {})
    rows = steps(folder)
    assert [row["step"] for row in rows] == list(range(len(rows)))
    first, second = told(folder)
    assert (first["steps"], first["error"], second["error"]) == (5, None, None)
    assert 2 < second["steps"] < 1000
    assert len([row for row in rows if row["launches"] is not None]) == 5 + second["steps"]
    assert started.ask(pid, "ping")["ok"]
