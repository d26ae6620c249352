"""An engine's processes write their rows before vLLM's front end kills them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import vllm_shutdown
from graphdiag_collectors.vllm_state import State
from tests.attachable import Engines, engines
from tests.collectors.rows import steps

WORKER = """
import time
from graphdiag_collectors import control, session, writer
writer.FLUSH_SECONDS = 600
control.listen()
recorder = session.recorder({"engine": "mine"})
for size in range(1, 6):
    recorder.record(requested=size)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    with engines() as started:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(started.runtime))
        yield started


class Manager:
    """Shaped like ``CoreEngineProcManager``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def shutdown(self, timeout: float | None = None) -> float | None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return timeout


def test_rows_are_written_before_the_kill(started: Engines, tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    worker = started.start(WORKER, GRAPHDIAG_TRACE=str(trace))
    started.listening(worker.pid)
    assert steps(trace) == []
    owner: Any = type("CoreEngineProcManager", (Manager,), dict(vars(Manager)))
    vllm_shutdown.hook_manager(State(), SimpleNamespace(CoreEngineProcManager=owner))  # type: ignore[arg-type]
    assert owner(worker).shutdown(timeout=0.0) == 0.0
    assert [row["requested"] for row in steps(trace)] == [1, 2, 3, 4, 5]


def test_only_processes_below_are_asked(started: Engines, tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    worker = started.start(WORKER, GRAPHDIAG_TRACE=str(trace))
    started.listening(worker.pid)
    code = "from graphdiag_collectors import vllm_shutdown as v; print(v.ask_to_write(5))"
    other = [sys.executable, "-c", code]
    environment = started.environment()
    assert subprocess.run(other, env=environment, capture_output=True).stdout == b"0\n"
    assert vllm_shutdown.ask_to_write(5.0) == 1
    assert len(steps(trace)) == 5


def test_a_process_that_hangs_is_not_waited_for(started: Engines, tmp_path: Path) -> None:
    worker = started.start(WORKER, GRAPHDIAG_TRACE=str(tmp_path / "trace.parquet"))
    started.listening(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    start = time.monotonic()
    assert vllm_shutdown.ask_to_write(0.3) == 0
    assert 0.25 < time.monotonic() - start < 5
