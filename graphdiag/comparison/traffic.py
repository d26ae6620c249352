"""Whether two runs were asked for the same."""

from __future__ import annotations

import numpy as np

from graphdiag.bootstrap import LEAST_STRETCHES, RESAMPLES, block_draws, half_width
from graphdiag.comparison.change import Measured
from graphdiag.steptable import NO_SIZE, Bools, Floats, StepTable

_LEAST = 0.01
"""Least change in the mean size of a step, as a share of it, at which traffic is another."""


def is_other_traffic(change: Measured | None, tables: list[StepTable]) -> bool:
    """Say whether the traffic of the two differs beyond noise: in ms a step, or in rows a step.

    The same ms may serve half of the requests, where one bucket serves all sizes. Rows are held
    by phase. Where the two are too short to tell noise they are not said to differ, nor where
    ``change`` is None because sizes are not the same thing in both. ``tables`` are the timed steps
    of base and candidate.
    """
    if change is None or min(table.slices for table in tables) < LEAST_STRETCHES:
        return False
    mix = change.terms["traffic_mix"]
    if change.is_comparable and mix.ci95 is not None and mix.is_real:
        return True
    phases = set(tables[0].phases) & set(tables[1].phases)
    return any(_differs(tables, phase) for phase in sorted(phases))


def _differs(tables: list[StepTable], phase: str) -> bool:
    base, candidate = (_rows(table, phase, seed) for seed, table in enumerate(tables))
    if base is None or candidate is None:
        return False
    change = candidate - base
    half = half_width(change[1:], min(table.slices for table in tables))
    return bool(abs(change[0]) > max(half, _LEAST * base[0]))


def _rows(table: StepTable, phase: str, seed: int) -> Floats | None:
    """Return the mean rows a step of the sample and of resamples; None where one has no step."""
    mine: Bools = (table.phase == table.phases.index(phase)) & (table.requested != NO_SIZE)
    steps = table.steps[:, mine]
    rows = steps @ table.requested[mine]
    draws = np.concatenate([np.ones((1, table.slices)), block_draws(table.slices, RESAMPLES, seed)])
    number = draws @ steps.sum(axis=1)
    if not number.all():
        return None
    mean: Floats = draws @ rows / number
    return mean
