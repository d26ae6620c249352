"""Single changes against trying every one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiag.buckets.changes import additions, best_addition, best_drop, best_move, moved
from graphdiag.buckets.problem import buckets_of, serve
from tests.buckets.making import rows_problem
from tests.buckets.test_optimum import TOP, by_hand, problems

bucket_sets = st.sets(st.integers(1, TOP), min_size=1, max_size=6).map(
    lambda sizes: np.array(sorted(sizes))
)
WITHIN = st.sampled_from([None, 2.0])
any_problem = st.one_of(
    problems(monotone=False), problems(within=WITHIN), problems(monotone=False, exact_only=True)
)


def saves(problem, old, new):
    return by_hand(problem, old.tolist()) - by_hand(problem, sorted(new))


def reaches(problem, old, new):
    """Whether a set still holds what must not run eager, where the old one did."""
    must = min(max(problem.keep, default=0), int(old[-1]))
    return bool(new) and max(new) >= must


@settings(max_examples=250)
@given(any_problem, bucket_sets)
def test_what_each_addition_saves_is_what_serving_says(problem, buckets):
    gains = additions(problem, buckets)
    for size, gain in zip(problem.candidates.tolist(), gains, strict=True):
        assert gain == pytest.approx(saves(problem, buckets, {*buckets.tolist(), size}))


@settings(max_examples=250)
@given(any_problem, bucket_sets, st.integers(1, TOP))
def test_the_best_addition_is_the_best_of_all(problem, buckets, largest):
    allowed = [size for size in problem.candidates.tolist() if size <= largest]
    best = max((saves(problem, buckets, {*buckets.tolist(), c}) for c in allowed), default=0.0)
    found = best_addition(problem, buckets, largest=largest)
    if found is None:
        assert best <= 1e-9
        return
    assert found.action == "add"
    assert found.sizes[0] <= largest
    assert found.gain == pytest.approx(best)
    assert found.gain == pytest.approx(saves(problem, buckets, found.buckets.tolist()))


@settings(max_examples=250)
@given(any_problem, bucket_sets)
def test_the_best_move_is_the_best_of_all(problem, buckets):
    held = buckets.tolist()
    tried = [
        saves(problem, buckets, new)
        for old, candidate in product(held, problem.candidates.tolist())
        if old not in problem.keep
        and reaches(problem, buckets, new := {*held, candidate} - ({old} - {candidate}))
        and by_hand(problem, sorted({*held} - {old})) > by_hand(problem, sorted(new)) + 1e-9
    ]  # an addition that brings nothing makes the move a drop
    best = max(tried, default=0.0)
    found = best_move(problem, buckets)
    if found is None:
        assert best <= 1e-9
        return
    assert found.gain == pytest.approx(best)
    assert found.gain == pytest.approx(saves(problem, buckets, found.buckets.tolist()))
    old, new = found.sizes
    assert set(found.buckets.tolist()) == {*held, new} - {old}
    assert len(found.buckets) <= len(buckets)
    assert reaches(problem, buckets, found.buckets.tolist())


@settings(max_examples=250)
@given(any_problem, bucket_sets)
def test_the_best_drop_is_the_best_of_all(problem, buckets):
    held = buckets.tolist()
    tried = [
        saves(problem, buckets, rest)
        for old in held
        if old not in problem.keep and reaches(problem, buckets, rest := {*held} - {old})
    ]
    found = best_drop(problem, buckets)
    if found is None:
        assert not tried
        return
    assert found.gain == pytest.approx(max(tried))
    assert found.buckets.tolist() == [size for size in held if size != found.sizes[0]]


@settings(max_examples=200)
@given(problems(within=WITHIN), bucket_sets, bucket_sets)
def test_runs_of_moved_sizes_add_up_to_what_a_change_saves(problem, old, new):
    runs = moved(problem, old, new)
    assert sum(run.gain for run in runs) == pytest.approx(saves(problem, old, new.tolist()))
    before, after = buckets_of(problem, old), buckets_of(problem, new)
    changed = problem.weights[(before != after)].sum()
    assert sum(run.steps for run in runs) == pytest.approx(changed)
    for run in runs:
        inside = (problem.sizes >= run.first) & (problem.sizes <= run.last)
        assert set(before[inside & (problem.weights > 0)].tolist()) == {run.before}
        assert set(after[inside & (problem.weights > 0)].tolist()) == {run.after}


def test_a_bucket_that_must_replay_is_not_dropped_for_eager_steps_of_unknown_price():
    problem = rows_problem({8: 100.0, 27: 1.0}, keep=(27,))
    current = np.array([8, 64])
    assert serve(problem, np.array([8])).price < serve(problem, current).price
    assert best_drop(problem, current).sizes == (8,)
    assert best_move(problem, current).sizes == (64, 27)


def test_the_last_bucket_is_not_dropped():
    problem = rows_problem({8: 1.0})
    assert best_drop(problem, np.array([64])) is None
