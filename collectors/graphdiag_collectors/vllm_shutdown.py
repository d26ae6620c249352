"""Have an engine's processes write their rows before vLLM's front end kills them.

``vllm serve`` gives them no time to end: SIGKILL follows SIGTERM at once. Nothing can run in them
then, and what they recorded since the writer last wrote would be lost. So the front end asks each
process it started to write first, at the socket that ``graphdiag attach`` speaks to. Where there
is none, because ``GRAPHDIAG_ATTACH`` is 0, nothing is asked.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from graphdiag_collectors import control_socket
from graphdiag_collectors.vllm_state import State

SECONDS = 1.0
"""How long all of them together may take: a disk may hang."""
_FARTHEST = 10
"""Generations of processes below the front end."""

Function = Callable[..., Any]


def hook_manager(state: State, utils: ModuleType) -> None:
    """Patch what ends the engine's processes."""
    owner = utils.CoreEngineProcManager
    for name in ("shutdown", "close"):  # its name now, and before 0.19
        if name in vars(owner):
            state.hooks.patch(owner, name, _asking)


def _asking(original: Function) -> Function:
    def end(self: Any, *args: Any, **kwargs: Any) -> Any:
        ask_to_write(SECONDS)
        return original(self, *args, **kwargs)

    return end


def ask_to_write(seconds: float) -> int:
    """Have every process below this one write what it recorded, for at most ``seconds``.

    Returns how many did. Never raises.
    """
    deadline = time.monotonic() + seconds
    wrote = 0
    for pid, path in _below():
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(left)
                connection.connect(str(path))
                if control_socket.peer(connection)[0] == pid:
                    control_socket.send(connection, {"command": "flush"})
                    answer = control_socket.receive(connection, left)
                    wrote += answer.get("ok") is True
        except (OSError, ValueError):
            continue  # it is gone, or hangs
    return wrote


def _below() -> Iterator[tuple[int, Path]]:
    """Yield the processes below this one that have a socket."""
    for folder in control_socket.folders(os.environ, os.geteuid()):
        try:
            control_socket.check_folder(folder, os.geteuid())
            paths = sorted(folder.glob("*.sock"))
        except OSError:
            continue
        for path in paths:
            if path.stem.isdecimal() and _is_below(int(path.stem)):
                yield int(path.stem), path


def _is_below(pid: int) -> bool:
    for _ in range(_FARTHEST):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            pid = int(stat.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid == os.getpid():
            return True
        if pid <= 1:
            return False
    return False
