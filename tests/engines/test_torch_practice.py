"""``graphdiag experiment`` with the bundled engine on the real torch, as a person starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.engines.practice import LOTS, decode_steps
from tests.engines.test_torch import PYTHON, pytestmark

__all__ = ["pytestmark"]  # pytest takes it from here


def test_the_practice_on_the_bundled_engine(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "graphdiag", "experiment", "--json", "--modes", "eager"]
    command += ["--python", PYTHON, "--rounds", "1", "--number", str(LOTS), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["ended"] for run in found["runs"]] == ["whole"]
    (eager,) = found["modes"]
    assert eager["cold_start_s"] > 0
    assert eager["prepare_ms"] > 0
    assert 0 < eager["rate"]["goodput_share"] <= 1
    assert {row["outcome"] for row in decode_steps(folder / "eager-1.parquet")} == {"eager"}
    answer = json.loads((folder / "experiment.json").read_text())
    assert answer == found
