import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiag.metrics import (
    by_period,
    by_phase,
    by_runner,
    graph_bytes,
    is_target,
    measure,
    slowest_rank_seconds,
    step_quantiles,
)
from graphdiag.periods import Periods
from graphdiag.summary import summarize
from tests.build import MS, event, step, trace

ALL = pl.lit(True)
ONE_BIN = 2 ** (1 / 16)


def measured(rows, steps=ALL):
    return measure(summarize(trace(rows)), steps)


# --- rates ------------------------------------------------------------------------------------


def test_rates_are_over_the_steps_graphs_should_have_served():
    rows = [
        *[step(4, 4)] * 5,
        *[step(3, 4)] * 3,
        *[step(9, None)] * 2,
        step(4, None, outcome="eager"),
        step(4, 4, outcome="capture"),
        step(4, None, outcome=None),
    ]
    found = measured(rows)
    assert (found.steps, found.eligible_steps) == (13, 10)
    assert (found.exact_hit_rate, found.padded_share, found.fallback_rate) == (0.5, 0.3, 0.2)
    assert found.padding_ratio == pytest.approx(3 / 29)
    assert found.waste == pytest.approx(3 / 32)


def test_the_seed_case_of_88_percent():
    found = measured([step(17, 32, weight=1000)])
    assert found.padding_ratio == pytest.approx(0.882, abs=1e-3)
    assert found.waste == pytest.approx(15 / 32)


def test_ratios_are_sums_over_sums_and_no_means_of_ratios():
    found = measured([step(1, 2, weight=1), step(999, 1000, weight=99)])
    assert found.padding_ratio == pytest.approx(100 / (1 + 99 * 999))


def test_weights_count_and_weight_zero_does_not():
    found = measured([step(4, 4, weight=30), step(3, 4, weight=10), step(9, None, weight=0)])
    assert (found.steps, found.exact_hit_rate, found.fallback_rate) == (40, 0.75, 0.0)


def test_no_eligible_step_has_no_rate():
    for rows in ([], [step(4, None, outcome="eager")], [step(4, None, outcome=None)]):
        found = measured(rows)
        assert found.eligible_steps == 0
        assert found.exact_hit_rate is None
        assert found.padded_share is None
        assert found.fallback_rate is None
        assert found.padding_ratio is None
        assert found.waste is None


def test_padding_is_over_rows_whose_both_sizes_are_known():
    rows = [step(3, 4), step(None, 512, outcome="padded"), step(400, None, outcome="padded")]
    found = measured(rows)
    assert found.padding_ratio == pytest.approx(1 / 3)
    assert found.waste == pytest.approx(1 / 4)
    assert found.padded_share == 1.0


def test_synthetic_steps_are_left_out():
    rows = [step(4, 4, dur_ns=MS), step(3, 4, kind="warmup", dur_ns=9 * MS)]
    found = measured(rows)
    assert found.steps == 1
    assert found.exact_hit_rate == 1.0
    assert found.padding_ratio == 0.0
    assert found.step_ms_mean == pytest.approx(1.0)
    assert found.step_ms_p99 == pytest.approx(1.0, rel=ONE_BIN - 1)


def test_large_sums_do_not_overflow():
    big = 2**31 - 1
    found = measured([step(big - 1, big, weight=10**6) for _ in range(3)])
    assert found.padding_ratio == pytest.approx(1 / (big - 1))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40),
            st.sampled_from([None, 8, 16, 32]),
            st.sampled_from([0, 1, 1, 7]),
        ).filter(lambda row: row[1] is None or row[0] <= row[1]),
        min_size=1,
        max_size=30,
    )
)
def test_shares_add_up_to_one(rows):
    found = measured([step(size, bucket, weight=weight) for size, bucket, weight in rows])
    assert found.eligible_steps == sum(weight for _, _, weight in rows)
    if not found.eligible_steps:
        assert found.exact_hit_rate is None
        return
    assert found.exact_hit_rate + found.padded_share + found.fallback_rate == pytest.approx(1.0)
    replayed = [(size, bucket, weight) for size, bucket, weight in rows if bucket and weight]
    if replayed:
        requested = sum(size * weight for size, _, weight in replayed)
        executed = sum(bucket * weight for _, bucket, weight in replayed)
        assert found.padding_ratio == pytest.approx(executed / requested - 1)
        assert found.waste == pytest.approx(1 - requested / executed)


# --- step time --------------------------------------------------------------------------------


def test_mean_is_over_the_steps_that_have_a_time():
    found = measured([step(4, 4, dur_ns=6 * MS), step(4, 4, weight=9), step(4, 4, dur_ns=2 * MS)])
    assert found.step_ms_mean == pytest.approx(4.0)


def test_mean_of_aggregated_rows():
    found = measured([step(4, 4, dur_ns=60 * MS, weight=10), step(4, 4, dur_ns=17 * MS)])
    assert found.step_ms_mean == pytest.approx(7.0)
    assert found.step_ms_p50 == pytest.approx(6.0, rel=ONE_BIN - 1)
    assert found.step_ms_p99 == pytest.approx(17.0, rel=ONE_BIN - 1)


def test_no_times_no_quantiles():
    found = measured([step(4, 4)])
    assert found.step_ms_mean is None
    assert found.step_ms_p50 is None
    assert found.step_ms_p99 is None


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 10**11), min_size=1, max_size=200),
    st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_quantiles_are_within_a_bin_of_numpy(durations, q):
    summary = summarize(trace([step(4, 4, dur_ns=ns) for ns in durations]), Periods({}, ()))
    (found,) = step_quantiles(summary.durations, (q,))
    exact = np.quantile(durations, q, method="inverted_cdf") / 1e6
    assert exact / ONE_BIN <= found <= exact * ONE_BIN


