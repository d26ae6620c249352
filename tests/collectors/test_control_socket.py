"""The socket of a process: who may speak, what it survives, and when it is there."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdiag_collectors import control_socket
from tests.attachable import COLLECTOR, LOOP, OFFERED, UID, Engines, engines, until

NOBODY = 65534


@pytest.fixture
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\xff\xfe\0garbage\n", "the line is not JSON"),
        (b"[1, 2]\n", "the line is not a JSON object"),
        (b"\n", "the line is not JSON"),
        (b"[" * 50_000 + b"\n", "the line is not JSON"),
        (b"x" * (control_socket.MOST_BYTES + 1), "the line is longer than 65536 bytes"),
    ],
)
def test_a_line_that_is_no_question_is_refused(
    pair: tuple[socket.socket, socket.socket], line: bytes, why: str
) -> None:
    ours, theirs = pair
    theirs.sendall(line)
    with pytest.raises(ValueError, match=why):
        control_socket.receive(ours, 1)


def test_a_line_without_end_is_not_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b'{"command"')
    with pytest.raises(TimeoutError):
        control_socket.receive(ours, 0.05)
    theirs.close()
    with pytest.raises(ConnectionResetError, match="the line has no end"):
        control_socket.receive(ours, 0.05)


def test_the_kernel_names_the_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    assert control_socket.peer(pair[0]) == (os.getpid(), UID)


def test_folders_are_looked_for_in_order_and_once() -> None:
    folders = control_socket.folders({"XDG_RUNTIME_DIR": "/run/user/7", "TMPDIR": "/tmp"}, 7)
    assert folders == [Path("/run/user/7/graphdiag-7"), Path("/tmp/graphdiag-7")]
    assert control_socket.folders({"XDG_RUNTIME_DIR": "relative"}, 7) == [Path("/tmp/graphdiag-7")]


def test_only_its_user_may_reach_it(started: Engines) -> None:
    path = started.listening(started.start(OFFERED).pid)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.parent.stat().st_uid == UID


_STRANGER = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
    connection.sendall(b'{"command": "ping"}\\n')
    print(connection.recv(4096).decode(), end="")
except PermissionError:
    print("permission denied")
"""


