"""``graphdiag profile`` on real processes with a stand-in for torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphdiag.trace import open_trace
from tests.attachable import Engines, engines, until

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]

ENGINE = """
import sys, time
sys.path.insert(0, ROOT)
import pytest
from graphdiag_collectors import Recorder, control, profiler
from tests.collectors import profiler_standins
profiler_standins.install(pytest.MonkeyPatch())
recorder = Recorder(sys.argv[1], {"engine": "mine"}, phase="decode")
profiler.offer(recorder)
control.listen()
print("ready", flush=True)
while True:
    with recorder.step(5):
        time.sleep(0.002 if len(sys.argv) < 3 else 60)
"""
SCRIPT = ENGINE.replace("ROOT", repr(str(ROOT)))

PARENT = """
import subprocess, sys, time
from graphdiag_collectors import control, profiler
profiler.offer()
control.listen()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


def test_profile(run: Run, started: Engines, tmp_path: Path) -> None:
    folder = tmp_path / "trace.parquet"
    pid = started.start(SCRIPT, folder).pid
    started.listening(pid)
    code, out, err = run("profile", str(pid), "--steps", "3")
    assert (code, err) == (0, "")
    first, note, *more = out.splitlines()
    # The stand-in profiler sees nothing, and that is said, not made up.
    assert re.fullmatch(rf"{pid}  0 steps profiled; the window took [\d.]+ ms", first)
    assert note.startswith("  Profiled steps have host times and no device time")
    assert more == ["  3 of 3 profiled steps are not in the profile."]
    steps = open_trace(folder).steps().collect()
    assert steps["step"].to_list() == list(range(len(steps)))


def test_a_process_that_runs_no_step_does_not_spoil_its_workers_window(
    run: Run, started: Engines, tmp_path: Path
) -> None:
    pid = started.start(PARENT, SCRIPT, tmp_path / "trace.parquet").pid
    started.listening(pid)
    until(lambda: len(list(started.folder.glob("*.sock"))) == 2)
    for path in started.folder.glob("*.sock"):
        started.listening(int(path.stem))
    code, out, err = run("profile", str(pid), "--steps", "2")
    assert code == 0, err
    assert err == f"{pid}: it has not imported torch, whose profiler this needs.\n"
    assert "steps profiled" in out


def test_no_step_in_time(run: Run, started: Engines, tmp_path: Path) -> None:
    pid = started.start(SCRIPT, tmp_path / "trace.parquet", "slow").pid
    started.listening(pid)
    code, out, err = run("profile", str(pid), "--timeout", "0.3")
    assert (code, out) == (2, "")
    assert err == f"{pid}: no step was profiled within 0.3 s.\n"


def test_a_process_that_cannot_be_spoken_to(run: Run) -> None:
    code, out, err = run("profile", "4194304")
    assert (code, out) == (2, "")
    assert "no such process" in err
    code, _, err = run("profile", "1", "--steps", "0")
    assert code == 2
    assert "steps" in err


def test_the_answers_are_plain_json(started: Engines, tmp_path: Path) -> None:
    pid = started.start(SCRIPT, tmp_path / "trace.parquet").pid
    told = started.ask(pid, "profile", steps=1, seconds=20)
    assert told["ok"]
    assert told["wanted"] == 1
    assert json.dumps(told)
    refused = started.ask(pid, "profile", steps=10**9)
    assert refused == {"ok": False, "error": "steps must be a number from 1 to 1000"}
