"""Runs that were asked for other things: what is on equal traffic, and what is not identifiable."""

import numpy as np
import pytest

from graphdiag.comparison.change import Timed, measure_change
from graphdiag.steptable import REPLAY, START_UP, StepTable
from tests.build import MS, event
from tests.comparison.runs import BUCKETS, compared, configured, replayed, steps

LADDER = np.array([1, 2, 4, 8, 16, 32])


def served(*sizes, buckets=BUCKETS, number=120, **columns):
    """Steps of ``sizes`` in turn, by an engine that captured ``buckets``; there is no jitter."""
    rows = steps(sizes, number, lambda size: {**replayed(size, buckets), **columns})
    return configured(rows, engine="mine", mode="FULL", capture_sizes=list(buckets))


@pytest.mark.parametrize(
    ("base", "candidate"),
    [((3, 11), (11, 27)), ((3, 11, 27), (11, 27, 30)), ((11, 27, 27), (27, 30)), ((27,), (9, 27))],
)
def test_sizes_never_seen_are_served_by_the_buckets_that_the_engine_has(base, candidate):
    for first, second in ((base, candidate), (candidate, base)):
        found = compared(served(*first), served(*second))
        assert found.matched_ms_per_step == pytest.approx(0, abs=1e-6)
        assert found.terms.padding == pytest.approx(0, abs=1e-6)
        assert found.terms.traffic_mix == pytest.approx(found.delta_ms_per_step, abs=1e-6)


def test_a_time_that_is_read_off_the_curve_is_said_to_be():
    found = compared(served(3, 27), served(11, 27))
    assert found.notes == [
        "The base never timed the buckets that serve decode steps of size 11 (50.0 % of the "
        "candidate's steps): what it would take there is read off its other buckets.",
        "The candidate never timed the buckets that serve decode steps of size 3 (50.0 % of the "
        "base's steps): what it would take there is read off its other buckets.",
    ]
    assert found.matched_shares == pytest.approx((1, 1))
    assert found.not_identifiable == []


def test_the_steps_left_out_of_equal_traffic_are_named():
    found = compared(served(3, 27, 27, 27), served(27))
    assert found.matched_ms_per_step == pytest.approx(0, abs=1e-6)
    assert found.matched_shares == pytest.approx((0.75, 1))
    assert found.not_identifiable[-1] == (
        "The change on equal traffic, of all steps: some are left out of it, because the "
        "candidate's times tell nothing of decode steps of size 3 (25.0 % of the base's steps)."
    )


def test_far_larger_sizes_are_not_on_equal_traffic():
    found = compared(served(3, 11, 27), served(200, 250, buckets=(*BUCKETS, 256)))
    assert found.delta_ms_per_step > 10
    assert found.matched_ms_per_step is None
    assert found.terms is None
    assert found.not_identifiable[0] == (
        "What the change is made of, and what it is on equal traffic: the base's times tell "
        "nothing of decode steps of 2 sizes from 200 to 250 (100 % of the candidate's steps), and "
        "the candidate's times tell nothing of decode steps of 3 sizes from 3 to 27 (100 % of the "
        "base's steps); record both under traffic whose sizes overlap, or let each replay the "
        "buckets that the other does."
    )
    assert "not identifiable" in found.verdict.sentence
    assert "same work" not in found.verdict.sentence


def test_one_bucket_each_tells_nothing_of_the_other():
    found = compared(served(3, 5, buckets=(8,)), served(200, 250, buckets=(256,)))
    assert found.matched_ms_per_step is None
    assert "same work" not in found.verdict.sentence
    same = compared(served(3, 5, buckets=(8,)), served(4, 6, buckets=(8,)))
    assert same.matched_ms_per_step == pytest.approx(0, abs=1e-6)


def test_a_phase_that_the_other_lacks_is_not_on_equal_traffic():
    found = compared(served(3, 11, 27), served(3, 11, 27, phase="verify"))
    assert found.matched_ms_per_step is None
    assert "verify steps of 3 sizes from 3 to 27 (100 %" in found.not_identifiable[0]
    half = [{**row, "phase": "verify"} if at % 4 == 0 else row for at, row in enumerate(served(3))]
    found = compared(served(3, 3), half)
    assert found.matched_ms_per_step == pytest.approx(0, abs=1e-6)
    assert "verify steps of size 3" in found.not_identifiable[-1]