@pytest.mark.skipif(UID != 0, reason="needs root, to become another user")
def test_another_user_is_refused_by_the_files_and_by_the_process(started: Engines) -> None:
    process = started.start(OFFERED)
    path = started.listening(process.pid)
    started.runtime.chmod(0o755)

    def stranger() -> str:
        command = ["/usr/bin/env", "python3", "-c", _STRANGER, str(path)]
        done = subprocess.run(
            command,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if "No such file" in done.stderr:
            pytest.skip("needs a python3 in /usr/bin that every user may run")
        return done.stdout

    assert stranger() == "permission denied\n"
    path.parent.chmod(0o755)
    path.chmod(0o666)
    assert "another user's process may not be spoken to" in stranger()
    path.parent.chmod(0o700)
    assert started.ask(process.pid, "ping")["ok"] is True


def test_a_folder_that_others_can_write_to_is_not_used(started: Engines) -> None:
    started.folder.mkdir()
    started.folder.chmod(0o755)
    other = started.runtime / "tmp"
    other.mkdir()
    process = started.start(OFFERED, TMPDIR=str(other))
    path = other / f"graphdiag-{UID}" / f"{process.pid}.sock"
    until(path.exists)
    assert list(started.folder.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_not_followed(started: Engines) -> None:
    elsewhere = started.runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    started.folder.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="is not a folder"):
        control_socket.check_folder(started.folder, UID)


@pytest.mark.skipif(UID != 0, reason="needs root, to make a folder of another user")
def test_a_folder_of_another_user_is_not_used(started: Engines) -> None:
    started.folder.mkdir(mode=0o700)
    os.chown(started.folder, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to user 65534, not 0"):
        control_socket.check_folder(started.folder, UID)


def test_a_path_that_is_too_long_for_a_socket_is_left_out(started: Engines) -> None:
    deep = started.runtime / ("d" * 100)
    deep.mkdir()
    process = started.start(OFFERED, XDG_RUNTIME_DIR=str(deep), TMPDIR=str(started.runtime))
    assert started.ask(process.pid, "ping")["pid"] == process.pid


def test_a_process_that_does_not_want_it_has_no_thread_and_no_socket(started: Engines) -> None:
    script = f"{OFFERED}".replace(
        'print("ready"', 'import threading; assert threading.active_count() == 1; print("ready"'
    )
    process = started.start(script, GRAPHDIAG_ATTACH="0")
    time.sleep(0.2)
    assert not started.path(process.pid).exists()


_ROUGH = f"""
import signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
from graphdiag_collectors import control_listener
control_listener.TALK_SECONDS = 0.2
{OFFERED}
"""


def test_nothing_a_peer_does_ends_the_thread_or_the_process(started: Engines) -> None:
    process = started.start(_ROUGH)
    path = started.listening(process.pid)

    def rough(data: bytes, read: bool) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            connection.sendall(data)
            return connection.recv(1 << 16) if read else b""

    assert b"the line is not JSON" in rough(b"GET / HTTP/1.1\r\n", True)
    assert b"is not one of" in rough(b'{"command": ["ping"]}\n', True)
    assert b"is not one of" in rough(b"{}\n", True)
    assert b"timed out" in rough(b'{"command": "pi', True)
    for _ in range(20):  # gone before the answer: a SIGPIPE would end this process
        rough(b'{"command": "status"}\n', False)
        rough(b"", False)
    assert started.ask(process.pid, "ping")["ok"] is True
    assert process.poll() is None


def test_a_very_long_line_is_refused_and_costs_no_memory(started: Engines) -> None:
    process = started.start(OFFERED)
    path = started.listening(process.pid)

    def resident() -> int:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096

    before = resident()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(bytes(64_000_000))
    assert started.ask(process.pid, "ping")["ok"] is True
    assert resident() - before < 1_000_000


def test_it_is_gone_after_an_ordinary_exit(started: Engines) -> None:
    script = OFFERED.replace("while True:", "import os\nwhile not os.path.exists(sys.argv[1]):")
    flag = started.runtime / "end"
    process = started.start(script, flag)
    path = started.listening(process.pid)
    flag.touch()
    assert process.wait(20) == 0
    assert not path.exists()


def test_what_a_killed_process_left_is_swept_by_the_next_one(started: Engines) -> None:
    killed = started.start(OFFERED)
    stale = started.listening(killed.pid)
    killed.kill()
    killed.wait()
    assert stale.exists()
    bystander = started.folder / "notes.txt"
    bystander.touch()
    another = started.start(OFFERED)
    living = started.listening(another.pid)
    until(lambda: not stale.exists())
    assert living.exists()
    assert bystander.exists()
    third = started.start(OFFERED)
    started.listening(third.pid)
    assert started.ask(another.pid, "ping")["pid"] == another.pid


def test_a_stale_socket_of_its_own_number_is_replaced(started: Engines) -> None:
    script = f"""
import os, socket
folder = os.environ["XDG_RUNTIME_DIR"] + "/graphdiag-" + str(os.getuid())
os.mkdir(folder, 0o700)
socket.socket(socket.AF_UNIX).bind(folder + "/" + str(os.getpid()) + ".sock")
{OFFERED}
"""
    process = started.start(script)
    assert started.ask(process.pid, "ping")["pid"] == process.pid


def test_it_comes_back_when_the_runtime_folder_is_emptied(started: Engines) -> None:
    script = f"""
from graphdiag_collectors import control_listener
control_listener.LOOK_SECONDS = 0.1
{OFFERED}
"""
    process = started.start(script)
    path = started.listening(process.pid)
    path.unlink()
    path.parent.rmdir()
    assert started.ask(process.pid, "ping")["pid"] == process.pid


_FORKS = f"""{COLLECTOR}
import os
control.offer("mine", install, uninstall)
deadline = time.monotonic() + 10
while not os.path.exists(sys.argv[1]) and time.monotonic() < deadline:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    sys.exit(0)  # atexit runs here too
control.add_command("child", lambda question: {{"child": child}})
{LOOP}
"""


def test_a_forked_child_has_a_socket_of_its_own(started: Engines) -> None:
    flag = started.runtime / "end"
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS, str(started.folder), str(flag)],
        stdout=subprocess.PIPE,
        env=started.environment(),
    )
    try:
        parent = started.listening(process.pid)
        until(lambda: "child" in started.ask(process.pid, "child"))
        child = started.ask(process.pid, "child")["child"]
        assert started.ask(child, "ping")["pid"] == child
        flag.touch()
        until(lambda: not started.path(child).exists())
        assert parent.exists()
        assert started.ask(process.pid, "ping")["pid"] == process.pid
        process.kill()
        process.wait()
        assert not control_socket.answers(parent)
    finally:
        process.kill()
        process.communicate()


def test_a_child_does_not_keep_the_socket_of_a_dead_parent_open(started: Engines) -> None:
    flag = started.runtime / "end"
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS, str(started.folder), str(flag)],
        stdout=subprocess.PIPE,
        env=started.environment(),
    )
    try:
        parent = started.listening(process.pid)
        until(lambda: "child" in started.ask(process.pid, "child"))
        child = started.listening(started.ask(process.pid, "child")["child"])
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not control_socket.answers(parent)
        assert control_socket.answers(child)
    finally:
        flag.touch()
        process.kill()
        process.communicate()


def test_a_child_of_multiprocessing_removes_its_socket_although_it_skips_atexit(
    started: Engines,
) -> None:
    script = f"""{COLLECTOR}
import multiprocessing, os
control.offer("mine", install, uninstall)
def work(flag):
    while not os.path.exists(flag):
        time.sleep(0.01)
process = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
process.start()
control.add_command("child", lambda question: {{"child": process.pid}})
{LOOP}
"""
    flag = started.runtime / "end"
    process = started.start(script, flag)
    child = started.ask(process.pid, "child")["child"]
    path = started.listening(child)
    flag.touch()
    until(lambda: not path.exists())


def test_a_child_that_is_gone_at_once_leaves_nothing(started: Engines) -> None:
    script = f"""{COLLECTOR}
import os
control.offer("mine", install, uninstall)
for _ in range(5):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
{LOOP}
"""
    process = started.start(script)
    assert [path.name for path in started.listening(process.pid).parent.iterdir()] == [
        f"{process.pid}.sock"
    ]
