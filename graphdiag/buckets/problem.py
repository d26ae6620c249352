"""A bucket problem: the traffic, what a step costs, what the engine accepts; and how a set serves.

An engine replays the smallest bucket that holds the batch, and runs eager where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
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

    @cached_property
    def eager(self) -> Floats:
        """Price of an eager step of each of ``sizes``."""
        return self.prices.eager(self.sizes.astype(np.float64))

    @cached_property
    def replay(self) -> Floats:
        """Price of a step that replays each of ``candidates``."""
        return self.prices.replay(self.candidates.astype(np.float64))

    @cached_property
    def steps_below(self) -> Floats:
        """Steps of the first 0, 1, ... of ``sizes``."""
        return running(self.weights)

    @cached_property
    def eager_below(self) -> Floats:
        """Price of running them eager."""
        return running(self.weights * self.eager)

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


def running(values: Floats) -> Floats:
    """Return the sums of the first 0, 1, ... of ``values``."""
    return np.concatenate([[0.0], np.cumsum(values)])


def buckets_of(problem: Problem, buckets: Ints) -> Ints:
    """Return the bucket each requested size replays, 0 where it runs eager."""
    return np.append(buckets, 0)[_slots(problem, buckets)]


def _slots(problem: Problem, buckets: Ints) -> Ints:
    """Return which of ``buckets`` each requested size replays; their number where it runs eager."""
    sizes = problem.sizes
    slot = np.searchsorted(buckets, sizes)
    found = np.append(buckets, 0)[slot]
    if problem.exact_only:
        return np.where(found == sizes, slot, len(buckets))
    if problem.within is not None:
        return np.where(found <= problem.within * sizes, slot, len(buckets))
    return slot


def prices_of(problem: Problem, buckets: Ints) -> Floats:
    """Return the price of one step of each requested size under ``buckets``."""
    return _prices(problem, buckets, _slots(problem, buckets))


def _prices(problem: Problem, buckets: Ints, slot: Ints) -> Floats:
    replay = np.append(problem.prices.replay(buckets.astype(np.float64)), 0.0)
    return np.where(slot < len(buckets), replay[slot], problem.eager)


def serve(problem: Problem, buckets: Ints) -> Service:
    """Return how ``buckets`` (ascending) serve the traffic of ``problem``."""
    slot = _slots(problem, buckets)
    replayed = slot < len(buckets)
    found, weights = np.append(buckets, 0)[slot], problem.weights
    return Service(
        price=float((weights * _prices(problem, buckets, slot)).sum()),
        requested=float((weights * problem.sizes)[replayed].sum()),
        executed=float((weights * found).sum()),
        fallback=float(weights[~replayed].sum()),
        steps=float(weights.sum()),
    )
