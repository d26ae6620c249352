"""``graphdiag compare`` on two runs of the real vLLM whose graphs have other sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphdiag.comparison.answer import Terms
from tests.engines.vllm_lab import Lab, make_model

pytestmark = pytest.mark.slow

FINE = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COARSE = (1, 256)
ROUNDS = 6
WIDTH = 256
"""Of the model: wide enough that a padded row costs more than a noisy machine hides."""


@pytest.fixture(scope="module")
def traces(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same requests, first on a ladder that doubles, then with one size for nearly all."""
    folder = tmp_path_factory.mktemp("compare")
    make_model(vllm_lab.python, vllm_lab.home / "wide", WIDTH)
    tokens, found = [], []
    for name, sizes in (("fine", FINE), ("coarse", COARSE)):
        trace = folder / f"{name}.parquet"
        listed = ",".join(map(str, sizes))
        told = vllm_lab.run("vllm_buckets.py", listed, ROUNDS, trace=trace, model="wide")
        tokens.append(told["tokens"])
        found.append(trace)
    assert tokens[0] == tokens[1]
    return found[0], found[1]


def _graphdiag(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdiag", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def _compared(base: Path, candidate: Path) -> dict[str, Any]:
    done = _graphdiag("compare", base, candidate, "--json", "--slo-itl-ms", 20)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    total = sum(found["terms"].values())
    assert total == pytest.approx(found["delta_ms_per_step"], rel=1e-9, abs=1e-12)
    assert list(found["terms"]) == list(Terms.__struct_fields__)
    return found


def test_the_coarser_ladder_pads_and_is_slower_for_it(traces: tuple[Path, Path]) -> None:
    found = _compared(*traces)
    ratios = [found[side]["metrics"]["padding_ratio"] for side in ("base", "candidate")]
    assert ratios[1] > 5 * ratios[0]
    assert found["terms"]["padding"] > 0
    assert found["terms_ci95"]["padding"][0] > 0
    assert found["matched_ms_per_step"] > 0
    assert found["verdict"]["case"] == "padding"
    # The same requests in the same order: the batches are the same.
    assert abs(found["terms"]["traffic_mix"]) < 0.05 * found["base_ms_per_step"]
    assert found["terms"]["fallback"] == pytest.approx(0, abs=0.05 * found["base_ms_per_step"])
    changed = {one["key"]: one for one in found["differences"]}
    assert changed["capture_sizes"]["base"] == list(FINE)
    assert changed["capture_sizes"]["candidate"] == list(COARSE)
    assert set(changed) == {"capture_sizes", "config_hash"}, changed
    # Nothing is recorded before an offline engine's first batch, and it is said.
    assert found["base_start_up"]["first_step_s"] is None
    assert any("The time to the first step of the base" in s for s in found["not_identifiable"])
    assert found["objectives"]["base"]["tokens_per_s"] > 0


def test_the_finer_ladder_takes_it_away_again(traces: tuple[Path, Path]) -> None:
    found = _compared(*reversed(traces))
    assert found["terms"]["padding"] < 0
    assert found["verdict"]["case"] is None


def test_check_fails_on_the_coarser_ladder_alone(traces: tuple[Path, Path]) -> None:
    fine, coarse = traces
    done = _graphdiag("check", coarse, "--baseline", fine, "--max-slowdown", "5%")
    assert done.returncode == 1, done.stdout
    assert "slower than the baseline's on equal traffic" in done.stdout
    assert _graphdiag("check", fine, "--baseline", coarse, "--max-slowdown", "5%").returncode == 0
