"""What an engine's own times tell of sizes that it was never asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from graphdiag.ledger import PhaseModel
from graphdiag.manycurves import Curves
from graphdiag.steptable import Bools, Floats, Ints

BEYOND = 2.0
"""How many times larger, or smaller, than what was timed a size may be for the curve to tell it."""


@dataclass(frozen=True)
class Prices:
    """A step of each size in ns: best achievable, padded rows and fallback: [resamples, sizes].

    ``known`` says of which sizes the times tell anything; ``read_off`` where the bucket that serves
    the size was never timed itself, so that its time is read off the curve: [sizes].
    """

    ideal: Floats
    padding: Floats
    fallback: Floats
    known: Bools
    read_off: Bools


def prices(model: PhaseModel, captured: Collection[int], sizes: Ints) -> Prices | None:
    """Return what steps of ``sizes`` would take; None where no step of the phase tells any time.

    Each is served by the smallest bucket that holds it, of those ``captured`` and those seen to
    replay. Beyond the largest it runs eager, and where ``captured`` are known but no eager step
    was timed, nothing tells how long that takes.
    """
    rows = sizes.astype(np.float64)
    ideal = model.ideal(rows)
    if ideal is None:
        return None
    padding, fallback = np.zeros_like(ideal), np.zeros_like(ideal)
    if model.replay is None:
        assert model.eager is not None  # or there was no best achievable
        known = _reach(model.eager, rows)
        return Prices(ideal, padding, fallback, known, np.zeros_like(known))
    buckets = np.union1d(model.buckets, np.array(sorted(captured), dtype=np.int64))
    slot = np.searchsorted(buckets, sizes)
    inside = slot < len(buckets)
    executed = np.where(inside, buckets[np.minimum(slot, len(buckets) - 1)], rows)
    at = model.replay.at(executed)
    timed = np.isin(executed, model.replay.sizes)
    if model.has_slope:
        known = _reach(model.replay, executed)
        padding = at - ideal
    else:  # one bucket's time is all there is to achieve
        known, ideal = timed, at
    beyond = ~inside
    if model.eager is not None:
        eager = model.eager.at(rows[beyond])
        fallback[:, beyond] = eager - ideal[:, beyond]
        known[beyond] = _reach(model.eager, rows[beyond])
    elif len(captured):
        known[beyond] = False
    return Prices(ideal, padding, fallback, known, known & inside & ~timed)


def _reach(curve: Curves, rows: Floats) -> Bools:
    """Return which of ``rows`` the curve tells: within what was timed, or not far beyond."""
    if len(curve.sizes) == 1 and not curve.slope.any():
        alone: Bools = rows == curve.sizes[0]
        return alone
    within: Bools = (rows * BEYOND >= curve.sizes[0]) & (rows <= curve.sizes[-1] * BEYOND)
    return within
