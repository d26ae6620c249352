"""What the cases and the audit look at: summary, configuration, and sizes drawn from both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from graphdiag.buckets.histogram import Histogram
from graphdiag.costs import CostModel
from graphdiag.metrics import ELIGIBLE, is_real, is_replayed, is_target
from graphdiag.periods import STEADY
from graphdiag.runconfig import positive_int
from graphdiag.summary import Summary


@dataclass(frozen=True)
class Evidence:
    """Inputs of every case and every check.

    Attributes
    ----------
    summary, config, traffic, costs
        As :mod:`graphdiag.diagnosis` made them.
    """

    summary: Summary
    config: dict[str, Any]
    traffic: Histogram
    costs: CostModel

    @property
    def captured(self) -> list[int]:
        """Captured sizes, ascending."""
        return [int(size) for size in self.traffic.captured]

    @property
    def stride(self) -> int:
        """Tokens a request in a decode batch: one more than it speculates."""
        return 1 + (positive_int(self.config, "speculative_tokens") or 0)

    @property
    def largest_decode(self) -> int | None:
        """Rows of the largest decode batch the scheduler may admit, on the buckets' axis."""
        seqs = positive_int(self.config, "max_num_seqs")
        if seqs is None:
            return None
        return seqs * self.stride if self.traffic.axis == "tokens" else seqs

    @property
    def steps(self) -> pl.DataFrame:
        """Groups of the target's real steps."""
        return self.summary.groups.filter(is_real() & is_target())

    @property
    def judged(self) -> pl.DataFrame:
        """Groups that verdicts come from: the steady ones, all where no steady step counts."""
        steady = self.steps.filter(pl.col("period") == STEADY)
        served = pl.col("outcome").is_in(ELIGIBLE) | is_replayed()
        return self.steps if steady.filter(served).is_empty() else steady

    @property
    def on_axis(self) -> pl.DataFrame:
        """Groups of the target's real steps that the captured sizes are about."""
        axis = self.traffic.axis
        if axis is None:
            return self.steps
        return self.steps.filter(pl.col("axis").is_null() | (pl.col("axis") == axis))


def step_count(groups: pl.DataFrame) -> int:
    """Return the steps that ``groups`` stand for."""
    return int(groups["weight"].sum())


def listed(values: list[int], most: int = 8) -> str:
    """Return ``values`` in words, the first few and how many more."""
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"
