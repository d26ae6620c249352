"""The curves of many resamples at once: arrays whose first axis counts the resamples.

The first of them is the sample itself. What a resample lacks, because none of its steps ran at some
size, it has from its neighbours, or in the last resort from the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphdiag.curves import Curve, isotonic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_AT_ONCE = 40
"""Most sizes that are fitted in all resamples at once, at a cost of their square."""
_FLAT = 1e-6
"""Share of the squared context that must vary within buckets for its cost to be told."""


@dataclass(frozen=True)
class Curves:
    """Step time by size in each resample; see :class:`graphdiag.curves.Curve`.

    Attributes
    ----------
    sizes
        Ascending: [sizes].
    times
        ns, monotone: [resamples, sizes].
    slope
        ns an added row: [resamples].
    """

    sizes: Floats
    times: Floats
    slope: Floats

    def at(self, rows: Floats) -> Floats:
        """Return the step time (ns) of each of ``rows`` rows: [resamples, rows]."""
        below = np.clip(np.searchsorted(self.sizes, rows, "right") - 1, 0, len(self.sizes) - 1)
        above = np.minimum(below + 1, len(self.sizes) - 1)
        width = np.where(above > below, self.sizes[above] - self.sizes[below], 1.0)
        part = np.clip((rows - self.sizes[below]) / width, 0.0, 1.0)
        beyond = np.maximum(rows - self.sizes[-1], 0.0) - np.maximum(self.sizes[0] - rows, 0.0)
        inside = self.times[:, below] * (1 - part) + self.times[:, above] * part
        step: Floats = np.maximum(inside + self.slope[:, None] * beyond, 0.0)
        return step

    def of_sample(self) -> Curve:
        """Return the curve of the sample itself."""
        return Curve(self.sizes, self.times[0], float(self.slope[0]))


def fit_curves(sizes: Floats, time: Floats, steps: Floats, slope: float | None = None) -> Curves:
    """Fit a monotone curve in each resample.

    ``time`` and ``steps`` are sums by size, [resamples, sizes]; the sample has steps at all sizes.
    ``slope`` is what a row costs where there is one size alone, by default nothing.
    """
    seen = steps > 0
    mean = np.divide(time, steps, out=np.zeros_like(time), where=seen)
    enough = seen.sum(axis=1) > 1
    slopes = _slopes(sizes, mean, steps)
    slopes = np.where(enough, slopes, slopes[0] if len(sizes) > 1 else slope or 0.0)
    if len(sizes) == 1:
        return Curves(sizes, np.where(seen, mean, mean[0]), slopes)
    whole = seen.all(axis=1)
    times = np.empty_like(mean)
    if len(sizes) <= _MOST_AT_ONCE:
        times[whole] = _isotonic_of_all(mean[whole], steps[whole])
    else:
        for draw in np.flatnonzero(whole):
            times[draw] = isotonic(mean[draw], steps[draw])
    for draw in np.flatnonzero(~whole):
        there = seen[draw]
        if there.any():
            part = isotonic(mean[draw, there], steps[draw, there])
            times[draw] = Curve(sizes[there], part, float(slopes[draw])).at(sizes)
        else:
            times[draw] = times[0]
    return Curves(sizes, times, slopes)


def costs_of_context(sizes: Ints, time: Floats, steps: Floats, context: Floats) -> Floats:
    """Return ns a token of context, by least squares within buckets; 0 where it is not known.

    Sums by group are [resamples, groups], ``sizes`` the groups' buckets. Steps of one bucket
    execute the same rows, so that what differs among them is what they attend to. Groups that
    record no context, or buckets of one group, tell nothing.
    """
    if not (context[0] > 0).all():
        return np.zeros(len(time))
    seen = steps > 0
    cell = np.unique(sizes, return_inverse=True)[1]
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(cell.max() + 1))

    def centred(sums: Floats) -> Floats:
        total = np.add.reduceat(sums[:, order], starts, axis=1)
        mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        each: Floats = np.divide(sums, steps, out=np.zeros_like(sums), where=seen) - mean[:, cell]
        return each

    weight = np.add.reduceat(steps[:, order], starts, axis=1)
    x, y = centred(context), centred(time)
    spread = (steps * x * x).sum(axis=1)
    squares = np.divide(context**2, steps, out=np.zeros_like(context), where=seen).sum(axis=1)
    told = spread > _FLAT * squares
    costs = np.divide((steps * x * y).sum(axis=1), spread, out=np.zeros_like(spread), where=told)
    known: Floats = np.maximum(costs, 0.0)
    return known


def _slopes(sizes: Floats, mean: Floats, steps: Floats) -> Floats:
    """Return ns an added row, by least squares weighted with steps; never negative."""
    total = np.maximum(steps.sum(axis=1, keepdims=True), 1e-300)
    centred = sizes - (steps * sizes).sum(axis=1, keepdims=True) / total
    spread = (steps * centred**2).sum(axis=1)
    told = (steps * centred * mean).sum(axis=1)
    slopes = np.divide(told, spread, out=np.zeros_like(spread), where=spread > 0)
    rising: Floats = np.maximum(slopes, 0.0)
    return rising


def _isotonic_of_all(mean: Floats, weight: Floats) -> Floats:
    """Return the non-decreasing least-squares fit of each row, by the max-min formula.

    The fit at j is the greatest over i <= j of the least over k >= j of the mean of i to k (Barlow,
    Bartholomew, Bremner and Brunk, Statistical Inference under Order Restrictions, 1972, 1.4).
    """
    number = mean.shape[1]
    before = np.zeros((len(mean), 1))
    total = np.concatenate([before, np.cumsum(mean * weight, axis=1)], axis=1)
    steps = np.concatenate([before, np.cumsum(weight, axis=1)], axis=1)
    fitted = np.full_like(mean, -np.inf)
    for first in range(number):
        means = (total[:, first + 1 :] - total[:, first, None]) / (
            steps[:, first + 1 :] - steps[:, first, None]
        )
        least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        fitted[:, first:] = np.maximum(fitted[:, first:], least)
    return fitted
