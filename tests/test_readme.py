"""Every command and every program in the README runs, in the order a reader meets them."""

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SET_UP = "python3 -m venv"

PROFILE = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 1_767_189_312_000_000_000,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "step[DECODE bs=9]",
            "pid": 1,
            "tid": 1,
            "ts": 1000.0,
            "dur": 900.0,
            "args": {},
        },
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaGraphLaunch",
            "pid": 1,
            "tid": 1,
            "ts": 1100.0,
            "dur": 50.0,
            "args": {"correlation": 7},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "decode",
            "pid": 0,
            "tid": 7,
            "ts": 1200.0,
            "dur": 600.0,
            "args": {"correlation": 7, "stream": 7, "device": 0},
        },
    ],
}


ENGINE = f"""#!{sys.executable}
from graphdiag_collectors import Recorder
with Recorder.from_environment({{"engine": "stand-in", "capture_sizes": [8, 16]}}) as recorder:
    for size in [8, 9, 16] * 10:
        with recorder.step(requested=size) as step:
            step.replayed(bucket=8 if size == 8 else 16, artifact="decode")
"""
"""Stands in for the engines the README starts, which a test machine does not have."""


WITHOUT_TORCH = f"""#!{sys.executable}
print('{{"missing": ["torch"]}}')
"""
"""Stands in for a Python without torch: the experiment takes minutes with one that has it."""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A folder with the files the README speaks of."""
    shutil.copytree(ROOT / "sample_traces", tmp_path / "sample_traces")
    log = (
        "[2026-05-04 09:30:02] Capture cuda graph bs [8, 16]\n"
        "[2026-05-04 09:30:10] Capture cuda graph end. Time elapsed: 8.10 s. "
        "mem usage=0.60 GB. avail mem=8.50 GB.\n"
    ) + "".join(
        f"[2026-05-04 09:30:{second}] Decode batch. #running-req: 8, #token: 1680, token usage: "
        "0.01, cuda graph: True, gen throughput (token/s): 900.00, #queue-req: 0, \n"
        for second in range(11, 31)
    )
    (tmp_path / "server.log").write_text(log)
    rotated = log.replace("09:30", "08:30").encode()
    (tmp_path / "server.log.1.gz").write_bytes(gzip.compress(rotated))
    for name in ("vllm", "python"):
        (tmp_path / name).write_text(ENGINE)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "profile.json.gz").write_bytes(gzip.compress(json.dumps(PROFILE).encode()))
    return tmp_path


def test_every_block_of_the_readme_runs(reader: Path) -> None:
    ran = 0
    for language, text in BLOCKS:
        if language == "python":
            _run([sys.executable, "-c", text], reader)
            ran += 1
            continue
        for line in text.strip().splitlines():
            command = line.rsplit("&&", 1)[-1].strip() if SET_UP in line else line
            if command.endswith("pytest -q -n 2"):
                continue  # this very run
            words = shlex.split(command)
            assert Path(words[0]).name == "graphdiag", line
            if words[1] == "dashboard":
                _start_and_stop(words[1:], reader)
                ran += 1
                continue
            if words[1] == "experiment":
                _begins(words[2:], reader)
                ran += 1
                continue
            _run([sys.executable, "-m", "graphdiag", *words[1:]], reader)
            ran += 1
    assert ran >= 10


def test_the_two_set_up_commands_are_whole() -> None:
    lines = [line for language, text in BLOCKS if language == "bash" for line in text.splitlines()]
    set_up = [line for line in lines if SET_UP in line]
    assert len(set_up) == 2
    assert "pip install -q . " in set_up[0]
    assert '".[test]"' in set_up[1]


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def _start_and_stop(arguments: list[str], folder: Path) -> None:
    """Run a command that serves until it is interrupted; on any port, for 5007 may be taken."""
    command = [sys.executable, "-m", "graphdiag", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert "http://127.0.0.1:" in server.stderr.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0
        assert "Traceback" not in server.stderr.read()


def _run(command: list[str], folder: Path) -> None:
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "NO_COLOR": "1", "PATH": path}
    environment.pop("GRAPHDIAG_TRACE", None)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert "Traceback" not in done.stderr


def _begins(options: list[str], folder: Path) -> None:
    """Check that an experiment with these options gets as far as to look for its engine."""
    python = folder / "without-torch"
    python.write_text(WITHOUT_TORCH)
    python.chmod(0o755)
    command = [sys.executable, "-m", "graphdiag", "experiment", *options, "--python", str(python)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert 'pip install "graphdiag[torch]"' in done.stderr
