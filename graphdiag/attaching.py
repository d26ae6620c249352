"""Speak to the collectors of running processes: switch them on and off, ask how far they are.

A process is named by its id or by that of a process that started it: an engine's front end stands
for its workers. The other side is :mod:`graphdiag_collectors.control`.
"""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphdiag import processes
from graphdiag.errors import GraphdiagError
from graphdiag_collectors import control_socket

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
"""Attaching imports Arrow there, and detaching seals files: both beside a busy engine."""
_MOST_BYTES = 1 << 22

_NO_LISTENER = (
    "no graphdiag listens in it or in a process it started; start it with graphdiag record, or "
    "install graphdiag in its environment and start it again, or bring the collectors in with "
    "graphdiag attach --inject (pip install 'graphdiag[attach]')"
)


@dataclass(frozen=True)
class Answer:
    """What one process answered.

    Attributes
    ----------
    pid
        The process.
    told
        Its answer; empty where there is none.
    error
        Why there is none, or why it refused; None where it did what it was asked.
    """

    pid: int
    told: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def attach(pid: int, trace: Path, append: bool = False) -> list[Answer]:
    """Switch the collectors of ``pid`` and its children on, recording into the folder ``trace``.

    Processes that record into it already go on, and those that do not join their run.

    Raises
    ------
    GraphdiagError
        When none can be spoken to, or ``trace`` holds another recording and not ``append``.
    """
    listening = find(pid)
    folder = str(trace.absolute())
    runs = [
        answer.told.get("run")
        for answer in _ask_all(listening, {"command": "status"})
        if answer.told.get("trace") == folder
    ]
    if not append and not runs and _holds_something(trace):
        raise GraphdiagError(
            f"{trace}: exists already; name another folder with -o, or give --append to add to it."
        )
    run = next(filter(None, runs), None) or uuid.uuid4().hex[:16]
    return _ask_all(listening, {"command": "attach", "trace": folder, "run": run})


def detach(pid: int) -> list[Answer]:
    """Switch the collectors of ``pid`` and its children off; answers of those that recorded.

    Raises
    ------
    GraphdiagError
        When none can be spoken to, or none records.
    """
    answers = _ask_all(find(pid), {"command": "detach"})
    if not any(answer.error or answer.told.get("was_recording") for answer in answers):
        raise GraphdiagError(f"{pid}: does not record; graphdiag attach {pid} switches it on.")
    return [answer for answer in answers if answer.error or answer.told.get("was_recording")]


def status(pid: int) -> list[Answer]:
    """Ask ``pid`` and its children what they record.

    Raises
    ------
    GraphdiagError
        When none can be spoken to.
    """
    return _ask_all(find(pid), {"command": "status"})


def status_of_all() -> list[Answer]:
    """Ask every process of this user (of any user, for root) that can be attached to."""
    found = []
    for pid in sorted(processes.pids()):
        with contextlib.suppress(GraphdiagError):
            path = socket_of(pid, processes.check_access(pid))
            if path is not None and control_socket.answers(path):
                found.append(pid)
    return _ask_all(found, {"command": "status"})


def find(pid: int) -> list[int]:
    """Return the processes to speak to for ``pid``: those of its family that listen.

    Raises
    ------
    GraphdiagError
        When there is none, with the way to get one.
    """
    processes.check_access(pid)
    listening: list[int] = []
    refusing: list[tuple[int, Path]] = []
    for one in processes.family(pid):
        try:
            path = socket_of(one, processes.check_access(one))
        except GraphdiagError:
            if one == pid:
                raise
            continue  # it has just ended, or has become another user's
        if path is not None and control_socket.answers(path):
            listening.append(one)
        elif path is not None:
            refusing.append((one, path))
    if listening:
        return listening
    if refusing:
        one, path = refusing[0]
        raise GraphdiagError(
            f"{one}: its socket {path} refuses connections: graphdiag's thread in it has ended; "
            "start the process again."
        )
    raise GraphdiagError(f"{pid}: {_NO_LISTENER}.")


def socket_of(pid: int, user: int) -> Path | None:
    """Return the socket of process ``pid`` of ``user``, or None where it has none.

    Raises
    ------
    GraphdiagError
        When it lies in a folder that others could have put it into.
    """
    for folder in _folders(pid, user):
        path = control_socket.socket_path(folder, pid)
        try:
            control_socket.check_folder(folder, user)
            if path.is_socket():
                return path
        except FileNotFoundError:
            continue
        except PermissionError as error:
            if path.is_socket():
                raise GraphdiagError(
                    f"{pid}: its socket's folder {folder} {error.strerror}, and is not trusted."
                ) from error
        except OSError:
            continue
    return None


def _folders(pid: int, user: int) -> Iterator[Path]:
    """Yield where the socket of process ``pid`` of ``user`` may be, best first."""
    yield from control_socket.folders(processes.environment(pid), user)
    # A process that has given itself a title, as vLLM's workers do, has no environment to be read.
    for path in processes.bound_sockets(pid):
        if path.parent.name == f"graphdiag-{user}" and path.name == f"{pid}.sock":
            yield path.parent


def ask(pid: int, question: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Answer:
    """Ask one process, and wait ``seconds`` for its answer."""
    try:
        user = processes.check_access(pid)
        path = socket_of(pid, user)
        if path is None:
            return Answer(pid, error="no graphdiag listens in it any more")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(str(path))
            if control_socket.peer(connection) != (pid, user):
                return Answer(pid, error=f"another process answers at its socket {path}")
            control_socket.send(connection, question)
            told = control_socket.receive(connection, seconds, _MOST_BYTES)
    except GraphdiagError as error:
        return Answer(pid, error=str(error).removeprefix(f"{pid}: ").removesuffix("."))
    except TimeoutError:
        return Answer(pid, error=f"did not answer within {seconds:g} s; is it stopped or hung?")
    except (OSError, ValueError) as error:
        return Answer(pid, error=f"did not answer ({error})")
    if told.get("ok") is not True:
        return Answer(pid, told, str(told.get("error", "it refused and did not say why")))
    return Answer(pid, told)


def wait_until_listening(pid: int, seconds: float) -> bool:
    """Wait until ``pid`` answers at its socket; False where it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        if ask(pid, {"command": "ping"}, CONNECT_SECONDS).error is None:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def _ask_all(pids: Sequence[int], question: Mapping[str, Any]) -> list[Answer]:
    return [ask(pid, question) for pid in pids]


def _holds_something(trace: Path) -> bool:
    """Say whether ``trace`` is more than an empty folder, as an attach without a step leaves it."""
    return trace.exists() and not (trace.is_dir() and not any(trace.iterdir()))
