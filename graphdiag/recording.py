"""Run a command with the collectors switched on, and pass everything through."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import graphdiag_collectors
from graphdiag.errors import GraphdiagError
from graphdiag_collectors.recorder import RUN_VARIABLE, TRACE_VARIABLE

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_BOOT = Path(graphdiag_collectors.__file__).parent / "boot"
"""Folder of the sitecustomize that waits for engines which load no plugins."""


def record_command(command: Sequence[str], trace: Path) -> int:
    """Run ``command`` with its collectors recording into the folder ``trace``.

    Signals sent to this process go to the command; its output and input are its own.

    Returns
    -------
    int
        The command's exit code, 128 + n where signal n ended it, as a shell reports it.

    Raises
    ------
    GraphdiagError
        When the command does not exist (exit code 127) or cannot be executed (126).
    """
    environment = {
        **os.environ,
        TRACE_VARIABLE: str(trace.absolute()),
        RUN_VARIABLE: uuid.uuid4().hex[:16],
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_BOOT), os.environ.get("PYTHONPATH")])),
    }
    try:
        child = subprocess.Popen(list(command), env=environment)
    except FileNotFoundError as error:
        raise _unusable(f"{command[0]}: no such command; check its name.", _NOT_FOUND) from error
    except OSError as error:
        raise _unusable(f"{command[0]}: {error.strerror}.", _NOT_EXECUTABLE) from error

    def forward(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {}
    for name in _FORWARDED:
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, forward)
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def has_rows(trace: Path) -> bool:
    """Say whether anything was recorded into the folder ``trace``."""
    return trace.is_dir() and any(path.suffix in (".parquet", ".arrow") for path in trace.iterdir())


def _unusable(sentence: str, code: int) -> GraphdiagError:
    error = GraphdiagError(sentence)
    error.exit_code = code
    return error
