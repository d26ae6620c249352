"""The ledger of one trace as a finding: the mean step time, and what each case adds to the best."""

from __future__ import annotations

import numpy as np

from graphdiag.bootstrap import LEAST_STRETCHES, block_draws, joint_half_widths
from graphdiag.findings import Charge, StepLedger
from graphdiag.ledger import NO_WORK, Ledger, Outside, ledger
from graphdiag.runconfig import last_config
from graphdiag.steptable import Floats, step_table
from graphdiag.summary import Summary
from graphdiag.work import Work

_NAMES = ("achievable", "compile", "shapes", "fallback", "padding", "residual")
_NS_PER_MS = 1e6


def step_ledger(summary: Summary, work: Work) -> StepLedger | None:
    """Return where the mean step time goes; None where no step carries a time.

    The five charges are exclusive and add up, with the best achievable, to the mean.
    """
    table = step_table(summary)
    if not table.steps.sum():
        return None
    outside = work_outside(summary, work)
    book = ledger(table, work=outside)
    amounts = _amounts(book)
    half = None
    if table.slices >= LEAST_STRETCHES:
        drawn = [
            _amounts(ledger(one, work=outside.times(table.size_of(times))))
            for times in block_draws(table.slices)
            if (one := table.drawn(times)).steps.sum()
        ]
        half = joint_half_widths(np.array(drawn), table.slices)
    charges = {
        name: Charge(
            ms_per_step=float(value) / _NS_PER_MS,
            ci95=None if half is None else _interval(name, float(value), float(half[i])),
        )
        for i, (name, value) in enumerate(zip(_NAMES, amounts, strict=True))
    }
    return StepLedger(steps=round(book.total_steps), mean_ms=book.mean / _NS_PER_MS, **charges)


def work_outside(summary: Summary, work: Work) -> Outside:
    """Return ``work`` as the ledger takes it: none where the source shows only some steps."""
    if last_config(summary.events).get("sampled"):
        return NO_WORK
    return Outside(work.in_start_up or 0.0, work.in_steady or 0.0)


def _interval(name: str, value: float, half: float) -> tuple[float, float]:
    low = value - half
    if name == "achievable":
        low = max(low, 0.0)
    return low / _NS_PER_MS, (value + half) / _NS_PER_MS


def _amounts(book: Ledger) -> Floats:
    """Return the amounts of :data:`_NAMES`, ns a step."""

    def mean(by_stratum: Floats) -> float:
        return float((book.steps * by_stratum).sum() / book.total_steps)

    totals = np.array([book.compile, book.shapes, book.residual]) / book.total_steps
    return np.array(
        [
            mean(book.ideal + book.attending()),
            totals[0],
            totals[1],
            mean(book.fallback),
            mean(book.padding),
            totals[2],
        ]
    )
