"""The best bucket set of every count, exactly: :func:`optimal_sets`.

Buckets that every set must hold cut the sizes into stretches that do not touch each other: between
two of them each stretch ends in a bucket, above the last the largest bucket is free and what lies
above it runs eager. :mod:`graphdiag.buckets.layers` solves each; the counts are then shared out
among them by min-plus convolution, which is exact whatever the shape of their prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphdiag.buckets.layers import MOST_PAIRS, Stretch, is_monge, solve
from graphdiag.buckets.problem import Floats, Ints, Problem


@dataclass(frozen=True)
class OptimalSets:
    """The best sets of at most 1 … ``most`` buckets, or graphs where the problem tells them.

    Attributes
    ----------
    most
        Largest count that is solved for; more than all candidates together gain nothing.
    thinned
        Whether a set is the best of evenly chosen candidates only, because the cost is not Monge
        and there were too many candidates to look at every pair.
    """

    most: int
    thinned: bool
    _closed: _Closed
    _open: _Open

    def best(self, count: int, largest: float = np.inf) -> Ints | None:
        """Return the best set of at most ``count``, no bucket above ``largest``, ascending.

        None where there is none: where more than ``count`` must be kept, or one above ``largest``.
        """
        count = min(count, self.most)
        if self._closed.end > largest:
            return None
        column = self._open.column_within(largest)
        prices = self._closed.price[count::-1] + self._open.prices(column, count)
        above = int(np.argmin(prices))
        if not np.isfinite(prices[above]):
            return None
        below = self._closed.buckets(count - above)
        return np.array([*below, *self._open.buckets(above, column)], np.int64)


def optimal_sets(problem: Problem, most: int) -> OptimalSets:
    """Solve ``problem`` for every count up to ``most``.

    Raises
    ------
    ValueError
        When ``problem`` allows no padding: see :func:`exact_set`.
    """
    if problem.exact_only:
        raise ValueError("padding is off: every bucket stands for itself")
    sums = _Sums(problem)
    edges = [0, *(int(at) + 1 for at in np.searchsorted(problem.candidates, problem.keep))]
    whole = [sums.stretch(*ends, closed=True) for ends in pairwise(edges)]
    whole.append(sums.stretch(edges[-1], len(problem.candidates), closed=False))
    stretches = [_thinned(stretch) for stretch in whole]
    most = max(0, min(most, sum(int(stretch.graphs.sum()) for stretch in stretches)))
    return OptimalSets(
        most=most,
        thinned=any(few is not all_ for few, all_ in zip(stretches, whole, strict=True)),
        _closed=_Closed([_Solved(stretch, most) for stretch in stretches[:-1]], most),
        _open=_Open(_Solved(stretches[-1], most), sums.eager_from(edges[-1])),
    )


def exact_set(problem: Problem, count: int, largest: float = np.inf) -> Ints | None:
    """Return the best ``count`` buckets where only exact sizes replay: those that save most.

    None where more than ``count``, or one above ``largest``, must be kept.
    """
    kept = np.array(problem.keep, np.int64)
    if len(kept) > count or (len(kept) and kept[-1] > largest):
        return None
    sizes = problem.sizes.astype(np.float64)
    saved = problem.weights * (problem.eager - problem.prices.replay(sizes))
    free = np.isin(problem.sizes, problem.candidates) & ~np.isin(problem.sizes, kept)
    free &= (problem.sizes <= largest) & (saved > 0)
    order = np.argsort(-saved[free], kind="stable")[: count - len(kept)]
    return np.union1d(kept, problem.sizes[free][order])


class _Sums:
    """Running sums of a problem over its sizes, from which the stretches are cut."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._steps, self._eager = problem.steps_below, problem.eager_below
        place = np.searchsorted(problem.sizes, problem.candidates, side="right")
        self._place = np.concatenate([[0], place])
        self._replay = problem.replay
        ones = np.ones(len(problem.candidates), np.int64)
        self._graphs = ones if problem.graphs is None else problem.graphs

    def eager_from(self, candidate: int) -> float:
        """Price of all sizes above the first ``candidate`` candidates, run eager."""
        return float(self._eager[-1] - self._eager[self._place[candidate]])

    def stretch(self, first: int, last: int, *, closed: bool) -> Stretch:
        """Return the stretch of candidates ``first`` to ``last - 1``.

        Where the cost is Monge, those without traffic of their own gain nothing and are left out,
        but for the end of a closed stretch, which must be there, and those that are the first of
        fewer graphs.
        """
        place = self._place[first : last + 1]
        falls = (np.diff(self._replay[first:last]) < 0).any()
        not_monge = falls or self._problem.within is not None
        wanted = (np.diff(self._steps[place]) > 0) | not_monge
        wanted[1:] |= np.diff(self._graphs[first:last]) < 0
        if closed:
            wanted[-1] = True
        chosen = np.flatnonzero(wanted)
        begin, ends = place[0], place[chosen + 1]
        columns = np.concatenate([[begin], ends])
        candidates = self._problem.candidates[first:last][chosen]
        small = small_eager = None
        if self._problem.within is not None:
            too_small = np.searchsorted(self._problem.sizes * self._problem.within, candidates)
            too_small = np.clip(too_small, begin, ends)
            small = self._steps[too_small] - self._steps[begin]
            small_eager = self._eager[too_small] - self._eager[begin]
        return Stretch(
            candidates=candidates,
            replay=self._replay[first:last][chosen],
            steps=self._steps[columns] - self._steps[begin],
            eager=self._eager[columns] - self._eager[begin],
            graphs=self._graphs[first:last][chosen],
            unserved=small,
            unserved_eager=small_eager,
        )


