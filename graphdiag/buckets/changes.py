"""The best single change of a bucket set: add, move or drop one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphdiag.buckets.problem import Floats, Ints, Problem, buckets_of, prices_of, running

Action = Literal["add", "move", "drop"]


@dataclass(frozen=True)
class Change:
    """One bucket added, moved or dropped.

    ``sizes`` are the size added, the two sizes moved from and to, or the size dropped; ``buckets``
    is the set after it, ``gain`` what it saves in price over the traffic (negative: costs).
    """

    action: Action
    sizes: tuple[int, ...]
    buckets: Ints
    gain: float


@dataclass(frozen=True)
class Moved:
    """A run of requested sizes, ``first`` to ``last``, whose bucket a change moves.

    ``before`` and ``after`` are their bucket, 0 where eager; ``gain`` is the price saved over their
    ``steps``.
    """

    first: int
    last: int
    before: int
    after: int
    steps: float
    gain: float


def additions(problem: Problem, buckets: Ints) -> Floats:
    """Return what each candidate saves when it is added to ``buckets``, in price.

    Between its neighbours lo < c < hi a bucket c takes over the sizes in (lo, c], whatever they
    cost before; those for which it is too large run eager.
    """
    sizes, weights, candidates = problem.sizes, problem.weights, problem.candidates
    before = running(weights * prices_of(problem, buckets))
    steps, eager = problem.steps_below, problem.eager_below
    slot = np.searchsorted(buckets, candidates)
    below = np.where(slot > 0, np.append(buckets, 0)[np.maximum(slot - 1, 0)], 0)
    last = np.searchsorted(sizes, candidates, side="right")
    first = np.searchsorted(sizes, below, side="right")
    served = first
    if problem.exact_only:
        served = np.searchsorted(sizes, candidates)
        first = served
    elif problem.within is not None:
        served = np.clip(np.searchsorted(sizes * problem.within, candidates), first, last)
    after = problem.replay * (steps[last] - steps[served]) + eager[served] - eager[first]
    gains = before[last] - before[first] - after
    return np.where(np.isin(candidates, buckets), 0.0, gains)


def best_addition(
    problem: Problem, buckets: Ints, *, least: int = 0, largest: float = np.inf
) -> Change | None:
    """Return the addition from ``least`` to ``largest`` that saves most; None where none does."""
    allowed = (problem.candidates >= least) & (problem.candidates <= largest)
    gains = np.where(allowed, additions(problem, buckets), -np.inf)
    if not len(gains) or gains.max() <= 0:
        return None
    size = int(problem.candidates[np.argmax(gains)])
    return Change("add", (size,), np.union1d(buckets, [size]), float(gains.max()))


def best_move(problem: Problem, buckets: Ints, *, largest: float = np.inf) -> Change | None:
    """Return the move of one bucket to another size that saves most; None where none saves any."""
    best: Change | None = None
    top = _must_reach(problem, buckets)
    for size in (int(size) for size in buckets if size not in problem.keep):
        dropped = drop(problem, buckets, size)
        rest = dropped.buckets.max(initial=0)
        if rest > largest:
            continue
        added = best_addition(
            problem, dropped.buckets, least=0 if rest >= top else top, largest=largest
        )
        if added is None or added.sizes == (size,):
            continue
        gain = dropped.gain + added.gain
        if gain > (best.gain if best else 0.0):
            best = Change("move", (size, *added.sizes), added.buckets, gain)
    return best


def best_drop(problem: Problem, buckets: Ints) -> Change | None:
    """Return the drop that costs least; None where every bucket must stay."""
    drops = [drop(problem, buckets, int(size)) for size in buckets if size not in problem.keep]
    least = max(1, _must_reach(problem, buckets))
    reaching = [change for change in drops if change.buckets.max(initial=0) >= least]
    return max(reaching, key=lambda change: change.gain, default=None)


def drop(problem: Problem, buckets: Ints, size: int) -> Change:
    """Return the change that drops ``size``."""
    rest = buckets[buckets != size]
    served = buckets_of(problem, buckets) == size
    weights = problem.weights[served]
    old, new = prices_of(problem, buckets)[served], prices_of(problem, rest)[served]
    return Change("drop", (size,), rest, float((weights * (old - new)).sum()))


def moved(problem: Problem, old: Ints, new: Ints) -> list[Moved]:
    """Return the requested sizes that change their bucket, in runs, those that gain most first."""
    before, after = buckets_of(problem, old), buckets_of(problem, new)
    gain = problem.weights * (prices_of(problem, old) - prices_of(problem, new))
    changed = (before != after) & (problem.weights > 0)
    index = np.flatnonzero(changed)
    if not len(index):
        return []
    same = (np.diff(before[index]) == 0) & (np.diff(after[index]) == 0) & (np.diff(index) == 1)
    runs = np.split(index, np.flatnonzero(~same) + 1)
    found = [
        Moved(
            first=int(problem.sizes[run[0]]),
            last=int(problem.sizes[run[-1]]),
            before=int(before[run[0]]),
            after=int(after[run[0]]),
            steps=float(problem.weights[run].sum()),
            gain=float(gain[run].sum()),
        )
        for run in runs
    ]
    return sorted(found, key=lambda one: -one.gain)


def _must_reach(problem: Problem, buckets: Ints) -> int:
    """Return what a change of ``buckets`` must still reach: the largest size kept, if they do."""
    return min(max(problem.keep, default=0), int(buckets.max(initial=0)))
