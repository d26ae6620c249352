"""What the cases and the audit look at: summary, configuration, and sizes drawn from both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from graphdiag.buckets.histogram import Histogram
from graphdiag.compilation import Frame, Replays, frames_at_limit, replays_outside
from graphdiag.costs import CostModel
from graphdiag.findings import Case
from graphdiag.metrics import ELIGIBLE, is_real, is_replayed, is_target
from graphdiag.periods import STEADY
from graphdiag.runconfig import positive_int
from graphdiag.summary import Summary
from graphdiag.work import Work

_UNPRICED_PADDING = 0.5


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
    def work(self) -> Work:
        """Compile and capture work that fell among the steps."""
        return self.costs.work

    @cached_property
    def frames_at_limit(self) -> list[Frame]:
        """Frames at torch's recompile limit, those with most steps at it first."""
        return frames_at_limit(self.summary.periods.limits, self.summary.limited)

    @cached_property
    def replays(self) -> Replays:
        """Graph replays that no step accounts for."""
        return replays_outside(self.summary.events)

    @cached_property
    def mean_step_ns(self) -> float | None:
        """Mean time of the steps that scores are shares of, None where none is timed.

        Those are the steady steps that graphs should have served, and all steps where graphs should
        have served none.
        """
        told = self.costs.mean_step_ns
        served = pl.col("outcome").is_in(ELIGIBLE) | is_replayed()
        if told is not None or not self.steps.filter(served).is_empty():
            return told
        timed = int(self.steps["dur_ns_weight"].sum())
        return int(self.steps["dur_ns"].sum()) / timed if timed else None

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


def score(case: Case, mean_step_ns: float | None) -> float:
    """Return a case's weight: its share of the mean step's time where priced, else its share.

    Without a price a padded row weighs half a fallback step's share: reading the weights, which
    rules a decode step, costs no more for an added row.
    """
    if case.ms_per_step is not None and mean_step_ns:
        return case.ms_per_step * 1e6 / mean_step_ns
    return (case.share or 0.0) * (_UNPRICED_PADDING if case.case == "padding" else 1.0)
