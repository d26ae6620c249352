"""Replay time by bucket: monotone in the bucket, shared by phases that differ by an offset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 50
_SETTLED = 1e-9


@dataclass(frozen=True)
class Curve:
    """Replay time by bucket in one phase.

    Attributes
    ----------
    sizes
        Buckets that were replayed and timed, ascending; at least two.
    times
        Their mean step times in ns, monotone.
    slope
        ns an added row, by least squares weighted with steps; never negative.
    """

    sizes: Floats
    times: Floats
    slope: float

    def at(self, rows: Floats) -> Floats:
        """Return the step time (ns) of exact replay at each of ``rows`` rows."""
        inside = np.interp(rows, self.sizes, self.times)
        above = np.maximum(rows - self.sizes[-1], 0.0) * self.slope
        below = np.maximum(self.sizes[0] - rows, 0.0) * self.slope
        step: Floats = np.maximum(inside + above - below, 0.0)
        return step


@dataclass(frozen=True)
class Measured:
    """Step times by phase and size: an entry for each pair that was timed.

    ``times`` are means in ns over ``steps`` steps.
    """

    phases: list[str]
    sizes: Floats
    times: Floats
    steps: Floats


def fit_curve(sizes: Floats, times: Floats, weights: Floats) -> Curve | None:
    """Fit a monotone replay curve; None with fewer than two sizes.

    Isotonic least squares after Barlow et al. (1972), as scipy.optimize.isotonic_regression has it.
    """
    if len(sizes) < 2:
        return None
    order = np.argsort(sizes)
    sizes, times, weights = sizes[order], times[order], weights[order]
    monotone = isotonic(times, weights)
    centred = sizes - np.average(sizes, weights=weights)
    slope = float((weights * centred * times).sum() / (weights * centred**2).sum())
    return Curve(sizes, monotone, max(slope, 0.0))


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the non-decreasing least-squares fit of ``values``, by pool adjacent violators."""
    from scipy.optimize import isotonic_regression  # only traces with times pay for the import

    return np.asarray(isotonic_regression(values, weights=weights).x, dtype=np.float64)


def fit_shared_curve(replays: Measured) -> tuple[Curve, dict[str, float]] | None:
    """Fit one curve in the size and an offset for each phase, by turns (backfitting).

    Least squares under order, alternating over two convex sets of functions, so that it converges
    (Bacchetti, Additive isotonic models, JASA 84, 1989). Offsets average to 0 over the steps.
    """
    times, steps = replays.times, replays.steps
    size, place = np.unique(replays.sizes, return_inverse=True)
    if len(size) < 2:
        return None
    names = sorted(set(replays.phases))
    code = np.array([names.index(phase) for phase in replays.phases])
    total: Floats = np.bincount(place, steps).astype(np.float64)
    share = np.bincount(code, steps)
    offset = np.zeros(len(names))
    for _ in range(_ROUNDS if len(names) > 1 else 0):
        curve = isotonic(np.bincount(place, steps * (times - offset[code])) / total, total)
        new = np.bincount(code, steps * (times - curve[place])) / share
        new -= np.average(new, weights=share)
        moved = np.abs(new - offset).max()
        offset = new
        if moved <= _SETTLED * times.max():
            break
    flat = np.bincount(place, steps * (times - offset[code])) / total
    fitted = fit_curve(size, flat, total)
    assert fitted is not None  # two sizes at least
    return fitted, dict(zip(names, map(float, offset), strict=True))
