"""The server logs of real failures, with their known answers, and the traffic figures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_every_case_comes_out(shared: Path) -> None:
    checker = shared / "tools" / "check_cases.py"
    command = [sys.executable, str(checker), str(shared / "cases")]
    done = subprocess.run(
        [*command, "--cmd", f"{sys.executable} -m graphdiag"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def buckets(source: Path, *options: str) -> dict[str, Any]:
    """What ``graphdiag buckets SOURCE --json`` prints."""
    command = [sys.executable, "-m", "graphdiag", "buckets", str(source), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("above", "padding", "graphs"),
    [
        ("256,512,1024,2048", 0.3958, 23),
        ("192-2048:64", 0.0914, 49),
        ("136-2048:8", 0.0114, 259),
    ],
    ids=["doubling", "step 64", "step 8"],
)
def test_the_ladders_pad_what_they_are_known_to(
    shared: Path, above: str, padding: float, graphs: int
) -> None:
    traffic = shared / "traffic" / "azure_conv_x9_histogram.csv"
    answer = buckets(traffic, "--current", f"1,2,4,8-128:8,{above}")
    assert len(answer["current"]["buckets"]) == answer["current"]["graphs"] == graphs
    assert answer["current"]["padding_ratio"] == pytest.approx(padding, abs=5e-5)
    assert answer["current"]["fallback_rate"] == 0


def test_the_best_sets_pad_what_they_are_known_to(shared: Path) -> None:
    traffic = shared / "traffic" / "azure_conv_x9_histogram.csv"
    doubling = "1,2,4,8-128:8,256,512,1024,2048"
    answer = buckets(traffic, "--current", doubling, "--max-graphs", "49")
    assert len(answer["best_same_count"]["buckets"]) == 23
    assert answer["best_same_count"]["padding_ratio"] == pytest.approx(0.0519, abs=5e-5)
    assert len(answer["recommended"]["buckets"]) == 49
    assert answer["recommended"]["padding_ratio"] == pytest.approx(0.0226, abs=5e-5)
    sizes = " ".join(map(str, answer["recommended"]["buckets"]))
    assert answer["flags"]["sglang"] == f"--cuda-graph-bs-decode {sizes}"
    assert answer["gain"]["ci95"][0] > 0
