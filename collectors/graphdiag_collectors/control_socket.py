"""The local socket a process is spoken to by: where it lies, who may speak, one line each way.

``<runtime folder>/graphdiag-<uid>/<pid>.sock``, the folder 0700 and ours, the socket 0600, the
peer checked by the kernel's word (``SO_PEERCRED``): the same user or root. One JSON object a line;
one question, one answer, and the connection ends. Linux only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 16
"""Longest question or answer."""
_LONGEST_PATH = 107
"""Bytes a socket's path may have (``sun_path``, without its closing zero)."""
_CREDENTIALS = struct.Struct("iII")


def folders(environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return where a process of ``uid`` with ``environment`` keeps its socket, best first."""
    bases = (environment.get("XDG_RUNTIME_DIR"), environment.get("TMPDIR"), "/tmp")
    return [
        Path(base) / f"graphdiag-{uid}"
        for base in dict.fromkeys(bases)
        if base and base.startswith("/")
    ]


def socket_path(folder: Path, pid: int) -> Path:
    """Return the path of the socket of process ``pid``."""
    return folder / f"{pid}.sock"


def bind() -> tuple[socket.socket, Path]:
    """Return a socket that listens for this process, and its path.

    Raises
    ------
    OSError
        When no folder will do, with the reason of the last one.
    """
    problem: OSError = OSError(errno.ENOENT, "there is no folder for it")
    for folder in folders(os.environ, os.geteuid()):
        path = socket_path(folder, os.getpid())
        try:
            _prepare(folder)
            return _bind(path), path
        except OSError as error:
            problem = error
    raise problem


def check_folder(folder: Path, uid: int) -> None:
    """Raise PermissionError unless ``folder`` is a real folder of ``uid`` that is closed to others.

    Raises
    ------
    OSError
        Also when it cannot be looked at, as FileNotFoundError where it is not there.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EPERM, "is not a folder", str(folder))
    if found.st_uid != uid:
        why = f"belongs to user {found.st_uid}, not {uid}"
        raise PermissionError(errno.EPERM, why, str(folder))
    if found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "is open to other users", str(folder))


def sweep(folder: Path) -> None:
    """Remove sockets that processes left behind: the process is gone, and nobody answers."""
    with contextlib.suppress(OSError):
        for path in folder.glob("*.sock"):
            if path.stem.isdecimal() and not _runs(int(path.stem)) and not answers(path):
                path.unlink(missing_ok=True)


def answers(path: Path) -> bool:
    """Say whether somebody listens at ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # it is busy
            return True
        except OSError:
            return False
        return True


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the kernel knows them."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(told)
    return pid, uid


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message as a line.

    Raises
    ------
    OSError
        When the peer is gone or does not read.
    """
    line = json.dumps(message, default=str).encode() + b"\n"
    # A peer that has gone must not end the process, whatever it made of SIGPIPE.
    connection.sendall(line, socket.MSG_NOSIGNAL)


def receive(connection: socket.socket, seconds: float, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the message that comes within ``seconds``.

    Raises
    ------
    OSError
        When the peer is gone, or is slower than that (TimeoutError).
    ValueError
        When the line is longer than ``most`` bytes, or is no JSON object.
    """
    deadline = time.monotonic() + seconds
    line = bytearray()
    while b"\n" not in line:
        if len(line) > most:
            raise ValueError(f"the line is longer than {most} bytes")
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "the line has no end")
        line += piece
    try:
        message = json.loads(line[: line.index(b"\n")])
    except (ValueError, RecursionError) as error:
        raise ValueError("the line is not JSON") from error
    if not isinstance(message, dict):
        raise ValueError("the line is not a JSON object")
    return message


def _prepare(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    check_folder(folder, os.geteuid())


def _bind(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    if answers(path):  # a process of another container, with the same number
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), str(path))
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(str(path))
        path.chmod(0o600)
        server.listen(64)
    except OSError:
        server.close()
        raise
    return server


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
