"""What the system tells about processes: who owns them, who started them, what they run."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

from graphdiag.errors import GraphdiagError

_PROC = Path("/proc")
_PYTHON = re.compile(r"python(\d+)\.(\d+)")


def user_of(pid: int) -> int:
    """Return the user (effective uid) that process ``pid`` runs as.

    Raises
    ------
    GraphdiagError
        When there is no such process.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[2])
    raise GraphdiagError(
        f"{pid}: no such process; graphdiag status lists the processes it can attach to."
    )


def check_access(pid: int) -> int:
    """Return the user of process ``pid``.

    Raises
    ------
    GraphdiagError
        When there is no such process, or it is another user's and we are not root.
    """
    user = user_of(pid)
    if os.geteuid() not in (0, user):
        name = user_name(user)
        who = "as root" if user == 0 else f"as {name} or as root"
        raise GraphdiagError(f"{pid}: belongs to user {name}; run graphdiag {who}.")
    return user


def user_name(user: int) -> str:
    """Return the name of a uid, or its number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def family(pid: int) -> list[int]:
    """Return ``pid`` and all processes it started, directly or not, parents first."""
    children: dict[int, list[int]] = {}
    for one in pids():
        parent = _parent(one)
        if parent is not None:
            children.setdefault(parent, []).append(one)
    found = [pid]
    for one in found:
        found += sorted(children.get(one, []))
    return found


def pids() -> Iterator[int]:
    """Yield all processes there are now."""
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def environment(pid: int) -> dict[str, str]:
    """Return the environment ``pid`` was started with; empty where it may not be read."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def bound_sockets(pid: int) -> list[Path]:
    """Return where Unix sockets are bound that ``pid`` can see: its own and others'."""
    try:
        lines = (_PROC / str(pid) / "net" / "unix").read_bytes().splitlines()
    except OSError:
        return []
    fields = (os.fsdecode(line).split(maxsplit=7) for line in lines)
    return [Path(each[7]) for each in fields if len(each) == 8 and each[7].startswith("/")]


def python_version(pid: int) -> tuple[int, int] | None:
    """Return the Python that ``pid`` runs, by its program and libraries; None where it is none."""
    candidates = [*_program(pid), *(name for name in _libraries(pid) if "libpython" in name)]
    for candidate in candidates:
        found = _PYTHON.search(candidate.rpartition("/")[2])
        if found:
            return int(found[1]), int(found[2])
    return None


def has_torch(pid: int) -> bool:
    """Say whether torch's library is loaded in ``pid``."""
    return any("libtorch" in name for name in _libraries(pid))


def _program(pid: int) -> list[str]:
    try:
        return [str((_PROC / str(pid) / "exe").readlink())]
    except OSError:
        return []


def _libraries(pid: int) -> set[str]:
    try:
        lines = (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def _parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
