"""The server logs of real failures, with their known answers, and the traffic figures."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphdiag.buckets.histogram import Histogram
from graphdiag.buckets.recommend import fit


def test_every_case_comes_out(shared: Path) -> None:
    checker = shared / "tools" / "check_cases.py"
    command = [sys.executable, str(checker), str(shared / "cases")]
    done = subprocess.run(
        [*command, "--cmd", f"{sys.executable} -m graphdiag"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("above", "padding", "graphs"),
    [
        ([256, 512, 1024, 2048], 0.3958, 23),
        (range(192, 2049, 64), 0.0914, 49),
        (range(136, 2049, 8), 0.0114, 259),
    ],
    ids=["doubling", "step 64", "step 8"],
)
def test_the_ladders_pad_what_they_are_known_to(
    shared: Path, above: range, padding: float, graphs: int
) -> None:
    with (shared / "traffic" / "azure_conv_x9_histogram.csv").open(newline="") as file:
        rows = [(int(row["requested"]), int(row["count"])) for row in csv.DictReader(file)]
    ladder = np.array([1, 2, 4, *range(8, 129, 8), *above])
    assert len(ladder) == graphs
    sizes, counts = (np.array(column) for column in zip(*rows, strict=True))
    found = fit(Histogram(sizes, counts, "requests", ladder), ladder)
    assert found.padding_ratio == pytest.approx(padding, abs=5e-5)
    assert found.fallback_rate == 0
