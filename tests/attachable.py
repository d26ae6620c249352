"""Real processes that can be attached to: a small engine with a collector of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graphdiag_collectors import control_socket

UID = os.geteuid()

COLLECTOR = """
import sys, time
from graphdiag_collectors import control

class Engine:
    steps = 0
    def step(self, size):
        Engine.steps += 1
        return size

def install():
    from graphdiag_collectors import session
    from graphdiag_collectors.guard import Hooks
    global hooks
    hooks = Hooks(session.current)
    guard = hooks.guard("mine.step")
    def wrap(original):
        def step(self, size):
            result = original(self, size)
            if guard.on:
                try:
                    recorder = session.recorder({"engine": "mine"}, phase="decode", rank=3)
                    recorder.record(requested=size, bucket=16, artifact="decode/16")
                except Exception as error:
                    guard.failed(error)
            return result
        return step
    hooks.patch(Engine, "step", wrap)
    hooks.patch(Engine, "sample", wrap)
    return hooks

def uninstall():
    hooks.unpatch()

HEAVY = ("pyarrow", "numpy", "polars", "asyncio", "multiprocessing", "subprocess", "tempfile")
control.add_command("look", lambda question: {
    "heavy": [name for name in HEAVY if name in sys.modules],
    "patched": hasattr(Engine.step, "__wrapped__"),
    "steps": Engine.steps,
})
"""

LOOP = """
print("ready", flush=True)
engine = Engine()
while True:
    assert engine.step(9) == 9
    time.sleep(0.002)
"""

OFFERED = f"""{COLLECTOR}
control.offer("mine", install, uninstall)
{LOOP}
"""


class Engines:
    """Starts processes whose sockets lie in a short folder of their own, and ends them."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.folder = runtime / f"graphdiag-{UID}"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """Start a script and return when it has printed a line."""
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**environment),
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        return process

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment they are started with."""
        kept = {name: value for name, value in os.environ.items() if "GRAPHDIAG" not in name}
        return {**kept, "XDG_RUNTIME_DIR": str(self.runtime), **more}

    def path(self, pid: int) -> Path:
        """Return where the socket of ``pid`` should be."""
        return self.folder / f"{pid}.sock"

    def listening(self, pid: int) -> Path:
        """Wait until ``pid`` listens, and return its socket."""
        path = self.path(pid)
        until(lambda: path.exists() and control_socket.answers(path))
        return path

    def ask(self, pid: int, command: str, **more: object) -> dict[str, Any]:
        """Return the answer of ``pid``."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(self.listening(pid)))
            control_socket.send(connection, {"command": command, **more})
            return control_socket.receive(connection, 20)

    def end(self) -> None:
        """Kill what still runs, with the children it forked, which hold its pipes open."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextlib.contextmanager
def engines() -> Iterator[Engines]:
    """Yield a way to start processes; they and their sockets are gone afterwards."""
    runtime = Path(tempfile.mkdtemp(prefix="gd", dir="/tmp"))
    started = Engines(runtime)
    try:
        yield started
    finally:
        started.end()
        shutil.rmtree(runtime)


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
