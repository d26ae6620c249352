import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.busy import MOST_SLICES, NOTHING, narrowest
from graphdiag.diagnosis import report_of
from graphdiag.summary import summarize
from tests.build import MS, event, step, trace

HOUR_MS = 3_600_000.0


def narrow(times):
    return narrowest(np.unique(np.array(times, dtype=np.int64)))


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.integers(0, 50))
def test_slices_are_as_narrow_as_can_be_in_whatever_parts_they_are_read(times, cut):
    whole = narrow(times)
    assert len(whole.slices) <= MOST_SLICES
    assert whole.slices.tolist() == sorted({time >> whole.shift for time in times})
    if whole.shift:
        assert len({time >> (whole.shift - 1) for time in times}) > MOST_SLICES
    parts = narrow(times[:cut]).merge(NOTHING).merge(narrow(times[cut:]))
    assert parts.shift == whole.shift
    assert parts.slices.tolist() == whole.slices.tolist()


def recorded(steps=600, pause_ms=0.0, stall_ms=0.0, seed=3):
    """Steps of 2 ms and 0.1 ms a row, 2 % jitter; after half of them a pause, or one long step."""
    random = np.random.default_rng(seed)
    rows, at = [event("capture", -9.0 + i, dur_ns=MS, size=8 << i) for i in range(3)], 0.0
    for number in range(steps):
        size = int(random.integers(1, 33))
        bucket = next(bucket for bucket in (8, 16, 32) if bucket >= size)
        took = (2 + 0.1 * bucket) * (1 + 0.02 * random.standard_normal())
        took += stall_ms if number == steps // 2 else 0.0
        rows.append(step(size, bucket, at, dur_ns=round(took * MS)))
        at += took + (pause_ms if number == steps // 2 else 0.0)
    return rows


@pytest.fixture(scope="module")
def busy():
    return report_of(summarize(trace(recorded())), "busy")


@pytest.mark.parametrize("pause_ms", [HOUR_MS, -HOUR_MS])
def test_an_idle_hour_or_a_clock_set_back_takes_no_interval_away(busy, pause_ms):
    summary = summarize(trace(recorded(pause_ms=pause_ms)))
    assert summary.slices["slice"].n_unique() >= 16
    told = report_of(summary, "paused").ledger
    for name in ("achievable", "padding"):
        was, now = getattr(busy.ledger, name), getattr(told, name)
        assert now.ms_per_step == pytest.approx(was.ms_per_step, rel=0.01)
        assert now.ci95[1] - now.ci95[0] == pytest.approx(was.ci95[1] - was.ci95[0], rel=0.5)


def test_a_stall_of_a_minute_hides_no_case(busy):
    report = report_of(summarize(trace(recorded(stall_ms=60_000.0))), "stalled")
    assert busy.verdict.case == report.verdict.case == "padding"
    assert report.ledger.stalled_steps == 1
    assert report.ledger.stalls.ms_per_step == pytest.approx(100.0, rel=0.001)
    costs = [
        next(case for case in one.cases if case.case == "padding").ms_per_step
        for one in (busy, report)
    ]
    assert costs[1] == pytest.approx(costs[0], rel=0.01)
    assert report.ledger.padding.ci95 is not None


def test_a_part_that_is_merged_has_the_slices_of_the_whole():
    rows = recorded(steps=200, pause_ms=HOUR_MS)
    whole = summarize(trace(rows))
    parts = [
        summarize(trace(some), periods=whole.periods)
        for some in (rows[:90], rows[90:110], rows[110:])
    ]
    for order in (parts, parts[::-1]):
        merged = order[0].merge(order[1]).merge(order[2])
        assert (merged.shift, merged.slice_shift) == (whole.shift, whole.slice_shift)
        assert merged.slices.equals(whole.slices)