class _Solved:
    """A stretch with its tables, for as many graphs as all its candidates are."""

    def __init__(self, stretch: Stretch, most: int) -> None:
        self.stretch = stretch
        self.most = min(most, int(stretch.graphs.sum()))
        self.layers = solve(stretch, self.most)

    def buckets(self, count: int, column: int) -> list[int]:
        columns = self.layers.columns(min(count, self.most), column)
        return [int(self.stretch.candidates[column - 1]) for column in columns]


class _Closed:
    """All stretches that end in a kept bucket: their least price together, by count."""

    def __init__(self, solved: list[_Solved], most: int) -> None:
        self._solved = solved
        self._shares: list[Ints] = []
        self.end = float(solved[-1].stretch.candidates[-1]) if solved else -np.inf
        self.price = np.zeros(most + 1)
        for one in solved:
            ends = one.layers.price[:, -1]
            table = np.full((most + 1, one.most + 1), np.inf)
            for share in range(one.most + 1):
                table[share:, share] = self.price[: most + 1 - share] + ends[share]
            self._shares.append(np.argmin(table, axis=1))
            self.price = table.min(axis=1)

    def buckets(self, count: int) -> list[int]:
        found: list[int] = []
        for one, shares in zip(reversed(self._solved), reversed(self._shares), strict=True):
            share = int(shares[count])
            found[:0] = one.buckets(share, len(one.stretch.candidates))
            count -= share
        return found


class _Open:
    """The stretch above the last kept bucket, with what lies above its largest bucket eager."""

    def __init__(self, solved: _Solved, all_eager: float) -> None:
        self._solved = solved
        self._above = all_eager - solved.stretch.eager
        self._best: dict[int, tuple[Floats, list[int]]] = {}

    def column_within(self, largest: float) -> int:
        return int(np.searchsorted(self._solved.stretch.candidates, largest, side="right"))

    def prices(self, column: int, most: int) -> Floats:
        """Least price by count, 0 … ``most``, with no bucket beyond ``column``."""
        least, _ = self._within(column)
        more = max(0, most - self._solved.most)
        return np.pad(least, (0, more), mode="edge")[: most + 1]

    def buckets(self, count: int, column: int) -> list[int]:
        count = min(count, self._solved.most)
        return self._solved.buckets(count, self._within(column)[1][count])

    def _within(self, column: int) -> tuple[Floats, list[int]]:
        """Least price by count, and the column of the largest bucket behind it."""
        if column not in self._best:
            above = self._above[: column + 1]
            price = self._solved.layers.price
            largest = [int(np.argmin(row[: column + 1] + above)) for row in price]
            least = np.array([row[at] + above[at] for row, at in zip(price, largest, strict=True)])
            self._best[column] = least, largest
        return self._best[column]


def _thinned(stretch: Stretch) -> Stretch:
    """Leave out candidates, evenly over the steps, where every pair would have to be looked at."""
    count = len(stretch.candidates)
    if is_monge(stretch) or count <= MOST_PAIRS:
        return stretch
    marks = np.linspace(0, stretch.steps[-1], MOST_PAIRS)[1:]
    near = np.minimum(np.searchsorted(stretch.steps[1:], marks), count - 1)
    chosen = np.unique(np.append(near, count - 1))
    columns = np.concatenate([[0], chosen + 1])
    small, small_eager = stretch.unserved, stretch.unserved_eager
    return Stretch(
        candidates=stretch.candidates[chosen],
        replay=stretch.replay[chosen],
        steps=stretch.steps[columns],
        eager=stretch.eager[columns],
        graphs=stretch.graphs[chosen],
        unserved=None if small is None else small[chosen],
        unserved_eager=None if small_eager is None else small_eager[chosen],
    )
