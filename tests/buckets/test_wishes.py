"""The best sets within budgets, against trying every set."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiag.buckets.engines import Variant
from graphdiag.buckets.memory import Memory
from graphdiag.buckets.problem import serve
from graphdiag.buckets.wishes import BestSets, Wishes
from tests.buckets.making import rows_problem
from tests.buckets.test_optimum import by_hand, problems

ONE = (Variant("", None),)


def memory(pool=0.0, graph=1.0, variants=ONE, size=12):
    return Memory(variants, pool_mib=pool, pool_size=size, graph_mib=graph)


def every_set(problem, most):
    candidates = problem.candidates.tolist()
    for count in range(1, most + 1):
        for chosen in combinations(candidates, count):
            if set(problem.keep) <= set(chosen):
                yield chosen


def least(problem, sets, found):
    """Check ``found`` against the least price of ``sets``; None where all eager is as cheap."""
    prices = [by_hand(problem, chosen) for chosen in sets]
    if found is None:
        assert min(prices, default=np.inf) >= by_hand(problem, []) - 1e-9
    else:
        assert serve(problem, found).price == pytest.approx(min(prices))


@settings(max_examples=200)
@given(problems(), st.integers(1, 5), st.integers(0, 40), st.integers(0, 30))
def test_the_best_set_within_a_memory_budget(problem, count, mib, pool):
    costs = memory(pool=pool, graph=3.0)
    sets = BestSets(problem, Wishes(budget_mib=mib), costs, count)
    found = sets.best(count)
    assert found is None or costs.mib(found.tolist()) <= mib
    least(problem, [one for one in every_set(problem, count) if costs.mib(one) <= mib], found)


@settings(max_examples=150)
@given(problems(), st.integers(1, 9), st.integers(1, 3))
def test_the_best_set_within_a_budget_of_graphs(problem, graphs, variants):
    costs = memory(variants=(Variant("", None),) * variants)
    most = len(problem.candidates)
    found = BestSets(problem, Wishes(max_graphs=graphs), costs, most).best(most)
    assert found is None or costs.graphs(found.tolist()) <= graphs
    least(problem, every_set(problem, min(most, graphs // variants)), found)


UNEVEN = (Variant("FULL", 6), Variant("PIECEWISE", None))


@settings(max_examples=200)
@given(problems(), st.integers(1, 9), st.one_of(st.none(), st.integers(1, 40)))
def test_sizes_that_are_not_as_many_graphs_as_others(problem, graphs, mib):
    costs = memory(pool=12.0 if mib else 0.0, graph=3.0, variants=UNEVEN)
    wishes, most = Wishes(max_graphs=graphs, budget_mib=mib), len(problem.candidates)
    found = BestSets(problem, wishes, costs, most).best(most)
    least(problem, [s for s in every_set(problem, most) if wishes.granted_by(s, costs)], found)


@settings(max_examples=150)
@given(problems(), st.integers(1, 6))
def test_the_frontier_has_the_best_set_of_each_count_and_falls(problem, most):
    sets = BestSets(problem, Wishes(), memory(), most)
    frontier = sets.frontier()
    prices = [serve(problem, buckets).price for buckets in frontier]
    assert (np.diff(prices) < 0).all()
    assert [len(b) for b in frontier] == sorted({len(b) for b in frontier})
    if frontier and len(frontier[-1]) < most:
        best = sets.best(most)
        assert serve(problem, best).price == pytest.approx(prices[-1])
    knee = sets.knee(frontier)
    assert knee is None if not frontier else 0 <= knee < len(frontier)


def test_the_knee_is_farthest_below_the_chord():
    problem = rows_problem(dict.fromkeys(range(1, 33), 1.0), keep=(32,))
    sets = BestSets(problem, Wishes(), memory(), 32)
    frontier = sets.frontier()
    assert [len(buckets) for buckets in frontier] == list(range(1, 33))
    prices = np.array([serve(problem, buckets).price for buckets in frontier])
    chord = prices[0] + (prices[-1] - prices[0]) * np.arange(32) / 31
    assert sets.knee(frontier) == np.argmax(chord - prices) == 5
    assert sets.knee(frontier[:2]) == 1
    assert sets.knee([]) is None


def test_a_cheaper_set_of_fewer_buckets_is_found_where_memory_grows_with_the_largest():
    # Twelve buckets leave memory for none above 8: two that reach 64 cost less.
    problem = rows_problem({**dict.fromkeys(range(1, 13), 1.0), 64: 100.0})
    costs = memory(pool=640, graph=50, size=64)
    found = BestSets(problem, Wishes(budget_mib=745), costs, 13).best(13)
    assert found[-1] == 64
    assert costs.mib(found.tolist()) <= 745


@pytest.mark.parametrize(
    ("wishes", "buckets", "granted"),
    [
        (Wishes(), [8], True),
        (Wishes(keep=(8,)), [8, 16], True),
        (Wishes(keep=(9,)), [8, 16], False),
        (Wishes(forbid=(9,)), [8, 16], True),
        (Wishes(forbid=(8,)), [8, 16], False),
        (Wishes(max_graphs=2), [8, 16], True),
        (Wishes(max_graphs=1), [8, 16], False),
        (Wishes(budget_mib=2), [8, 16], True),
        (Wishes(budget_mib=1.9), [8, 16], False),
    ],
)
def test_what_grants_a_wish(wishes, buckets, granted):
    assert wishes.granted_by(buckets, memory()) is granted
    assert wishes.has_budget == bool(wishes.max_graphs or wishes.budget_mib)
