"""The optimizer against brute force over every set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiag.buckets import optimum
from graphdiag.buckets.layers import Stretch, is_monge
from graphdiag.buckets.optimum import exact_set, optimal_sets
from graphdiag.buckets.problem import Problem, buckets_of, serve

TOP = 12


@dataclass(frozen=True)
class Table:
    """Prices written out by size, 1 to TOP."""

    replayed: tuple[float, ...]
    eagerly: tuple[float, ...]

    def replay(self, buckets):
        return np.array(self.replayed)[buckets.astype(int) - 1]

    def eager(self, sizes):
        return np.array(self.eagerly)[sizes.astype(int) - 1]


NO_LIMIT = st.none()
amounts = st.integers(0, 60).map(float)


@st.composite
def problems(draw, monotone=True, within=NO_LIMIT, exact_only=False):
    sizes = sorted(draw(st.sets(st.integers(1, TOP), min_size=1, max_size=8)))
    weights = [float(draw(st.integers(0, 9))) for _ in sizes]
    replayed = [draw(amounts) for _ in range(TOP)]
    if monotone:
        replayed.sort()
    eagerly = [draw(amounts) for _ in range(TOP)]
    keep = draw(st.sets(st.integers(1, TOP), max_size=2))
    return Problem(
        sizes=np.array(sizes),
        weights=np.array(weights),
        candidates=np.array(sorted({*sizes, *keep})),
        prices=Table(tuple(replayed), tuple(eagerly)),
        keep=tuple(sorted(keep)),
        within=draw(within),
        exact_only=exact_only,
    )


def by_hand(problem, buckets):
    """The price of ``buckets``, one size at a time."""
    total = 0.0
    for size, weight in zip(problem.sizes, problem.weights, strict=True):
        above = [bucket for bucket in buckets if bucket >= size]
        bucket = min(above, default=None)
        if bucket is not None and problem.exact_only and bucket != size:
            bucket = None
        if bucket is not None and problem.within and bucket > problem.within * size:
            bucket = None
        price = (
            problem.prices.eagerly[size - 1]
            if bucket is None
            else problem.prices.replayed[bucket - 1]
        )
        total += weight * price
    return total


def brute(problem, count, largest=np.inf):
    """The least price of all sets of at most ``count`` candidates that hold the kept ones."""
    allowed = [int(c) for c in problem.candidates if c <= largest]
    if any(size not in allowed for size in problem.keep):
        return None
    prices = [
        by_hand(problem, chosen)
        for k in range(count + 1)
        for chosen in combinations(allowed, k)
        if set(problem.keep) <= set(chosen)
    ]
    return min(prices, default=None)


def check(problem, count, largest=np.inf):
    found = optimal_sets(problem, count).best(count, largest)
    least = brute(problem, count, largest)
    if least is None:
        assert found is None
        return
    assert found is not None
    assert len(found) <= count
    assert (np.diff(found) > 0).all()
    assert set(problem.keep) <= set(found.tolist()) <= set(problem.candidates.tolist())
    assert not len(found) or found[-1] <= largest
    assert serve(problem, found).price == pytest.approx(least)
    assert by_hand(problem, found.tolist()) == pytest.approx(least)


@settings(deadline=None, max_examples=1500)
@given(problems(), st.integers(0, 6))
def test_best_set_is_that_of_brute_force(problem, count):
    check(problem, count)


@st.composite
def uneven(draw, **more):
    """A problem whose larger buckets are never more graphs, and its graphs by bucket."""
    problem = draw(problems(**more))
    count = len(problem.candidates)
    graphs = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    return replace(problem, graphs=np.array(sorted(graphs, reverse=True)))


@settings(deadline=None, max_examples=600)
@given(
    st.one_of(uneven(), uneven(monotone=False), uneven(within=st.just(2.0))),
    st.integers(0, 12),
    st.sampled_from([TOP, TOP, 9]),
)
def test_a_count_of_graphs_where_sizes_are_several_and_not_as_many(problem, most, largest):
    found = optimal_sets(problem, most).best(most, largest)
    graphs = dict(zip(problem.candidates.tolist(), problem.graphs.tolist(), strict=True))
    allowed = [size for size in graphs if size <= largest]
    prices = [
        by_hand(problem, chosen)
        for k in range(len(allowed) + 1)
        for chosen in combinations(allowed, k)
        if set(problem.keep) <= set(chosen) and sum(graphs[size] for size in chosen) <= most
    ]
    if not prices:
        assert found is None
        return
    assert sum(graphs[size] for size in found.tolist()) <= most
    assert set(problem.keep) <= set(found.tolist())
    assert by_hand(problem, found.tolist()) == pytest.approx(min(prices))


@settings(deadline=None, max_examples=300)
@given(problems(), st.integers(1, 5), st.integers(1, TOP))
def test_no_bucket_above_the_largest_that_memory_allows(problem, count, largest):
    check(problem, count, largest)


@settings(deadline=None, max_examples=400)
@given(problems(monotone=False), st.integers(1, 5))
def test_prices_that_fall_somewhere(problem, count):
    check(problem, count)


@settings(deadline=None, max_examples=500)
@given(problems(within=st.sampled_from([1.5, 2.0, 3.0])), st.integers(1, 5))
def test_a_bucket_too_large_for_a_size_leaves_it_eager(problem, count):
    check(problem, count)


@settings(deadline=None, max_examples=300)
@given(problems(monotone=False, exact_only=True), st.integers(0, 5))
def test_only_exact_sizes(problem, count):
    found = exact_set(problem, count)
    least = brute(problem, count)
    if least is None:
        assert found is None
    else:
        assert found is not None
        assert by_hand(problem, found.tolist()) == pytest.approx(least)


def test_padding_off_is_no_rounding_up():
    problem = Problem(np.array([3]), np.ones(1), np.array([3]), Table((1.0,) * TOP, (2.0,) * TOP))
    with pytest.raises(ValueError, match="padding is off"):
        optimal_sets(replace(problem, exact_only=True), 3)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 50), min_size=4, max_size=9).map(sorted),
    st.data(),
)
def test_monotone_replay_prices_are_monge(prices, data):
    count = len(prices)
    steps = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    sums = np.concatenate([[0], np.cumsum(steps)]).astype(float)
    replay = np.array(prices, float)
    ones = np.ones(count, np.int64)
    assert is_monge(Stretch(np.arange(count), replay, sums, sums, ones))
    for a, b, c, d in combinations(range(count + 1), 4):

        def cost(i, j):
            return replay[j - 1] * (sums[j] - sums[i])

        assert cost(a, c) + cost(b, d) <= cost(a, d) + cost(b, c)


@settings(deadline=None, max_examples=150)
@given(problems(within=st.just(2.0)), st.integers(1, 4))
def test_thinned_candidates_still_give_a_legal_set(problem, count):
    with patch.object(optimum, "MOST_PAIRS", 3):
        found = optimal_sets(problem, count).best(count)
    if found is not None:
        assert set(problem.keep) <= set(found.tolist()) <= set(problem.candidates.tolist())
        assert serve(problem, found).price >= brute(problem, count) - 1e-9


def test_frontier_never_rises_on_large_traffic():
    rng = np.random.default_rng(7)
    sizes = np.arange(1, 3000)
    weights = rng.integers(0, 100, len(sizes)).astype(float)

    class Rows:
        def replay(self, buckets):
            return np.asarray(buckets, float)

        def eager(self, sizes):
            return 2.0 * sizes

    problem = Problem(sizes, weights, sizes, Rows(), keep=(2999,))
    sets = optimal_sets(problem, 40)
    prices = []
    for count in range(1, 41):
        found = sets.best(count)
        assert found is not None
        assert len(found) == count
        assert (buckets_of(problem, found) >= sizes).all()
        prices.append(serve(problem, found).price)
    gains = -np.diff(prices)
    assert (gains > 0).all()
    assert (np.diff(gains) <= 1e-6).all()  # Monge: each further bucket gains less