# --- compile and capture ----------------------------------------------------------------------


def test_compilations_that_a_cache_served_are_no_compilations():
    rows = [
        event("compile", 0.0, dur_ns=10**9, cache="miss"),
        event("compile", 1.0, dur_ns=10**9, cache="hit"),
        event("compile", 2.0, dur_ns=10**9, cache="none"),
        event("compile", 3.0, dur_ns=10**9),
    ]
    found = measured(rows)
    assert found.compile_count == 3
    assert found.compile_seconds == pytest.approx(4.0)  # loading took its time, too
    assert found.capture_count == 0


def test_weights_of_captures():
    rows = [
        event("capture", 0.0, dur_ns=10**9, size=8),
        event("capture", 1.0, dur_ns=10**9, weight=5),
        event("capture", 2.0, dur_ns=14 * 10**9, weight=0),
    ]
    found = measured(rows)
    assert found.capture_count == 6
    assert found.capture_seconds == pytest.approx(16.0)


def test_ranks_capture_at_the_same_time_and_runs_one_after_the_other():
    rows = [
        event("capture", 0.0, dur_ns=2 * 10**9, rank=0, pid=1),
        event("capture", 2.0, dur_ns=2 * 10**9, rank=0, pid=1),
        event("capture", 0.0, dur_ns=3 * 10**9, rank=1, pid=2),
        event("capture", 0.0, dur_ns=5 * 10**9, rank=0, pid=9, run="run-2"),
    ]
    assert slowest_rank_seconds(trace(rows).events()) == pytest.approx(4 + 5)
    assert slowest_rank_seconds(trace([]).events()) == 0.0
    assert slowest_rank_seconds(trace([event("capture")]).events()) == 0.0


def test_artifacts_are_counted_once_each():
    rows = [
        event("capture", artifact="decode/4"),
        event("capture", artifact="decode/8"),
        event("compile", artifact="block"),
        event("mark", artifact="none of them"),
        step(4, 4),
        step(16, 16),
        step(9, None),
    ]
    assert measured(rows).unique_artifacts == 4


def test_dropped_rows_are_added_up():
    rows = [event("mark", kind="dropped", weight=7), event("mark", kind="dropped", weight=5)]
    assert measured([*rows, event("mark", kind="other", weight=100)]).dropped_rows == 12


def test_graph_bytes_of_the_rank_that_holds_most():
    rows = [
        event("capture", pool_bytes=100, rank=0),
        event("capture", pool_bytes=50, rank=0),
        event("capture", pool_bytes=120, rank=1),
    ]
    assert graph_bytes(trace(rows).events()) == 150


def test_graph_bytes_from_the_configuration_where_captures_do_not_tell():
    told = event("run", config={"graph_bytes": 2**33})
    assert graph_bytes(trace([told, event("capture")]).events()) == 2**33
    for value in (True, "much", -1, None):
        untold = event("run", config={"graph_bytes": value})
        assert graph_bytes(trace([untold]).events()) is None
    assert graph_bytes(trace([]).events()) is None


# --- by phase, runner, period -----------------------------------------------------------------


def test_phases_are_of_the_target():
    rows = [
        step(4, 4, phase="decode"),
        step(9, None, phase="prefill"),
        step(3, 4, phase=None),
        step(3, 4, phase="decode", runner="draft"),
        step(4, 4, phase="verify", runner=None),
        event("capture", phase="decode", runner="target"),
        event("capture", phase="decode", runner="draft"),
        event("capture", phase="prefill"),
    ]
    found = by_phase(summarize(trace(rows)))
    assert list(found) == ["decode", "prefill", "verify", "unknown"]
    assert found["decode"].steps == 1
    assert found["decode"].exact_hit_rate == 1.0
    assert found["decode"].capture_count == 1
    assert found["prefill"].fallback_rate == 1.0
    assert found["unknown"].padded_share == 1.0


def test_runners_are_apart():
    rows = [step(4, 4), step(4, 4, runner=None), step(3, 4, runner="draft")]
    found = by_runner(summarize(trace(rows)))
    assert list(found) == ["draft", "target"]
    assert (found["target"].steps, found["draft"].steps) == (2, 1)
    assert found["draft"].padded_share == 1.0
    assert measured(rows, is_target()).steps == 2


def test_periods_share_the_steps_and_the_compilations():
    rows = [
        event("compile", 0.0, dur_ns=10 * MS),
        event("capture", 10.0, dur_ns=10 * MS),
        step(9, None, 12.0),
        *(step(4, 4, 30.0 + i) for i in range(300)),
        event("compile", 500.0, dur_ns=10 * MS, reason="new size"),
        event("capture", t_ns=None, dur_ns=10 * MS),
    ]
    found = by_period(summarize(trace(rows)))
    assert {name: m.steps for name, m in found.items()} == {"cold": 1, "warm": 1, "steady": 299}
    assert {name: m.compile_count for name, m in found.items()} == {
        "cold": 1,
        "warm": 0,
        "steady": 1,
    }
    assert {name: m.capture_count for name, m in found.items()} == {
        "cold": 1,
        "warm": 0,
        "steady": 0,
    }
    assert found["cold"].fallback_rate == 1.0
    assert found["steady"].exact_hit_rate == 1.0
    assert found["warm"].compile_seconds == 0.0
