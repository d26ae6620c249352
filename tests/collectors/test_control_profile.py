"""Profile windows in a process that was attached to, and detaching within one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attachable import Engines, engines, until
from tests.collectors.rows import read, steps

ROOT = str(Path(__file__).parents[2])

ENGINE = f"""
import queue, sys, time
sys.path.insert(0, {ROOT!r})
import pytest
from graphdiag_collectors import control
from tests.collectors import profiler_standins
torch = profiler_standins.install(pytest.MonkeyPatch())
control.FINISH_SECONDS = 0.3 if sys.argv[1] == "asked" else 20

class Engine:
    steps = 0
    def step(self, size):
        Engine.steps += 1
        torch.now_ms += size
        return size

def install():
    from graphdiag_collectors import profiler, session
    from graphdiag_collectors.guard import Hooks
    global hooks
    hooks = Hooks(session.current)
    def wrap(original):
        def step(self, size):
            recorder = session.recorder({{"engine": "mine"}}, phase="decode")
            begun = profiler.window and profiler.step_begun()
            result = original(self, size)
            if begun is not None:
                profiler.step_ended(begun)
            if recorder is not None:
                recorder.record(size, 16)
            return result
        return step
    hooks.patch(Engine, "step", wrap)
    return hooks

def uninstall():
    hooks.unpatch()

asked = queue.SimpleQueue()
def run(question):
    asked.put(question["steps"])
    return {{}}
def look(question):
    profiler = sys.modules.get("graphdiag_collectors.profiler")
    return {{
        "steps": Engine.steps,
        "calls": torch.calls,
        "patched": hasattr(Engine.step, "__wrapped__"),
        "window": profiler is not None and profiler.window is not None,
    }}
control.add_command("run", run)
control.add_command("look", look)
control.offer("mine", install, uninstall)
print("ready", flush=True)
engine = Engine()
while True:
    for _ in range(asked.get() if sys.argv[1] == "asked" else 1):
        assert engine.step(9) == 9
        time.sleep(0.002)
"""


@pytest.fixture
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


def attached(started: Engines, folder: Path, mode: str, **variables: str) -> int:
    pid = started.start(ENGINE, mode, **variables).pid
    assert started.ask(pid, "attach", trace=str(folder), run="one")["ok"]
    return pid


def run(started: Engines, pid: int, count: int) -> None:
    before = started.ask(pid, "look")["steps"]
    started.ask(pid, "run", steps=count)
    until(lambda: started.ask(pid, "look")["steps"] == before + count)


def window(started: Engines, pid: int, number: int = 1) -> dict[str, Any]:
    return started.ask(pid, "profile", window=number)


def marks(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [row for row in read(folder, "mark") if row["kind"] == kind]
    return [json.loads(row["config"]) for row in found]


def test_what_can_be_attached_to_can_be_profiled_once_attached(
    started: Engines, folder: Path
) -> None:
    pid = started.start(ENGINE, "steadily").pid
    refused = started.ask(pid, "profile", steps=3)
    assert refused["error"] == "it records nothing; graphdiag attach switches it on"
    assert started.ask(pid, "attach", trace=str(folder))["ok"]
    until(lambda: started.ask(pid, "status")["rows"])
    assert started.ask(pid, "profile", steps=3)["ok"]
    until(lambda: window(started, pid)["state"] == "done")
    detached = started.ask(pid, "detach")
    assert (detached["left"], detached["dropped"]) == ({}, 0)
    assert [row["step"] for row in steps(folder)] == list(range(len(steps(folder))))
    (mark,) = marks(folder, "profile_window")
    assert mark["error"] is None
    again = started.ask(pid, "profile", steps=3)
    assert again["error"] == "it records nothing; graphdiag attach switches it on"


def test_detaching_ends_an_open_window_first(started: Engines, folder: Path) -> None:
    pid = attached(started, folder, "steadily")
    until(lambda: started.ask(pid, "status")["rows"])
    started.ask(pid, "profile", steps=1000)
    until(lambda: window(started, pid)["seen"] > 3)
    detached = started.ask(pid, "detach")
    assert (detached["ok"], detached["was_recording"], detached["left"]) == (True, True, {})
    look = started.ask(pid, "look")
    assert (look["patched"], look["window"], look["calls"][-2:]) == (
        False,
        False,
        ["stop", "events"],
    )
    rows = steps(folder)
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert {path.name.split("-")[0] for path in folder.iterdir()} == {"part"}
    (mark,) = marks(folder, "profile_window")
    assert mark["error"] is None
    ended = window(started, pid)
    assert ended["state"] == "done"
    assert 3 < ended["seen"] < 1000


def test_a_window_that_no_step_began_is_given_up(started: Engines, folder: Path) -> None:
    pid = attached(started, folder, "asked")
    run(started, pid, 2)
    started.ask(pid, "profile", steps=5)
    until(lambda: window(started, pid)["state"] == "waiting")
    assert started.ask(pid, "detach")["was_recording"]
    assert window(started, pid)["why"] == "the recording ended within the window"
    run(started, pid, 2)
    look = started.ask(pid, "look")
    loading = ["cpu", "prepare", "start", "stop"]
    assert (look["calls"], look["window"]) == (loading, False)
    assert len(steps(folder)) == 2


@pytest.mark.parametrize(("count", "began"), [(1, ["start", "stop"]), (3, ["annotate", "stop"])])
def test_hooks_stay_until_a_step_has_stopped_the_profiler(
    started: Engines, folder: Path, count: int, began: list[str]
) -> None:
    pid = attached(started, folder, "asked")
    run(started, pid, 1)
    started.ask(pid, "profile", steps=100)
    until(lambda: window(started, pid)["state"] == "waiting")
    run(started, pid, count)
    refused = started.ask(pid, "detach")
    assert refused["error"] == (
        "only its next step can stop torch's profiler, and it makes none; send it a request and "
        "detach again"
    )
    assert started.ask(pid, "status")["trace"] == str(folder)
    until(lambda: len(steps(folder)) == count + 1)  # the rows did not wait for it
    run(started, pid, 1)
    look = started.ask(pid, "look")
    assert (look["calls"][-2:], look["window"]) == (began, False)
    assert started.ask(pid, "detach")["was_recording"]
    assert started.ask(pid, "look")["patched"] is False
    assert [row["step"] for row in steps(folder)] == list(range(count + 2))


def test_detaching_records_what_waits_for_the_device(started: Engines, folder: Path) -> None:
    pid = attached(started, folder, "asked", GRAPHDIAG_DEVICE_TIME="every:2")
    run(started, pid, 1)
    until(lambda: started.ask(pid, "look")["window"])
    run(started, pid, 4)
    assert started.ask(pid, "detach")["left"] == {}
    assert started.ask(pid, "look")["window"] is False
    spans = [row["gpu_span_ns"] for row in steps(folder)]
    assert spans[:4] == [None, None, 9_000_000, None]
    assert len(spans) == 5
    (mark,) = marks(folder, "device_time")
    assert (mark["every"], mark["timed"] + sum(mark["untimed"].values())) == (2, 2)
    assert started.ask(pid, "attach", trace=str(folder))["ok"]
    run(started, pid, 1)
    until(lambda: started.ask(pid, "look")["window"])
