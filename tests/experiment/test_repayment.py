"""When a longer start has paid for itself: known cases, and what no figure may be given for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.experiment.against import hull
from graphdiag.experiment.repayment import repayment


def test_the_seeds_case_is_repaid_by_the_net_saving_of_each_step():
    # 0.75 ms saved a step, after 14 s of capturing.
    found = repayment(14.0, -0.75, (-0.8, -0.7), 4.35)
    assert found.steps == pytest.approx(14_000 / 0.75)
    assert found.steps_ci95 == pytest.approx((14_000 / 0.8, 14_000 / 0.7))
    assert found.hours == pytest.approx(14_000 / 0.75 * 4.35 / 3.6e6)
    assert found.hours_ci95[0] < found.hours < found.hours_ci95[1]
    assert found.sentence == (
        "A first step 14 s later is repaid after 18,667 steps (95 %: 17,500 to 20,000), "
        "81.2 s without a pause."
    )


def test_a_gain_that_may_be_none_may_never_repay():
    found = repayment(10.0, -0.1, (-0.3, 0.1), 2.0)
    assert found.steps == pytest.approx(100_000)
    assert found.steps_ci95 == (pytest.approx(10_000 / 0.3), None)
    assert found.hours_ci95[1] is None
    assert "(95 %: 33,333 to never)" in found.sentence


def test_what_takes_nothing_away_never_repays():
    found = repayment(10.0, 0.1, (0.05, 0.15), 2.0)
    assert (found.steps, found.hours, found.sentence) == (
        None,
        None,
        "Never: its steps are no shorter.",
    )


def test_a_start_that_is_no_longer_owes_nothing():
    found = repayment(-2.0, -0.1, None, 2.0)
    assert (found.steps, found.hours) == (0.0, 0.0)


@pytest.mark.parametrize(("later", "change"), [(None, -1.0), (1.0, None)])
def test_what_was_not_measured_gives_no_figure(later, change):
    found = repayment(later, change, None, 2.0)
    assert found.steps is None
    assert found.sentence.startswith("Not identifiable: ")


def test_without_an_interval_or_a_step_time_the_steps_alone_are_told():
    found = repayment(1.0, -1.0, None, None)
    assert (found.steps, found.steps_ci95, found.hours, found.hours_ci95) == (
        1000,
        None,
        None,
        None,
    )


@given(
    later=st.floats(0.001, 1e4),
    saved=st.floats(0.001, 1e3),
    half=st.floats(0, 1e3),
    step=st.floats(0.001, 1e3),
)
def test_the_interval_holds_the_figure(later, saved, half, step):
    found = repayment(later, -saved, (-saved - half, -saved + half), step)
    low, high = found.steps_ci95
    assert low <= found.steps * (1 + 1e-9)
    assert high is None or found.steps <= high * (1 + 1e-9)
    assert (high is None) == (half >= saved)


def test_an_interval_over_rounds_holds_those_of_each():
    assert hull([(-1.0, 0.5), (-2.0, -0.5)]) == (-2.0, 0.5)
    assert hull([(-1.0, 0.5), None]) is None
    assert hull([]) is None
