"""``graphdiag experiment --engine vllm``: the real vLLM, as it is installed, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.practice import LOTS, decode_steps
from tests.engines.vllm_lab import Lab, make_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The practice on vLLM: eager and compiled, once each, from an empty compile cache."""
    folder = tmp_path_factory.mktemp("experiment") / "out"
    model = folder.parent / "model"
    make_model(vllm_lab.python, model, layers=1)  # compiling is what takes the time
    command = [sys.executable, "-m", "graphdiag", "experiment", "--engine", "vllm", "--json"]
    command += ["--model", str(model), "--python", vllm_lab.python]
    command += ["--rounds", "1", "--number", str(LOTS), "--out", str(folder)]
    done = subprocess.run(
        command, env=vllm_lab.environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


Found = tuple[Path, dict[str, Any]]


def test_the_batches_are_the_practices(found: Found) -> None:
    folder, _ = found
    for mode in ("eager", "compiled"):
        decode = decode_steps(folder / f"{mode}-1.parquet")
        assert {row["outcome"] for row in decode} == {"eager"}  # no graphs, by configuration


def test_the_table_has_what_each_mode_cost(found: Found) -> None:
    _, told = found
    rows = {row["mode"]: row for row in told["modes"]}
    assert list(rows) == ["eager", "compiled"]
    for row in rows.values():
        assert row["first_step_s"] > row["cold_start_s"] > 1
        assert row["prepare_ms"] > 0
        assert row["step_ms"] > 0
        assert row["rate"]["goodput_tokens_per_s"] > 0
        assert row["graph_bytes"] is None
        assert row["gpu_gap_ms"] is None
    held = rows["compiled"]["against"]
    later = rows["compiled"]["first_step_s"] - rows["eager"]["first_step_s"]
    assert held["cold"]["later_s"] == pytest.approx(later)
    assert held["change_ms_per_step"] is not None
    assert held["succeeded"] is not None
    assert told["versions"]["vllm"].startswith("0.")


def test_it_says_what_a_cpu_has_not(found: Found) -> None:
    _, told = found
    assert "graphs was left out: vllm has no CUDA graphs on a CPU." in told["notes"]
    assert any("neither" in sentence for sentence in told["not_identifiable"])
    assert told["buckets"] == []
    assert told["bucket_change"] is None
