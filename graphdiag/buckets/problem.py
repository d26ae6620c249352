"""A bucket problem: the traffic, what a step costs, what the engine accepts; and how a set serves.

An engine replays the smallest bucket that holds the batch, and runs eager where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Prices(Protocol):
    """What a step costs, in any one unit."""

    def replay(self, buckets: Floats) -> Floats:
        """Price of a step that replays each of ``buckets``; never falls as buckets grow."""
        ...

    def eager(self, sizes: Floats) -> Floats:
        """Price of an eager step of each of ``sizes``."""
        ...


@dataclass(frozen=True)
class Problem:
    """What a bucket set is chosen for.

    Attributes
    ----------
    sizes, weights
        Requested sizes, ascending, and their steps (or shares of them).
    candidates
        Legal buckets to choose from, ascending. Where prices never fall as buckets grow, the
        smallest legal size at or above each requested one is all that an optimum needs: a bucket
        can shrink to the largest size it serves and cost no more (with ``within``, as long as what
        it then serves as well is not cheaper eager).
    prices
        What a replay and an eager step cost.
    keep
        Buckets that every set holds, ascending; all among ``candidates``. That no size seen may
        run eager is said by keeping a bucket that holds the largest.
    within
        A bucket more than ``within`` times the requested size is not replayed (SGLang's prefill);
        None where padding has no limit.
    exact_only
        Whether padding is off, so that only an exact size replays.
    graphs
        Graphs captured for each of ``candidates``, never more for a larger one, so that counts are
        of graphs; None where counts are of buckets.
    """

    sizes: Ints
    weights: Floats
    candidates: Ints
    prices: Prices
    keep: tuple[int, ...] = ()
    within: float | None = None
    exact_only: bool = False
    graphs: Ints | None = None

    def of(self, weights: Floats) -> Problem:
        """Return the same problem for other traffic over the same sizes."""
        return replace(self, weights=weights)

    def priced(self, prices: Prices) -> Problem:
        """Return the same problem at other prices."""
        return replace(self, prices=prices)


@dataclass(frozen=True)
class Service:
    """How a bucket set serves a problem's traffic: sums over its steps.

    ``price`` is in the unit of the prices; ``requested`` and ``executed`` are rows of replayed
    steps; ``fallback`` and ``steps`` count steps.
    """

    price: float
    requested: float
    executed: float
    fallback: float
    steps: float

    @property
    def padding_ratio(self) -> float | None:
        """Padded / requested rows of replayed steps, None where none replays."""
        return (self.executed - self.requested) / self.requested if self.requested else None

    @property
    def fallback_rate(self) -> float:
        """Share of the steps that run eager."""
        return self.fallback / self.steps if self.steps else 0.0


def buckets_of(problem: Problem, buckets: Ints) -> Ints:
    """Return the bucket each requested size replays, 0 where it runs eager."""
    sizes = problem.sizes
    slot = np.searchsorted(buckets, sizes)
    padded = np.append(buckets, 0)
    found = padded[slot]
    if problem.exact_only:
        return np.where(found == sizes, found, 0)
    if problem.within is not None:
        return np.where(found <= problem.within * sizes, found, 0)
    return found


def prices_of(problem: Problem, buckets: Ints) -> Floats:
    """Return the price of one step of each requested size under ``buckets``."""
    found = buckets_of(problem, buckets)
    price = problem.prices.eager(problem.sizes.astype(np.float64))
    replayed = found > 0
    price[replayed] = problem.prices.replay(found[replayed].astype(np.float64))
    return price


def serve(problem: Problem, buckets: Ints) -> Service:
    """Return how ``buckets`` (ascending) serve the traffic of ``problem``."""
    found = buckets_of(problem, buckets)
    replayed = found > 0
    weights = problem.weights
    return Service(
        price=float((weights * prices_of(problem, buckets)).sum()),
        requested=float((weights * problem.sizes)[replayed].sum()),
        executed=float((weights * found).sum()),
        fallback=float(weights[~replayed].sum()),
        steps=float(weights.sum()),
    )
