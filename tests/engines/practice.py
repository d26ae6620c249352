"""What both engines must have run where the practice's workload was asked for."""

from __future__ import annotations

from pathlib import Path

from graphdiag.experiment.workloads import LOT_STEPS, PRACTICE
from tests.collectors.rows import Row, read

LOTS = 100
"""Lots to run: so many have the distribution's shares exactly."""


def decode_steps(trace: Path) -> list[Row]:
    """Return the real decode steps of a trace, after a look at their sizes."""
    steps = [row for row in read(trace, "step") if row["kind"] is None]
    decode = [row for row in steps if row["phase"] == "decode"]
    assert len(decode) == LOTS * LOT_STEPS
    for first, last, percent in PRACTICE:
        inside = sum(first <= row["requested"] <= last for row in decode)
        assert inside * 100 == percent * len(decode), (first, last)
    return decode
