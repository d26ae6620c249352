"""What a person asks of a bucket set, and the best sets that grant it.

A budget is exact: where every size is as many graphs, the best set of each count is within it or
not; where larger sizes are fewer graphs (vLLM captures full decode graphs only up to its fullest
batch), sets are solved for by their graphs in place of their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphdiag.buckets.memory import Memory
from graphdiag.buckets.optimum import exact_set, optimal_sets
from graphdiag.buckets.problem import Ints, Problem, serve

Chooser = Callable[[int, float], Ints | None]
"""The best set of at most so many buckets, none above a largest."""


@dataclass(frozen=True)
class Wishes:
    """What a person asks for.

    Attributes
    ----------
    max_graphs, budget_mib
        Most graphs the engine may capture, most MiB they may hold; None: no limit.
    keep, forbid
        Sizes that every set must, and must not, hold.
    what_if
        A list to price; None for none.
    """

    max_graphs: int | None = None
    budget_mib: float | None = None
    keep: tuple[int, ...] = ()
    forbid: tuple[int, ...] = ()
    what_if: tuple[int, ...] | None = None

    @property
    def has_budget(self) -> bool:
        """Whether graphs or memory are limited."""
        return self.max_graphs is not None or self.budget_mib is not None

    def granted_by(self, buckets: Sequence[int], memory: Memory) -> bool:
        """Say whether a set of ``buckets`` is within the budgets, and holds what it must."""
        if not set(self.keep) <= set(buckets) or set(self.forbid) & set(buckets):
            return False
        if self.max_graphs is not None and memory.graphs(buckets) > self.max_graphs:
            return False
        return self.budget_mib is None or (memory.mib(buckets) or 0.0) <= self.budget_mib


@dataclass(frozen=True)
class BestSets:
    """The best sets of at most 1 … ``most`` buckets that grant ``wishes``."""

    problem: Problem
    wishes: Wishes
    memory: Memory
    most: int

    def best(self, count: int) -> Ints | None:
        """Return the best set of at most ``count`` buckets; None where none grants the wishes.

        Within a budget, and sizes of unlike many graphs, a set of fewer than :attr:`most` buckets
        is the best of those that are best for their buckets or for their graphs.
        """
        found: Ints | None = None
        for buckets in self._candidates(min(count, self.most)):
            if found is None or self._price(buckets) < self._price(found):
                found = buckets
        return found

    def _candidates(self, count: int) -> Iterator[Ints]:
        """Yield sets of at most ``count`` buckets that grant the wishes, the best among them."""
        for fewer in range(count, 0, -1):
            buckets = self._of(fewer)
            if buckets is not None:
                yield buckets
                if self.wishes.budget_mib is None:
                    break  # fewer buckets are never better
        if self._by_graphs is None:
            return
        for graphs in range(self._most_graphs, 0, -1):
            mib = self.wishes.budget_mib
            largest = np.inf if mib is None else self.memory.largest_within(mib, graphs)
            buckets = self._granted(self._by_graphs(graphs, largest))
            if buckets is not None and len(buckets) <= count:
                yield buckets
                if mib is None:
                    break

    def none_pays(self) -> bool:
        """Say whether no set is better than running everything eager, whatever the budgets."""
        buckets = self._choose(self.most, float("inf"))
        return buckets is not None and not len(buckets)

    def frontier(self) -> list[Ints]:
        """Return the best set of each count, as long as one more bucket is better."""
        found: list[Ints] = []
        least = float("inf")
        for count in range(1, self.most + 1):
            buckets = self._of(count)
            if buckets is not None and (price := self._price(buckets)) < least:
                found.append(buckets)
                least = price
        return found

    def largest(self, count: int) -> float:
        """Return the largest bucket that ``count`` buckets leave memory for."""
        if self.wishes.budget_mib is None:
            return float("inf")
        graphs = self.memory.most_graphs(count)
        return self.memory.largest_within(self.wishes.budget_mib, graphs)

    def knee(self, frontier: Sequence[Ints]) -> int | None:
        """Return the index of the knee of ``frontier``; None where it is empty."""
        return _knee([(len(buckets), self._price(buckets)) for buckets in frontier])

    @cached_property
    def _choose(self) -> Chooser:
        return _chooser(self.problem, self.most)

    @cached_property
    def _by_graphs(self) -> Chooser | None:
        """Chooser by graphs, where a budget asks for one."""
        if not self.wishes.has_budget or self.memory.is_even or self.problem.exact_only:
            return None
        return _chooser(replace(self.problem, graphs=self._graphs), self._most_graphs)

    @cached_property
    def _graphs(self) -> Ints:
        sizes = self.problem.candidates.tolist()
        return np.array([self.memory.graphs([size]) for size in sizes], np.int64)

    @cached_property
    def _most_graphs(self) -> int:
        """Most graphs worth solving for: what the budgets allow, and as many as sizes can be."""
        most = int(np.sort(self._graphs)[-self.most :].sum())
        if self.wishes.max_graphs is not None:
            most = min(most, self.wishes.max_graphs)
        if self.wishes.budget_mib is not None and self.memory.graph_mib:
            most = min(most, int(self.wishes.budget_mib / self.memory.graph_mib))
        return most

    def _of(self, count: int) -> Ints | None:
        return self._granted(self._choose(count, self.largest(count)))

    def _granted(self, buckets: Ints | None) -> Ints | None:
        if buckets is None or not len(buckets):
            return None
        return buckets if self.wishes.granted_by(buckets.tolist(), self.memory) else None

    def _price(self, buckets: Ints) -> float:
        return serve(self.problem, buckets).price


def _chooser(problem: Problem, most: int) -> Chooser:
    if problem.exact_only:
        return lambda count, largest: exact_set(problem, count, largest)
    return optimal_sets(problem, most).best


def _knee(points: Sequence[tuple[int, float]]) -> int | None:
    """Return the index of the knee: farthest below the chord from the first point to the last.

    Satopää et al., Finding a "Kneedle" in a Haystack, ICDCS Workshops 2011, without smoothing: the
    frontier is exact. None where there is no point.
    """
    if len(points) < 3:
        return len(points) - 1 if points else None
    counts, prices = np.array(points, dtype=np.float64).T
    along = (counts - counts[0]) / (counts[-1] - counts[0])
    down = (prices[0] - prices) / (prices[0] - prices[-1])
    return int(np.argmax(down - along))
