"""Holding a candidate's step time against a baseline's."""

import pytest

from graphdiag.comparison.regression import Bound, Slowdown, hold_slowdown, parse_slowdown
from tests.build import MS, event
from tests.comparison.runs import SIZES, chapter_one, compared, eager, replayed, steps

ONE_PERCENT = Bound(0.01, is_ms=False)


def slowdown(change, ci95=(0.05, 0.2), bound=ONE_PERCENT):
    return Slowdown(bound, 5.0, change, ci95, steady=False, why=None)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("2%", Bound(0.02, is_ms=False)),
        ("2 %", Bound(0.02, is_ms=False)),
        ("0.02", Bound(0.02, is_ms=False)),
        ("0", Bound(0.0, is_ms=False)),
        ("150%", Bound(1.5, is_ms=False)),
        ("0.1ms", Bound(0.1, is_ms=True)),
        (" 3 ms", Bound(3.0, is_ms=True)),
    ],
)
def test_bounds(text, bound):
    assert parse_slowdown(text) == bound


@pytest.mark.parametrize("text", ["", "ms", "2", "-1%", "few", "nanms", "0.1s", "0.1sms", "1e999%"])
def test_what_is_no_bound(text):
    with pytest.raises(ValueError, match="write"):
        parse_slowdown(text)


def test_a_slowdown_breaks_the_bound_only_beyond_it_and_beyond_noise():
    assert not slowdown(0.1).holds
    assert slowdown(0.05).holds  # 1 % is within
    assert slowdown(0.1, (-0.01, 0.21)).holds
    assert slowdown(0.1, (-0.01, 0.21)).is_over
    assert slowdown(-0.4, (-0.5, -0.3)).holds
    assert not slowdown(0.1, bound=Bound(0.09, is_ms=True)).holds
    assert slowdown(0.1, bound=Bound(0.2, is_ms=True)).holds


def test_what_cannot_be_judged_does_not_hold():
    for unknown in (slowdown(None), slowdown(0.1, None), slowdown(0.01, None)):
        assert not unknown.is_judged
        assert not unknown.holds
    assert slowdown(0.1).is_judged
    short = steps(SIZES, 5, replayed)
    held = hold_slowdown(compared(short, short), ONE_PERCENT, steady=False)
    assert not held.is_judged
    assert held.why.startswith("Whether the change is more than noise: the base is too short")


def test_the_change_is_that_on_equal_traffic():
    small = steps((8, 8, 16, 16, 32), 400, replayed)
    large = steps((8, 16, 32, 32, 32), 400, replayed)
    found = compared(small, large)
    assert found.delta_ms_per_step > 1
    assert hold_slowdown(found, ONE_PERCENT, steady=False).holds
    slower = steps((8, 16, 32, 32, 32), 400, lambda size: replayed(size, launch_ms=0.5))
    held = hold_slowdown(compared(small, slower), ONE_PERCENT, steady=False)
    assert not held.holds
    assert held.change == pytest.approx(0.3, abs=0.01)


def test_start_up_counts_unless_it_is_left_out():
    base, candidate = chapter_one()
    found = compared(base, candidate)
    held = hold_slowdown(found, Bound(0.05, is_ms=False), steady=True)
    assert held.steady
    assert (held.base, held.change) == (
        found.base_steady_ms_per_step,
        found.steady_matched_ms_per_step,
    )


def test_what_is_not_identifiable_does_not_hold():
    base, _ = chapter_one(60)
    untimed = [{**row, "dur_ns": None} for row in base]
    held = hold_slowdown(compared(untimed, base), Bound(9.0, is_ms=False), steady=False)
    assert not held.holds
    assert held.why.startswith("The change in step time: the 60 steps of the base carry no times;")
    cold = steps(SIZES, 40, lambda size: {**replayed(size), "outcome": "capture"})
    held = hold_slowdown(compared(steps(SIZES, 40, eager), cold), Bound(9, False), steady=True)
    assert not held.holds
    assert "every step of the candidate captured or compiled" in held.why
    base, _ = chapter_one(60)
    only_start = [event("capture", 9_000.0, dur_ns=MS, artifact="g"), *base]
    held = hold_slowdown(compared(base, only_start), Bound(9, False), steady=True)
    assert held.why == "one of the two has no steady state"
