"""``graphdiag attach``, ``detach`` and ``status`` on real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphdiag import attaching, injecting, processes
from graphdiag.reporters import attaching as lines
from graphdiag.trace import open_trace
from graphdiag_collectors import control_socket
from tests.attachable import COLLECTOR, LOOP, OFFERED, UID, Engines, engines, until

Run = Callable[..., tuple[int, str, str]]

PLAIN = 'import time\nprint("ready", flush=True)\nwhile True: time.sleep(0.01)'


@pytest.fixture
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


def listening(started: Engines, script: str = OFFERED, *arguments: object) -> str:
    pid = started.start(script, *arguments).pid
    started.listening(pid)
    return str(pid)


def test_attach_status_detach(run: Run, started: Engines, tmp_path: Path) -> None:
    pid = listening(started)
    folder = tmp_path / "my trace.parquet"
    code, out, err = run("attach", pid, "-o", str(folder))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{pid}  Python {sys.version.split()[0]}: records; 1 hook on, 1 missing",
        f"Trace: {folder}",
        f"Next: graphdiag report '{folder}', and graphdiag detach {pid} at the end",
    ]
    until(lambda: (started.ask(int(pid), "status")["rows"] or 0) > 10)

    code, out, err = run("status", pid)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(f": records into {folder}")
    assert re.fullmatch(r"  \d+ rows, 0 dropped, [\d.,]+ (bytes|KiB)", lines[1])
    assert lines[2:] == [
        "  mine: 1 hook on",
        "    missing: __main__.Engine.sample (not there in this version)",
    ]

    code, out, err = run("detach", pid)
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"{pid}  Python \S+: off; \d+ rows, 0 dropped, .*", out.splitlines()[0])
    assert out.splitlines()[1:] == [f"Next: graphdiag report '{folder}'"]
    assert len(open_trace(folder).steps().collect()) > 9
    assert run("status", pid)[1].endswith(f": off; graphdiag attach {pid} switches it on\n")
    code, _, err = run("detach", pid)
    assert code == 2
    assert err == f"graphdiag: {pid}: does not record; graphdiag attach {pid} switches it on.\n"


_PARENT = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", sys.argv[1]]) for _ in range(2)]
print("ready", flush=True)
time.sleep(60)
"""


def test_a_parent_stands_for_its_children(run: Run, started: Engines, tmp_path: Path) -> None:
    quiet = OFFERED.replace('print("ready", flush=True)', "")
    parent = started.start(_PARENT, quiet)
    until(lambda: len(list(started.folder.glob("*.sock"))) == 2)
    children = sorted(int(path.stem) for path in started.folder.glob("*.sock"))
    for child in children:
        started.listening(child)
    try:
        folder = tmp_path / "trace.parquet"
        code, out, _ = run("attach", str(parent.pid), "-o", str(folder))
        assert code == 0
        assert [int(line.split()[0]) for line in out.splitlines()[:2]] == children
        for child in children:
            until(lambda child=child: (started.ask(child, "status")["rows"] or 0) > 3)
        code, out, _ = run("detach", str(parent.pid))
        assert code == 0
        assert len(out.splitlines()) == 3
        steps = open_trace(folder).steps().collect()
        assert set(steps["pid"]) == set(children)
        assert steps["run"].n_unique() == 1
    finally:
        for child in children:
            os.kill(child, 9)


def test_attaching_again_joins_the_run(run: Run, started: Engines, tmp_path: Path) -> None:
    pid = listening(started)
    folder = tmp_path / "trace.parquet"
    run("attach", pid, "-o", str(folder))
    until(lambda: (started.ask(int(pid), "status")["rows"] or 0) > 3)
    before = started.ask(int(pid), "status")["run"]
    code, out, _ = run("attach", pid, "-o", str(folder))
    assert code == 0
    assert "records already; 1 hook on" in out
    assert started.ask(int(pid), "status")["run"] == before
    code, _, err = run("attach", pid, "-o", str(tmp_path / "other"))
    assert code == 2
    assert err == f"{pid}: it records into {folder} already; detach it first.\n"


