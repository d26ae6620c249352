"""``graphdiag record`` runs a real child process; everything passes through."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphdiag.trace import open_trace

ENGINE = """
import sys
from graphdiag_collectors import Recorder
recorder = Recorder.from_environment({"engine": "mine", "capture_sizes": [8, 16]})
for size in (8, 9, 40):
    with recorder.step(requested=size) as step:
        if size > 16:
            step.fallback("over_max")
        else:
            step.replayed(bucket=8 if size <= 8 else 16, artifact="decode")
print("out:" + sys.stdin.read())
sys.exit(7)
"""


def record(folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "graphdiag", "record", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def test_steps_are_recorded_and_input_output_and_exit_code_pass_through(tmp_path):
    done = record(tmp_path, "--", sys.executable, "-c", ENGINE, input="hello")
    assert done.returncode == 7
    assert done.stdout == "out:hello\n"
    assert "Next: graphdiag report trace.parquet" in done.stderr
    steps = open_trace(tmp_path / "trace.parquet").steps().collect()
    assert steps["requested"].to_list() == [8, 9, 40]
    assert steps["outcome"].to_list() == ["exact", "padded", "fallback"]


def test_a_command_without_collector_is_said(tmp_path):
    done = record(tmp_path, "-o", "t.parquet", "--", sys.executable, "-c", "pass")
    assert done.returncode == 0
    assert "nothing was recorded into t.parquet" in done.stderr


def test_an_existing_trace_is_kept_unless_appended_to(tmp_path):
    arguments = ("--", sys.executable, "-c", ENGINE)
    record(tmp_path, *arguments, input="")
    refused = record(tmp_path, *arguments, input="")
    assert refused.returncode == 2
    assert "trace.parquet: exists already" in refused.stderr
    assert record(tmp_path, "--append", *arguments, input="").returncode == 7
    assert len(open_trace(tmp_path / "trace.parquet").steps().collect()) == 6


def test_a_command_that_is_not_there(tmp_path):
    done = record(tmp_path, "--", "no-such-engine-anywhere")
    assert done.returncode == 127
    assert done.stderr == "graphdiag: no-such-engine-anywhere: no such command; check its name.\n"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_signal_reaches_the_command(tmp_path):
    waits = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "graphdiag", "record", "--", sys.executable, "-c", waits],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    for _ in range(300):
        if (tmp_path / "ready").exists():
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 3


def test_a_command_ended_by_a_signal_reports_it_as_a_shell_does(tmp_path):
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert record(tmp_path, "--", sys.executable, "-c", dies).returncode == 137