def test_what_an_engine_does_beyond_its_largest_bucket_is_known_only_where_it_was_timed():
    found = compared(served(3, 11, 27), served(40, 45, buckets=(*BUCKETS, 64)))
    assert found.matched_ms_per_step is None
    fallback = {"bucket": None, "outcome": "fallback", "reason": "over_max"}
    slower = [
        {**row, **fallback} if row.get("requested") in (40, 45) else row
        for row in served(3, 11, 27, 40, 45, buckets=(*BUCKETS, 64))
    ]
    found = compared(slower, served(3, 11, 27, buckets=BUCKETS))
    assert (
        "the candidate's times tell nothing of decode steps of 2 sizes from 40 to 45"
        in (found.not_identifiable[0])
    )


def test_steps_without_a_time_that_are_not_like_the_others_leave_no_change():
    rows = served(3, 11, 27, number=300)
    large = [{**row, "dur_ns": None} if row.get("bucket") == 32 else row for row in rows]
    found = compared(rows, large)
    assert found.delta_ms_per_step is None
    assert found.verdict.sentence == (
        "No verdict on time: 100 steps of the candidate's 300 carry no time and are not like the "
        "others."
    )
    some = [{**row, "dur_ns": None} if at % 4 == 0 else row for at, row in enumerate(rows)]
    found = compared(rows, some)
    assert found.delta_ms_per_step == pytest.approx(0, abs=0.01)
    assert found.notes[-1].startswith("75 steps of the candidate (25.0 %) carry no time")


def test_work_between_steps_varies_as_its_pieces_do():
    rows = served(3, 11, 27, number=200)
    rows += steps((3, 11, 27), 200, replayed, start_ms=5_000.0)
    made = [
        event("compile", 4_000.0 + 50 * i, dur_ns=20 * MS, kind="g", artifact=f"late/{i}")
        for i in range(10)
    ]
    found = compared(rows, [*rows, *made])
    assert found.terms.shapes == pytest.approx(0.5)
    low, high = found.terms_ci95.shapes
    assert 0.5 - low == pytest.approx(high - 0.5)
    assert 0.5 / np.sqrt(10) < high - 0.5 < 0.6


# --- short runs ----------------------------------------------------------------------------------


def short(number: int, seed: int) -> Timed:
    """Replays of sizes 1 to 32 with 2 % of jitter; each bucket's first is start-up."""
    random = np.random.default_rng(seed)
    size = random.integers(1, 33, number)
    bucket = LADDER[np.searchsorted(LADDER, size)]
    time = (2 + 0.1 * bucket) * MS * (1 + 0.02 * random.standard_normal(number))
    role = np.full(number, REPLAY)
    role[np.unique(bucket, return_index=True)[1]] = START_UP
    keys, place = np.unique(np.stack([size, bucket, role], 1), axis=0, return_inverse=True)
    sums = np.zeros((2, number, len(keys)))
    np.add.at(sums[0], (np.arange(number), place.ravel()), 1.0)
    np.add.at(sums[1], (np.arange(number), place.ravel()), time)
    none, phase = np.zeros_like(sums[0]), np.zeros(len(keys), np.int64)
    table = StepTable(
        ("decode",), phase, *keys.T, phase > 0, *sums, none, sums[0] * keys[:, 0], none, none
    )
    return Timed(table, {}, captured={"decode": tuple(map(int, LADDER))})


@pytest.mark.parametrize("number", [12, 24])
def test_intervals_of_short_runs_hold_the_truth(number):
    pairs = 40
    held = np.zeros(3)
    for seed in range(pairs):
        change = measure_change(short(number, 2 * seed), short(number, 2 * seed + 1))
        told = (change.delta, change.matched, change.terms["compile"])
        held += [one.ci95[0] <= 0 <= one.ci95[1] for one in told]
    assert (held >= 0.93 * pairs).all()


def test_which_of_the_two_is_the_base_changes_the_sign_alone():
    first, second = short(40, 1), short(40, 2)
    there, back = measure_change(first, second), measure_change(second, first)
    for name in there.terms:
        assert there.terms[name].value == pytest.approx(-back.terms[name].value, abs=1e-6)
    for one, other in ((there.delta, back.delta), (there.matched, back.matched)):
        assert one.ci95 == pytest.approx((-other.ci95[1], -other.ci95[0]), abs=1e-3)
