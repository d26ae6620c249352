import numpy as np
import pytest

from graphdiag.bootstrap import block_draws, percentiles
from graphdiag.buckets.heldout import Gain, gain, split, split_in_time
from graphdiag.buckets.histogram import Histogram
from tests.buckets.making import rows_problem


def traffic(over_time, sizes=(8, 9), is_share=False):
    over_time = None if over_time is None else np.array(over_time, float)
    counts = np.array([30.0, 10.0]) if over_time is None else over_time.sum(axis=0)
    return Histogram(np.array(sizes), counts, "requests", np.array([8, 16]), over_time, is_share)


def test_every_other_stretch_of_two_slices_is_fitted_on():
    steps = [[1, 0], [2, 0], [0, 10], [0, 20], [4, 0], [8, 0], [0, 40], [0, 80]]
    parts = split(traffic(steps))
    assert parts.how == "alternating"
    assert parts.fit.tolist() == [15, 0]
    assert parts.rest.tolist() == [0, 150]
    assert parts.rest_over_time.tolist() == [[0, 10], [0, 20], [0, 40], [0, 80]]
    assert parts.fit_share == pytest.approx(15 / 165)


def test_the_first_half_of_the_steps_is_fitted_on_to_see_whether_a_gain_lasts():
    parts = split_in_time(traffic([[10, 0], [0, 10], [5, 5], [5, 5]]))
    assert parts.how == "time"
    assert parts.fit.tolist() == [10, 10]
    assert parts.rest.tolist() == [10, 10]
    assert parts.fit_share == 0.5


def test_a_histogram_without_times_is_cut_in_random_halves_that_add_up():
    parts = split(traffic(None))
    assert parts.how == "halves"
    assert (parts.fit + parts.rest).tolist() == [30, 10]
    assert split(traffic(None)).fit.tolist() == parts.fit.tolist()
    assert split_in_time(traffic(None)) is None


def test_shares_and_a_single_moment_cannot_be_cut():
    assert split(traffic(None, is_share=True)) is None
    assert split(traffic([[5, 5]])) is None
    assert split_in_time(traffic([[5, 5], [0, 0]])) is None


def test_a_gain_by_hand():
    # 9 replays 16 before and 9 after: seven rows of each such step; 8 is as it was.
    parts = split(traffic([[1, 1], [1, 1], [3, 1], [1, 3], [1, 1], [1, 1], [2, 2], [0, 4]]))
    problem = rows_problem({8: 10, 9: 14})
    found = gain([problem], np.array([8, 16]), np.array([8, 9, 16]), parts)
    assert parts.rest.tolist() == [6, 10]
    assert found.per_step == pytest.approx(7 * 10 / 16)
    drawn = block_draws(4) @ parts.rest_over_time
    each = 7 * drawn[:, 1] / drawn.sum(axis=1)
    assert found.ci95 == pytest.approx(percentiles(each, 4))
    assert found.is_real


def test_random_halves_have_the_interval_of_a_mean():
    parts = split(traffic(None))
    found = gain([rows_problem({8: 30, 9: 10})], np.array([8, 16]), np.array([8, 9]), parts)
    share = parts.rest[1] / parts.rest.sum()
    half = 1.96 * 7 * np.sqrt(share * (1 - share) / parts.rest.sum())
    assert found.per_step == pytest.approx(7 * share)
    assert found.ci95 == pytest.approx((7 * share - half, 7 * share + half))


def test_few_moments_give_a_gain_without_an_interval():
    parts = split(traffic([[5, 5], [5, 5], [5, 5]]))
    found = gain([rows_problem({8: 15, 9: 15})], np.array([8, 16]), np.array([8, 9]), parts)
    assert found == Gain(3.5, None)
    assert found.is_real
    assert not Gain(0.0, None).is_real
    assert not Gain(1.0, (-0.1, 2.0)).is_real


def test_prices_measured_on_resamples_widen_the_interval():
    parts = split(traffic([[5, 5]] * 16))
    problem = rows_problem({8: 80, 9: 80})

    class Dearer:
        def __init__(self, row):
            self.row = row

        def replay(self, buckets):
            return self.row * buckets

        eager = replay

    rows = [problem.priced(Dearer(row)) for row in np.linspace(0.5, 1.5, 200)]
    sets = np.array([8, 16]), np.array([8, 9])
    alone, together = gain([problem], *sets, parts), gain([problem, *rows], *sets, parts)
    assert alone.ci95 == pytest.approx((3.5, 3.5))
    assert together.per_step == pytest.approx(3.5)
    assert together.ci95 == pytest.approx((3.5 * 0.5, 3.5 * 1.5), rel=0.01)