def test_another_recording_is_kept_unless_appended_to(
    run: Run, started: Engines, tmp_path: Path
) -> None:
    pid = listening(started)
    folder = tmp_path / "trace.parquet"
    folder.mkdir()
    (folder / "part-of-another-run.parquet").touch()
    code, out, err = run("attach", pid, "-o", str(folder))
    assert (code, out) == (2, "")
    assert f"{folder}: exists already; name another folder with -o, or give --append" in err
    assert run("attach", pid, "-o", str(folder), "--append")[0] == 0


_TITLED = """
import ctypes
from pathlib import Path
fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])  # as a program's title is set: over its environment
ctypes.memset(start, 0, end - start)
assert not Path("/proc/self/environ").read_bytes().strip(b"\\0")
"""


def test_a_process_whose_title_has_overwritten_its_environment(
    run: Run, started: Engines, tmp_path: Path
) -> None:
    pid = listening(started, _TITLED + OFFERED)
    code, out, err = run("attach", pid, "-o", str(tmp_path / "trace.parquet"))
    assert (code, err) == (0, "")
    assert out.startswith(f"{pid}  Python")
    assert run("detach", pid)[0] == 0


def test_an_empty_folder_is_no_recording(run: Run, started: Engines, tmp_path: Path) -> None:
    pid = listening(started)
    (tmp_path / "trace.parquet").mkdir()
    assert run("attach", pid, "-o", str(tmp_path / "trace.parquet"))[0] == 0


def test_one_that_fails_does_not_keep_the_others_off(
    run: Run, started: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = listening(started)
    bad = listening(started, f"{COLLECTOR}\ncontrol.listen()\n{LOOP}")
    monkeypatch.setattr(processes, "family", lambda pid: [int(bad), int(good)])
    code, out, err = run("attach", good, "-o", str(tmp_path / "trace.parquet"))
    assert code == 2
    assert err == f"{bad}: no collector of graphdiag knows what runs in it.\n"
    assert out.startswith(f"{good}  Python")
    assert "Next: " in out


def test_status_lists_every_process_there_is(run: Run, started: Engines) -> None:
    pids = [listening(started) for _ in range(2)]
    code, out, _ = run("status")
    assert code == 0
    assert set(pids) <= {line.split()[0] for line in out.splitlines() if line[0].isdigit()}


def test_status_says_where_there_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "pids", lambda: iter([os.getpid()]))
    expected = "No process of yours can be attached to; graphdiag attach --help says how.\n"
    assert run("status") == (0, expected, "")


def test_status_as_json(run: Run, started: Engines, tmp_path: Path) -> None:
    pid = listening(started)
    folder = tmp_path / "trace.parquet"
    run("attach", pid, "-o", str(folder))
    until(lambda: started.ask(int(pid), "status")["rows"])
    told = json.loads(run("status", pid, "--json")[1])
    assert told["format"] == 1
    (process,) = told["processes"]
    assert (process["pid"], process["ok"], process["error"]) == (int(pid), True, None)
    assert process["trace"] == str(folder)
    assert process["rows"] >= 1
    assert (process["dropped"], process["last_error"]) == (0, None)
    assert process["collectors"]["mine"]["on"] == ["mine.step"]


@pytest.mark.parametrize("command", ["attach", "detach", "status"])
def test_a_process_that_is_not_there(run: Run, command: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert run(command, str(ended.pid)) == (
        2,
        "",
        f"graphdiag: {ended.pid}: no such process; graphdiag status lists the processes it can "
        "attach to.\n",
    )


@pytest.mark.parametrize("command", ["attach", "detach", "status"])
def test_a_process_without_graphdiag(run: Run, started: Engines, command: str) -> None:
    pid = started.start(PLAIN).pid
    code, out, err = run(command, str(pid))
    assert (code, out) == (2, "")
    assert err.startswith(f"graphdiag: {pid}: no graphdiag listens in it or in a process it ")
    for way in ("graphdiag record", "install graphdiag in its environment", "graphdiag[attach]"):
        assert way in err
    assert err.count("\n") == 1


def test_a_socket_that_refuses(run: Run, started: Engines) -> None:
    pid = started.start(PLAIN).pid
    started.folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(started.path(pid)))
        code, _, err = run("attach", str(pid))
    assert code == 2
    assert f"{pid}: its socket {started.path(pid)} refuses connections" in err


