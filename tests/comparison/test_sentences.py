"""Which terms a verdict names, and what it says where noise may have made the change."""

from types import SimpleNamespace

import pytest

from graphdiag.comparison.change import Change, Measured
from graphdiag.comparison.decomposition import TERMS
from graphdiag.comparison.sentences import verdict
from tests.build import MS
from tests.comparison.runs import SIZES, compared, replayed, steps


def changed(value, half=None):
    """A change of ``value`` ms, within ``half`` of it."""
    ends = None if half is None else ((value - half) * MS, (value + half) * MS)
    return Change(value * MS, ends)


def told(delta, matched=None, **terms):
    """The verdict on a change of ``delta`` that is made of ``terms``, each (ms, half-width)."""
    book = SimpleNamespace(total_steps=1000.0)
    split = Measured(
        delta=changed(*delta),
        terms={name: changed(*terms.get(name, (0.0, 0.0))) for name in TERMS},
        matched=changed(*(matched or delta)),
        per_token=None,
        per_token_terms={},
        base=book,
        candidate=book,
        overlap=None,
    )
    return verdict(split, split)


def test_a_term_that_pulls_the_other_way_is_no_cause():
    found = told((0.741, 0.675), stalls=(0.75, 0.87), compile=(-0.0001, 0.00005))
    assert found.sentence == (
        "The candidate is slower by 0.741 ms (95 %: 0.066 to 1.42) a step. What it is made of is "
        "within noise, the largest part being steps that stalled +0.75 ms."
    )
    assert found.case is None


def test_an_immaterial_term_is_no_cause():
    found = told((-0.0372, 0.03), matched=(-0.001, 0.006), traffic_mix=(-0.0362, 0.05),
                 compile=(-0.0005, 0.0001))  # fmt: skip
    assert "the largest part being other traffic -0.0362 ms. On the same traffic there is" in (
        found.sentence
    )
    assert "start-up" not in found.sentence


def test_what_weighs_against_the_causes_is_named_after_them():
    found = told((0.5, 0.1), launch_saving=(-0.7, 0.1), padding=(1.2, 0.1), compile=(0.01, 0.001))
    assert ": padding +1.2 ms, launches saved by replay -0.7 ms. Case 4: " in found.sentence
    found = told((0.5, 0.1), padding=(-0.3, 0.1), residual=(0.8, 0.9))
    assert found.sentence.endswith(
        "the largest part being the same work running slower +0.8 ms; beyond noise, the other way, "
        "is less padding -0.3 ms."
    )


@pytest.mark.parametrize("value", [-0.0142, 0.0142])
def test_no_difference_keeps_its_sign(value):
    ends = ("-0.0762", "+0.0478") if value < 0 else ("-0.0478", "+0.0762")
    assert told((value, 0.062)).sentence == (
        f"No difference beyond noise: {value:+} ms (95 %: {ends[0]} to {ends[1]}) a step."
    )


def test_without_an_interval_there_is_no_verdict():
    found = told((0.5,), padding=(0.5,))
    assert found.case is None
    assert found.sentence == (
        "No verdict: the mean step changed by +0.5 ms, and without an interval nothing tells "
        "whether that is more than noise."
    )


def without_interval(found):
    """The reason why there is no interval."""
    (one,) = [one for one in found.not_identifiable if one.startswith("Whether the change")]
    return one.removeprefix("Whether the change is more than noise: ")


def test_why_there_is_no_interval_is_told():
    base = steps(SIZES, 300, replayed)
    assert without_interval(compared(base, [{**row, "t_ns": None} for row in base])) == (
        "the steps of the candidate do not say when they began; record their times."
    )
    assert without_interval(compared(base[:5], base)) == (
        "the base is too short (5 timed steps) to be cut into stretches of time; record longer."
    )
    at_once = [{**row, "t_ns": base[0]["t_ns"]} for row in base]
    assert without_interval(compared(at_once, base)) == (
        "the 300 timed steps of the base began in 1 of the 8 stretches of time that it takes; "
        "check its clock, or record longer."
    )


def test_a_pause_is_no_lack_of_time_and_a_clock_that_was_set_back_is_said():
    base = steps(SIZES, 300, replayed)
    for far in (3_600_000.0, -3_600_000.0):
        rows = [*base[:150], *steps(SIZES, 150, replayed, far)]
        found = compared(base, [{**row, "step": at} for at, row in enumerate(rows)])
        assert found.verdict.sentence.startswith("No difference beyond noise: ")
        told = [note for note in found.notes if "clock of the candidate was set back" in note]
        assert len(told) == (far < 0)
