"""Collectors switched on and off in real processes, through their sockets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdiag.trace import open_trace
from graphdiag_collectors import control, recorder
from tests.attachable import COLLECTOR, LOOP, OFFERED, Engines, engines, until


@pytest.fixture(scope="module")
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


def recorded(started: Engines, pid: int, rows: int) -> None:
    until(lambda: (started.ask(pid, "status")["rows"] or 0) > rows)


def test_a_process_is_off_and_light_until_somebody_attaches(started: Engines, folder: Path) -> None:
    process = started.start(OFFERED)
    status = started.ask(process.pid, "status")
    assert status["pid"] == process.pid
    assert status["trace"] is status["run"] is status["rows"] is None
    assert status["collectors"] == {"mine": {"installed": False, "error": None}}
    look = started.ask(process.pid, "look")
    assert look["heavy"] == []
    assert look["patched"] is False


def test_attach_records_and_detach_seals(started: Engines, folder: Path) -> None:
    process = started.start(OFFERED)
    attached = started.ask(process.pid, "attach", trace=str(folder), run="run-7")
    assert attached["ok"] is True
    assert attached["already"] is False
    assert attached["trace"] == str(folder)
    mine = attached["collectors"]["mine"]
    assert mine["installed"] is True
    assert mine["on"] == ["mine.step"]
    assert mine["missing"] == {"__main__.Engine.sample": "not there in this version"}
    recorded(started, process.pid, 20)

    detached = started.ask(process.pid, "detach")
    assert detached["was_recording"] is True
    assert detached["left"] == {}
    assert detached["dropped"] == 0
    assert {path.name.split("-")[0] for path in folder.iterdir()} == {"part"}
    trace = open_trace(folder)
    steps = trace.steps().collect()
    assert len(steps) + 1 == detached["rows"]  # the run event
    assert set(steps["requested"]) == {9}
    assert set(steps["pid"]) == {process.pid}
    assert set(steps["run"]) == {"run-7"}
    assert set(steps["rank"]) == {3}
    (config,) = trace.events()["config"].to_list()
    assert json.loads(config)["engine"] == "mine"
    assert started.ask(process.pid, "status")["trace"] is None

    before = started.ask(process.pid, "look")
    assert before["patched"] is False
    until(lambda: started.ask(process.pid, "look")["steps"] > before["steps"])
    assert process.poll() is None


def test_attaching_again_after_a_detach_records_again(started: Engines, tmp_path: Path) -> None:
    process = started.start(OFFERED)
    for name in ("one", "two"):
        started.ask(process.pid, "attach", trace=str(tmp_path / name), run=name)
        recorded(started, process.pid, 3)
        started.ask(process.pid, "detach")
        assert set(open_trace(tmp_path / name).steps().collect()["run"]) == {name}


def test_attaching_twice_is_attaching_once(started: Engines, folder: Path, tmp_path: Path) -> None:
    process = started.start(OFFERED)
    started.ask(process.pid, "attach", trace=str(folder), run="first")
    again = started.ask(process.pid, "attach", trace=str(folder), run="second")
    assert (again["ok"], again["already"], again["run"]) == (True, True, "first")
    other = started.ask(process.pid, "attach", trace=str(tmp_path / "other"))
    assert other == {
        "ok": False,
        "error": f"it records into {folder} already; detach it first",
    }
    assert not (tmp_path / "other").exists()


def test_detach_without_attach_changes_nothing(started: Engines) -> None:
    process = started.start(OFFERED)
    detached = started.ask(process.pid, "detach")
    assert (detached["ok"], detached["was_recording"]) == (True, False)
    assert started.ask(process.pid, "look")["heavy"] == []


@pytest.mark.parametrize("trace", [None, "relative", "/a\0b", 7])
def test_attach_needs_the_absolute_path_of_a_folder(started: Engines, trace: object) -> None:
    process = started.start(OFFERED)
    answer = started.ask(process.pid, "attach", trace=trace)
    assert answer["error"] == "attach needs the absolute path of a folder as trace"


def test_a_folder_that_cannot_be_made_is_said_and_another_one_works(
    started: Engines, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    process = started.start(OFFERED)
    answer = started.ask(process.pid, "attach", trace=str(tmp_path / "file" / "trace"))
    assert "Not a directory; name another folder with -o" in answer["error"]
    assert started.ask(process.pid, "status")["trace"] is None
    assert started.ask(process.pid, "attach", trace=str(folder))["ok"] is True


_FAILS = f"""{COLLECTOR}
def fails():
    raise KeyError("no such engine")
control.offer("broken", fails, fails)
if len(sys.argv) > 1:
    control.offer("mine", install, uninstall)
{LOOP}
"""


def test_a_collector_that_cannot_be_switched_on_does_not_keep_the_others_off(
    started: Engines, folder: Path
) -> None:
    process = started.start(_FAILS, "with another")
    attached = started.ask(process.pid, "attach", trace=str(folder))
    broken = {"installed": False, "error": "KeyError: 'no such engine'"}
    assert attached["collectors"]["broken"] == broken
    recorded(started, process.pid, 3)
    assert started.ask(process.pid, "detach")["was_recording"] is True


def test_where_no_collector_can_be_switched_on_the_process_stays_off(
    started: Engines, folder: Path
) -> None:
    process = started.start(_FAILS)
    refused = started.ask(process.pid, "attach", trace=str(folder))
    assert "no collector could be switched on (broken: KeyError" in refused["error"]
    assert started.ask(process.pid, "status")["trace"] is None


_STUCK = f"""{COLLECTOR}
def stuck():
    raise RuntimeError("stuck")
