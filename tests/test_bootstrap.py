import numpy as np
import pytest

from graphdiag.bootstrap import RESAMPLES, block_draws, percentiles, resampled


@pytest.mark.parametrize("stretches", [1, 2, 4, 27, 100, 512])
def test_every_resample_is_as_long_as_the_timeline(stretches):
    draws = block_draws(stretches)
    assert draws.shape == (RESAMPLES, stretches)
    assert (draws.sum(axis=1) == stretches).all()
    assert (draws == block_draws(stretches)).all()


def test_every_stretch_is_as_likely_as_any_other():
    draws = block_draws(27, resamples=20_000)
    assert draws.mean(axis=0) == pytest.approx(np.ones(27), abs=0.05)


def test_a_resample_has_the_sums_of_the_stretches_that_it_drew():
    draws = np.array([[1.0, 1, 1], [0, 3, 0], [2, 0, 1]])
    sums = np.array([[1.0, 10], [2, 20], [4, 40]])
    assert resampled(draws, sums).tolist() == [[7, 70], [6, 60], [6, 60]]


def test_neighbours_are_drawn_together():
    draws = block_draws(64, resamples=4_000) - 1.0
    near = (draws * np.roll(draws, 1, axis=1)).mean()
    far = (draws * np.roll(draws, 20, axis=1)).mean()
    assert near > 0.5  # blocks are the cube root of 64 long: 3 of 4 neighbours share one
    assert abs(far) < 0.1


def test_the_interval_of_a_mean_is_as_wide_as_it_should_be():
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        values = random.normal(10, 1, 64)
        low, high = percentiles(block_draws(64) @ values / 64)
        inside += low <= 10 <= high
    assert 170 <= inside <= 198  # blocks cost a little of the 95 %


def test_few_stretches_widen_the_interval():
    random = np.random.default_rng(2)
    inside = {None: 0, 18: 0}
    for _ in range(300):
        means = block_draws(18) @ random.normal(10, 1, 18) / 18
        for stretches in inside:
            low, high = percentiles(means, stretches)
            inside[stretches] += low <= 10 <= high
    assert inside[None] < 0.91 * 300
    assert inside[18] > 0.93 * 300


def test_many_stretches_hardly_do():
    values = np.arange(1001.0)
    low, high = percentiles(values, 10_000)
    assert (low, high) == pytest.approx((25, 975), abs=2)


def test_percentiles_are_the_middle_95():
    assert percentiles(np.arange(1001.0)) == (25.0, 975.0)
