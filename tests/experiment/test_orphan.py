"""A run ends with the experiment that started it, even where that was killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

CHILD = """
from graphdiag.experiment.orphan import end_with_parent
import time
end_with_parent()
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
from graphdiag.experiment.orphan import PARENT_VARIABLE
environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
child = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], env=environment, start_new_session=True
)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells a child on Linux alone")
def test_a_killed_parent_takes_its_run_along():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        told = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        assert "ready" in told
        (pid,) = map(int, told - {"ready"})
        parent.kill()
    until = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(pid):
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