def test_a_socket_in_a_folder_open_to_others_is_not_trusted(run: Run, started: Engines) -> None:
    pid = listening(started)
    started.folder.chmod(0o777)
    code, _, err = run("attach", pid)
    assert code == 2
    assert f"{pid}: its socket's folder {started.folder} is open to other users" in err


def test_another_process_at_the_socket_is_not_spoken_to(run: Run, started: Engines) -> None:
    pid = started.start(PLAIN).pid
    started.folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(str(started.path(pid)))
        impostor.listen()
        code, _, err = run("status", str(pid))
    assert code == 2
    assert f"{pid}: another process answers at its socket {started.path(pid)}" in err


def test_a_process_that_hangs(started: Engines) -> None:
    process = started.start(OFFERED)
    started.listening(process.pid)
    process.send_signal(signal.SIGSTOP)
    until(lambda: "State:\tT" in Path(f"/proc/{process.pid}/status").read_text())
    answer = attaching.ask(process.pid, {"command": "status"}, 0.2)
    assert answer.error == "did not answer within 0.2 s; is it stopped or hung?"


@pytest.mark.skipif(UID != 0, reason="needs root, to become another user")
def test_another_users_process(run: Run, started: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = listening(started)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    code, _, err = run("attach", pid)
    assert code == 2
    assert err == f"graphdiag: {pid}: belongs to user root; run graphdiag as root.\n"
    assert run("status")[1].startswith("No process of yours")


def test_what_a_process_says_is_made_safe_to_print(run: Run, started: Engines) -> None:
    script = OFFERED.replace("import sys, time", "import sys, time, types", 1).replace(
        "def install",
        'sys.modules["torch"] = types.SimpleNamespace(__version__="\\x1b[2J")\n\ndef install',
        1,
    )
    out = run("status", listening(started, script))[1]
    assert "torch \\x1b[2J, Python" in out


def test_what_is_off_missing_or_broken_is_said_line_by_line() -> None:
    told = {
        "engine": "vllm 0.32.0",
        "python": "3.11.7",
        "trace": "/t",
        "rows": 12_034,
        "dropped": 7,
        "bytes": 168_960,
        "last_error": "No space left on device",
        "collectors": {
            "vllm": {"installed": True, "on": ["a", "b"], "off": {"c": "KeyError: 'd'"}},
            "torch": {"installed": True, "on": []},
            "sglang": {"installed": False, "error": "ImportError: e"},
        },
    }
    assert list(lines.status_lines(attaching.Answer(7, told))) == [
        "7  vllm 0.32.0, Python 3.11.7: records into /t",
        "  12,034 rows, 7 dropped (No space left on device), 165 KiB",
        "  vllm: 2 hooks on",
        "    off: c (KeyError: 'd')",
        "  torch: no hooks, as it runs no model so far",
        "  sglang: not switched on (ImportError: e)",
    ]
    told["left"] = {"vllm": "RuntimeError: stuck"}
    assert lines.detached_line(attaching.Answer(7, told)) == (
        "7  vllm 0.32.0: off; 12,034 rows, 7 dropped (No space left on device), 165 KiB; "
        "vllm could not be switched off (RuntimeError: stuck)"
    )
    odd = {"collectors": ["x"], "rows": "many", "left": 3, "trace": 7}
    assert list(lines.status_lines(attaching.Answer(7, odd)))[1] == "  nothing recorded"
    front = {"engine": "vllm", "collectors": {"vllm": {"installed": True, "on": []}}}
    assert lines.attached_line(attaching.Answer(7, front)) == (
        "7  vllm: records; no hooks, as it runs no model so far"
    )


def test_the_python_of_a_process_is_recognised(started: Engines) -> None:
    assert processes.python_version(started.start(PLAIN).pid) == sys.version_info[:2]
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        assert processes.python_version(sleep.pid) is None
    finally:
        sleep.kill()
        sleep.wait()


_LATE = """
import sys, time
from types import SimpleNamespace
print("ready", flush=True)
while "graphdiag_collectors.control" not in sys.modules:
    time.sleep(0.01)
exec(sys.argv[1])
"""

needs_hypno = pytest.mark.skipif(
    importlib.util.find_spec("hypno") is None or sys.version_info >= (3, 14),
    reason="needs hypno (the extra [attach]) and Python 3.13 or older",
)


def bring(run: Run, pid: int, *more: str) -> tuple[int, str, str]:
    code, out, err = run("attach", str(pid), "--inject", *more)
    if "may not be traced" in err:
        pytest.skip("needs the right to trace another process")
    return code, out, err


@needs_hypno
def test_inject_brings_the_collectors_into_a_plain_loop(
    run: Run, started: Engines, tmp_path: Path
) -> None:
    folder = tmp_path / "trace.parquet"
    process = started.start(PLAIN, PYTHONPATH="")
    code, out, err = bring(run, process.pid, "-o", str(folder))
    assert (code, out) == (2, "")
    assert err == f"{process.pid}: no collector of graphdiag knows what runs in it.\n"
    assert started.ask(process.pid, "ping")["pid"] == process.pid
    process.terminate()
    assert process.communicate()[1] == ""


@needs_hypno
def test_inject_then_record_then_detach(run: Run, started: Engines, tmp_path: Path) -> None:
    folder = tmp_path / "trace.parquet"
    quiet = OFFERED.replace('print("ready", flush=True)', "")
    process = started.start(_LATE, quiet)
    code, _, _ = bring(run, process.pid, "-o", str(folder))
    if code:  # attached before the process had its collector
        until(lambda: started.ask(process.pid, "status")["collectors"])
        assert bring(run, process.pid, "-o", str(folder))[0] == 0
    until(lambda: (started.ask(process.pid, "status")["rows"] or 0) > 3)
    assert run("detach", str(process.pid))[0] == 0
    assert len(open_trace(folder).steps().collect()) > 2
    assert process.poll() is None


@needs_hypno
def test_injecting_twice_is_injecting_once(run: Run, started: Engines) -> None:
    process = started.start(PLAIN)
    bring(run, process.pid)
    assert injecting.inject(process.pid) == []


def test_inject_needs_a_python(run: Run) -> None:
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        code, _, err = run("attach", str(sleep.pid), "--inject")
    finally:
        sleep.kill()
        sleep.wait()
    assert code == 2
    assert err == f"graphdiag: {sleep.pid}: runs no Python that graphdiag recognises.\n"


def test_inject_without_hypno_names_the_extra(
    run: Run, started: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hypno", None)
    monkeypatch.setattr(processes, "python_version", lambda pid: (3, 11))
    code, _, err = run("attach", str(started.start(PLAIN).pid), "--inject")
    assert code == 2
    assert "needs hypno; pip install 'graphdiag[attach]'" in err


def test_python_3_14_is_reached_by_its_own_kind_alone(
    run: Run, started: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = started.start(PLAIN).pid
    monkeypatch.setattr(processes, "python_version", lambda pid: (3, 99))
    code, _, err = run("attach", str(pid), "--inject")
    assert code == 2
    assert err == (
        f"graphdiag: {pid}: runs Python 3.99, which only the same Python may bring code into; "
        "run graphdiag with Python 3.99.\n"
    )


def test_remote_exec_is_given_a_script_that_every_user_may_read(
    started: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands in for the target: runs the script it is given in a process that then listens."""
    given = []
    process = started.start(PLAIN)

    def remote_exec(pid: int, script: str) -> None:
        given.append((pid, Path(script).stat().st_mode & 0o777, Path(script).read_text()))

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    monkeypatch.setattr(processes, "python_version", lambda pid: sys.version_info[:2])
    monkeypatch.setattr(injecting, "_REMOTE_EXEC", (3, 0))
    monkeypatch.setattr(attaching, "wait_until_listening", lambda pid, seconds: True)
    assert injecting.inject(process.pid) == [process.pid]
    ((pid, mode, code),) = given
    assert pid == process.pid
    assert mode & 0o444 == 0o444
    runs = f"import time\n{code}\nprint('ready', flush=True)\ntime.sleep(60)"
    target = started.start(runs)
    assert control_socket.answers(started.listening(target.pid))
