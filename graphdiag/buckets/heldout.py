"""Pricing a bucket set on traffic it was not fitted to.

A set fitted to the traffic it is priced on looks better than it is. Two questions are asked of a
trace: is the gain more than chance (fitted on every other stretch of time, priced on those between,
which are resampled for the interval), and does it last (fitted on the first half, priced on the
second). A histogram without times is cut in two at random, which answers the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphdiag.bootstrap import block_draws, percentiles, resampled
from graphdiag.buckets.histogram import Histogram
from graphdiag.buckets.problem import Floats, Ints, Problem, prices_of

FIT_SHARE = 0.5
"""Share of the steps a set is fitted on."""
LEAST_SLICES = 4
"""Fewest slices of time, in the part priced on, that an interval is drawn from."""
_STRETCH = 2
"""Slices of time in a stretch of alternating ones: neighbouring slices are alike."""
_SEED = 20_240_607
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Split:
    """Traffic in two parts: steps by size to fit on, and to price on.

    ``rest_over_time`` is the part to price on by slice of time; None for random halves. ``how`` is
    ``alternating`` stretches, ``time`` (first, second half) or random ``halves``.
    """

    fit: Floats
    rest: Floats
    rest_over_time: Floats | None
    how: Literal["alternating", "time", "halves"]

    @property
    def fit_share(self) -> float:
        """Share of the steps in the part to fit on."""
        return float(self.fit.sum() / (self.fit.sum() + self.rest.sum()))


@dataclass(frozen=True)
class Gain:
    """Price saved a step, over the steps priced on, with its 95 % interval where there is one."""

    per_step: float
    ci95: tuple[float, float] | None

    @property
    def is_real(self) -> bool:
        """Whether the gain is more than noise; without an interval, whether there is one."""
        return (self.ci95[0] if self.ci95 else self.per_step) > 0


def split(traffic: Histogram) -> Split | None:
    """Cut ``traffic`` to tell a gain from chance; None where it is shares, or of few moments."""
    if traffic.over_time is not None:
        stretch = np.arange(len(traffic.over_time)) // _STRETCH
        return _cut(traffic.over_time, stretch % 2 == 0, "alternating")
    counts = traffic.counts
    if traffic.is_share:
        return None
    random = np.random.default_rng(_SEED)
    fit = random.binomial(np.round(counts).astype(np.int64), FIT_SHARE).astype(np.float64)
    rest = np.maximum(counts - fit, 0.0)
    return Split(fit, rest, None, "halves") if fit.sum() and rest.sum() else None


def split_in_time(traffic: Histogram) -> Split | None:
    """Cut ``traffic`` after its first half, to tell whether a gain lasts; None without times."""
    if traffic.over_time is None:
        return None
    done = np.cumsum(traffic.over_time.sum(axis=1))
    cut = int(np.searchsorted(done, FIT_SHARE * done[-1])) + 1
    return _cut(traffic.over_time, np.arange(len(done)) < cut, "time")


def _cut(
    over_time: Floats, fitted: NDArray[np.bool_], how: Literal["alternating", "time"]
) -> Split | None:
    fit, rest = over_time[fitted], over_time[~fitted]
    if not fit.sum() or not rest.sum():
        return None
    return Split(fit.sum(axis=0), rest.sum(axis=0), rest, how)


def gain(problems: list[Problem], old: Ints, new: Ints, parts: Split) -> Gain:
    """Return what ``new`` saves over ``old`` a step, on the part that was not fitted to.

    ``problems`` are one problem with its prices as measured, then with prices measured on each
    resample, if they were; the interval is over both prices and traffic.
    """
    saved = [prices_of(problem, old) - prices_of(problem, new) for problem in problems]
    mean = float((parts.rest * saved[0]).sum() / parts.rest.sum())
    over_time = parts.rest_over_time
    if over_time is None:
        share = parts.rest / parts.rest.sum()
        spread = float(np.sqrt((share * (saved[0] - mean) ** 2).sum() / parts.rest.sum()))
        return Gain(mean, (mean - _NORMAL_95 * spread, mean + _NORMAL_95 * spread))
    if len(over_time) < LEAST_SLICES:
        return Gain(mean, None)
    drawn = resampled(block_draws(len(over_time)), over_time)
    told = np.array(saved[1:] or saved)
    price = told[np.arange(len(drawn)) % len(told)]
    steps = drawn.sum(axis=1)
    gains = (drawn * price).sum(axis=1)[steps > 0] / steps[steps > 0]
    return Gain(mean, percentiles(gains, len(over_time)))
