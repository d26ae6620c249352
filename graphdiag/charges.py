"""The ledger of one trace as a finding: the mean step time, and what each case adds to the best."""

from __future__ import annotations

import numpy as np

from graphdiag.bootstrap import joint_half_widths
from graphdiag.findings import Charge, StepLedger
from graphdiag.ledger import NO_WORK, Ledger, Outside
from graphdiag.runconfig import last_config
from graphdiag.steptable import Floats
from graphdiag.summary import Summary
from graphdiag.work import Work

NAMES = ("achievable", "compile", "shapes", "fallback", "padding", "stalls", "residual")
_NS_PER_MS = 1e6


def amounts(book: Ledger) -> Floats:
    """Return the amounts of :data:`NAMES` in each resample, ns a step: [resamples, names]."""

    def mean(by_stratum: Floats) -> Floats:
        total: Floats = (book.steps * by_stratum).sum(axis=1) / book.totals
        return total

    return np.stack(
        [
            mean(book.ideal + book.attending()),
            book.compile / book.totals,
            book.shapes / book.totals,
            mean(book.fallback),
            mean(book.padding),
            book.stalls / book.totals,
            book.residual / book.totals,
        ],
        axis=1,
    )


def step_ledger(book: Ledger, found: Floats, slices: int) -> StepLedger:
    """Return where the mean step time goes.

    The charges are exclusive and add up, with the best achievable, to the mean. Where no padded
    step has a price, what padding cost is part of the best achievable. ``found`` are the
    :func:`amounts` of all resamples, the sample's own first, of ``slices`` slices of time.
    """
    half = joint_half_widths(found[1:], slices) if len(found) > 1 else None
    charges = {
        name: Charge(
            ms_per_step=float(value) / _NS_PER_MS,
            ci95=None if half is None else _interval(name, float(value), float(half[i])),
        )
        for i, (name, value) in enumerate(zip(NAMES, found[0], strict=True))
    }
    if book.unpriced_padded and not book.padding[0].any():
        charges["padding"] = Charge(ms_per_step=None, ci95=None)
    return StepLedger(
        steps=round(book.total_steps),
        mean_ms=book.mean / _NS_PER_MS,
        stalled_steps=round(book.stalled),
        **charges,
    )


def work_outside(summary: Summary, work: Work) -> Outside:
    """Return the ``work`` between steps; none where the source shows only some steps."""
    if last_config(summary.events).get("sampled"):
        return NO_WORK
    return Outside(work.between_start_up, work.between_later)


def _interval(name: str, value: float, half: float) -> tuple[float, float]:
    low = value - half
    if name == "achievable":
        low = max(low, 0.0)
    return low / _NS_PER_MS, (value + half) / _NS_PER_MS