control.offer("mine", install, stuck)
{LOOP}
"""


def test_a_collector_that_cannot_be_switched_off_is_said_and_the_trace_sealed(
    started: Engines, folder: Path
) -> None:
    process = started.start(_STUCK)
    started.ask(process.pid, "attach", trace=str(folder))
    recorded(started, process.pid, 3)
    detached = started.ask(process.pid, "detach")
    assert detached["left"] == {"mine": "RuntimeError: stuck"}
    assert len(open_trace(folder).steps().collect()) > 0


def test_without_arrow_nothing_changes_and_it_may_come_later(
    started: Engines, folder: Path
) -> None:
    script = f"""{COLLECTOR}
sys.modules["pyarrow"] = None  # importing it fails
def installed_by_pip(question):
    del sys.modules["pyarrow"]
    return {{}}
control.add_command("pip", installed_by_pip)
control.offer("mine", install, uninstall)
{LOOP}
"""
    process = started.start(script)
    refused = started.ask(process.pid, "attach", trace=str(folder))
    assert refused["error"].startswith("recording needs pyarrow and numpy in its environment (")
    assert started.ask(process.pid, "status")["trace"] is None
    assert not folder.exists()
    started.ask(process.pid, "pip")
    assert started.ask(process.pid, "attach", trace=str(folder))["ok"] is True
    recorded(started, process.pid, 3)


def test_a_process_without_collectors_says_so(started: Engines, folder: Path) -> None:
    process = started.start(f"{COLLECTOR}\ncontrol.listen()\n{LOOP}")
    refused = started.ask(process.pid, "attach", trace=str(folder))
    assert refused["error"] == "no collector of graphdiag knows what runs in it"
    assert not folder.exists()


def test_a_process_started_with_a_trace_records_at_once(
    started: Engines, folder: Path, tmp_path: Path
) -> None:
    process = started.start(OFFERED, GRAPHDIAG_TRACE=str(folder), GRAPHDIAG_RUN="started")
    recorded(started, process.pid, 3)
    status = started.ask(process.pid, "status")
    assert (status["trace"], status["run"]) == (str(folder), "started")
    refused = started.ask(process.pid, "attach", trace=str(tmp_path / "other"))
    assert "already" in refused["error"]
    assert started.ask(process.pid, "detach")["was_recording"] is True
    assert set(open_trace(folder).steps().collect()["run"]) == {"started"}


def test_two_processes_record_into_one_folder(started: Engines, folder: Path) -> None:
    processes = [started.start(OFFERED) for _ in range(2)]
    for process in processes:
        started.ask(process.pid, "attach", trace=str(folder), run="both")
    for process in processes:
        recorded(started, process.pid, 3)
    for process in processes:
        started.ask(process.pid, "detach")
    steps = open_trace(folder).steps().collect()
    assert set(steps["pid"]) == {process.pid for process in processes}
    assert set(steps["run"]) == {"both"}


def test_a_child_of_an_attached_process_records_and_can_be_detached_alone(
    started: Engines, folder: Path
) -> None:
    script = f"""{COLLECTOR}
import os
control.offer("mine", install, uninstall)
print("ready", flush=True)
engine = Engine()
while not hasattr(Engine.step, "__wrapped__"):
    time.sleep(0.02)
child = os.fork()
control.add_command("child", lambda question: {{"child": child}})
{LOOP}
"""
    process = started.start(script)
    started.ask(process.pid, "attach", trace=str(folder), run="family")
    until(lambda: "child" in started.ask(process.pid, "child"))
    child = started.ask(process.pid, "child")["child"]
    try:
        recorded(started, child, 3)
        assert started.ask(child, "detach")["pid"] == child
        assert started.ask(child, "status")["trace"] is None
        assert started.ask(process.pid, "status")["trace"] == str(folder)
        assert started.ask(process.pid, "detach")["was_recording"] is True
    finally:
        os.kill(child, 9)
    steps = open_trace(folder).steps().collect()
    assert set(steps["pid"]) == {process.pid, child}
    assert set(steps["run"]) == {"family"}


def test_an_unknown_command_is_refused_by_name(started: Engines) -> None:
    process = started.start(OFFERED)
    refused = started.ask(process.pid, "frobnicate")
    assert refused["error"] == (
        "'frobnicate' is not one of ping, status, flush, attach, detach, look, profile"
    )


def test_the_variables_are_those_of_the_recorder() -> None:
    assert control.TRACE_VARIABLE == recorder.TRACE_VARIABLE
    assert control.RUN_VARIABLE == recorder.RUN_VARIABLE
