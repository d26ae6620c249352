"""Block bootstrap over time: how often each stretch of time is drawn.

Steps close in time are alike, so that whole blocks of neighbouring stretches are drawn, as long as
the cube root of their number (Künsch, The jackknife and the bootstrap for general stationary
observations, Annals of Statistics 17, 1989; Lahiri, Resampling Methods for Dependent Data, 2003).
The timeline is joined at its ends, so that every stretch is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 200
LEAST_STRETCHES = 8
"""Fewest stretches of time that an interval is drawn from."""
_MOST_FIGURES = 200_000
"""Most figures of all resamples that are held at once, in each of a dozen arrays."""
_SEED = 20_240_607
_NORMAL_95 = 1.96


def block_length(stretches: int) -> int:
    """Return how many of ``stretches`` neighbouring stretches a block has."""
    return max(1, int(np.rint(np.cbrt(stretches))))


def block_draws(stretches: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return how often each of ``stretches`` is in each resample: [resamples, stretches].

    Every row adds up to ``stretches``; the draws of a ``seed`` are the same each time.
    """
    random = np.random.default_rng(_SEED + seed)
    block = block_length(stretches)
    starts = random.integers(0, stretches, size=(resamples, -(-stretches // block)))
    drawn = (starts[:, :, None] + np.arange(block)) % stretches
    drawn = drawn.reshape(resamples, -1)[:, :stretches]
    counts = np.zeros((resamples, stretches))
    np.add.at(counts, (np.arange(resamples)[:, None], drawn), 1.0)
    return counts


def resampled(draws: Floats, sums: Floats) -> Floats:
    """Return the sums over the stretches of each resample: [resamples, figures].

    ``draws`` are [resamples, stretches], ``sums`` [stretches, figures]. A product of matrices would
    wake BLAS's other threads, which then spin for longer than this takes.
    """
    total: Floats = np.einsum("rs,sf->rf", draws, sums)
    return total


def in_parts(draws: tuple[Floats, ...], width: int) -> Iterator[tuple[Floats, ...]]:
    """Cut the resamples of several samples into parts, so that arrays of them fit in memory.

    ``draws`` are [resamples, stretches], the sample itself first, and so it is in each part;
    ``width`` is how many figures a resample takes. :func:`joined` puts results together again.
    """
    most = max(_MOST_FIGURES // max(width, 1), 1)
    rest = len(draws[0]) - 1
    for first in range(0, max(rest, 1), most):
        yield tuple(
            np.concatenate([each[:1], each[1 + first : 1 + first + most]]) for each in draws
        )


def joined(parts: list[Floats]) -> Floats:
    """Return the results of all parts of :func:`in_parts`, the sample's own once."""
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])


def percentiles(values: Floats, stretches: int | None = None) -> tuple[float, float]:
    """Return the 95 % interval of ``values``, one for each resample.

    ``stretches`` widens it for their number, since few blocks vary less from each other than what
    they are drawn from: the expanded percentile interval of Hesterberg (What Teachers Should Know
    About the Bootstrap, The American Statistician 69, 2015), a block counted as one observation.
    """
    tail = 0.025
    if stretches is not None:
        from scipy.special import ndtr, stdtrit  # only traces with times pay for the import

        blocks = max(stretches / block_length(stretches), 2.0)
        tail = float(ndtr(np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, tail)))
    low, high = np.quantile(values, (tail, 1 - tail))
    return float(low), float(high)


def half_width(values: Floats, stretches: int, once: float = 0.0) -> float:
    """Return half of the 95 % interval of a figure resampled as ``values``.

    ``once`` is the standard deviation of what is the same in every resample.
    With n blocks the resampled variance is (n - 1) / n of the true one, and the tails are those of
    Student's t with n - 1 degrees of freedom (Davison and Hinkley, Bootstrap Methods, 1997, 2.3).
    """
    return float(np.hypot(np.std(values), once)) * _width(stretches)


def joint_half_widths(values: Floats, stretches: int, once: Floats | float = 0.0) -> Floats:
    """Return half-widths that hold all figures at once, 95 times in 100: [figures].

    ``values`` are [resamples, figures], ``once`` is as in :func:`half_width`: [figures]. Of many 95
    % intervals side by side one often leaves its figure out. These are one multiple of each
    figure's deviation, so that the largest of the resampled deviations stays within it 95 times in
    100 (sup-t bands: Montiel Olea and Plagborg-Moller, Simultaneous confidence bands, Journal of
    Applied Econometrics 34, 2019).
    """
    deviation: Floats = np.hypot(values.std(axis=0), once)
    moves = deviation > 0
    scaled = (values - values.mean(axis=0))[:, moves] / deviation[moves]
    largest = np.abs(scaled).max(axis=1, initial=0.0)
    together = max(float(np.quantile(largest, 0.95)) / _NORMAL_95, 1.0)
    widths: Floats = deviation * _width(stretches) * together
    return widths


def _width(stretches: int) -> float:
    """Return half of a 95 % interval in resampled standard deviations."""
    from scipy.special import stdtrit  # only traces with times pay for the import

    blocks = stretches / block_length(stretches)
    if blocks <= 1:
        return _NORMAL_95
    return float(stdtrit(blocks - 1, 0.975) * np.sqrt(blocks / (blocks - 1)))
