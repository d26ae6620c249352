import numpy as np
import polars as pl
import pytest

from graphdiag.periods import (
    COLD,
    SETTLED_STEPS,
    STEADY,
    WARM,
    Periods,
    find_periods,
    startup_end,
)
from tests.build import MS, START_NS, event, step, trace


def at(ms):
    return START_NS + round(ms * MS)


def capture(ms, took_ms=10.0, **columns):
    return event("capture", ms, dur_ns=round(took_ms * MS), **columns)


def steps(count, from_ms, size=4, **columns):
    return [step(size, size, from_ms + i, dur_ns=MS // 2, **columns) for i in range(count)]


def found(rows):
    opened = trace(rows)
    return find_periods(opened, opened.events())


def codes(rows):
    """Period of each step, in the order of the rows."""
    opened = trace(rows)
    periods = find_periods(opened, opened.events())
    return opened.steps().with_columns(code=periods.code()).collect()["code"].to_list()


# --- cold -------------------------------------------------------------------------------------


def test_cold_lasts_to_the_end_of_the_last_capture():
    periods = found([capture(0), capture(20), capture(40), *steps(200, 100)])
    assert periods.cold_end == {"run-1": at(50)}


def test_captures_while_traffic_trickles_in_are_start_up():
    rows = []
    for i in range(10):
        rows += [capture(100 * i), *steps(SETTLED_STEPS - 1, 100 * i + 10.5, size=1)]
    assert found(rows).cold_end == {"run-1": at(910)}


def test_capture_after_settled_traffic_is_no_start_up():
    rows = [capture(0), *steps(SETTLED_STEPS, 10), capture(500), *steps(9, 600)]
    assert found(rows).cold_end == {"run-1": at(10)}


def test_capture_one_step_before_traffic_has_settled_is_start_up():
    rows = [capture(0), *steps(SETTLED_STEPS - 1, 10), capture(500), *steps(9, 600)]
    assert found(rows).cold_end == {"run-1": at(510)}


def test_traffic_that_settled_before_any_capture_was_never_cold():
    assert found([*steps(SETTLED_STEPS, 0), capture(500)]).cold_end == {}


def test_run_without_captures_was_never_cold():
    assert found(steps(300, 0)).cold_end == {}


def recompiled_at(ms):
    rows = [
        event("compile", 0.0, dur_ns=10 * MS),
        event("compile", ms, dur_ns=10 * MS, reason="size changed"),
        *steps(9, 100),
    ]
    return found(rows).cold_end


def test_recompilation_under_traffic_is_no_start_up():
    assert recompiled_at(105.0) == {"run-1": at(10)}


def test_recompilation_before_the_first_step_is_start_up():
    assert recompiled_at(50.0) == {"run-1": at(60)}


def test_step_that_captured_inside_is_start_up():
    inside = step(4, None, 20.0, outcome="capture", dur_ns=30 * MS)
    assert found([capture(0), inside, *steps(9, 100)]).cold_end == {"run-1": at(50)}


def test_capture_without_a_duration_ends_when_it_begins():
    assert found([event("capture", 7.0), *steps(9, 100)]).cold_end == {"run-1": at(7)}


def test_captures_without_a_time_say_nothing():
    assert found([capture(0, t_ns=None), *steps(9, 100)]).cold_end == {}


def test_overlapping_captures_of_ranks():
    rows = [capture(0, 100, rank=0), capture(10, 20, rank=1), *steps(9, 200)]
    assert found(rows).cold_end == {"run-1": at(100)}


def test_ranks_that_step_together_count_once():
    together = [row | {"rank": rank, "pid": rank} for row in steps(50, 10) for rank in range(8)]
    assert found([capture(0), *together, capture(500), *steps(9, 600)]).cold_end == {
        "run-1": at(510)
    }


def test_drafts_and_synthetic_steps_do_not_settle_traffic():
    rows = [
        capture(0),
        *steps(SETTLED_STEPS, 10, runner="draft"),
        *steps(SETTLED_STEPS, 10, kind="warmup"),
        capture(500),
        *steps(9, 600),
    ]
    assert found(rows).cold_end == {"run-1": at(510)}


def test_runs_have_their_own_start_up():
    rows = [
        *(row | {"run": "a"} for row in [capture(0), *steps(200, 20)]),
        *(row | {"run": "b"} for row in [capture(1000), *steps(200, 1100)]),
        *(row | {"run": None} for row in [capture(5000), *steps(9, 5100)]),
    ]
    periods = found(rows)
    assert periods.cold_end == {"a": at(10), "b": at(1010), None: at(5010)}
    is_cold = trace(rows).steps().select(periods.is_cold()).collect().to_series()
    assert not is_cold.any()


def test_step_at_the_end_of_start_up_is_not_cold_and_its_last_capture_is():
    rows = [event("capture", 10.0), step(4, None, 9.0), step(4, None, 10.0), event("mark", 11.0)]
    periods = found(rows)
    frame = trace(rows).frame.select("event", cold=periods.is_cold(), up=periods.is_start_up())
    assert frame.collect().rows() == [
        ("capture", False, True),
        ("step", True, True),
        ("step", False, True),
        ("mark", False, False),
    ]


def test_startup_end_by_hand():
    ticks = np.arange(0, 10_000, 10)
    assert startup_end([], ticks) is None
    assert startup_end([(0, 5, False)], np.array([])) == 5
    assert startup_end([(0, 5, False), (900, 950, False)], ticks) == 950
    assert startup_end([(0, 5, False), (2000, 2001, False)], ticks) == 5
    nested = [(0, 5000, False), (20, 30, False), (5010, 5020, False)]
    assert startup_end(nested, ticks) == 5020


# --- warm -------------------------------------------------------------------------------------


def test_first_execution_of_each_artifact_is_warm():
    rows = [step(4, 4, 0.0), step(8, 8, 1.0), step(4, 4, 2.0), step(7, 8, 3.0), step(9, None, 4.0)]
    assert codes(rows) == [WARM, WARM, STEADY, STEADY, STEADY]


def test_first_execution_counts_from_the_end_of_start_up():
    rows = [capture(0), step(4, 4, 5.0), step(4, 4, 20.0), step(4, 4, 30.0)]
    assert codes(rows) == [COLD, WARM, STEADY]


def test_each_rank_and_runner_has_its_own_first_execution():
    rows = [
        step(4, 4, 0.0, rank=0),
        step(4, 4, 0.1, rank=1),
        step(4, 4, 0.2, runner="draft"),
        step(4, 4, 1.0, rank=0),
        step(4, 4, 1.1, rank=1),
        step(4, 4, 1.2, runner="draft"),
    ]
    assert codes(rows) == [WARM] * 3 + [STEADY] * 3


def test_artifacts_without_a_name_are_told_by_their_bucket():
    rows = [step(4, 4, 0.0, artifact=None), step(8, 8, 1.0, artifact=None)]
    assert codes([*rows, step(4, 4, 2.0, artifact=None)]) == [WARM, WARM, STEADY]


def test_synthetic_steps_warm_an_artifact_for_nobody():
    assert codes([step(4, 4, 0.0, kind="warmup"), step(4, 4, 1.0)]) == [STEADY, WARM]


def test_order_of_the_rows_does_not_matter():
    assert codes([step(4, 4, 2.0), step(4, 4, 0.0), step(4, 4, 1.0)]) == [STEADY, WARM, STEADY]


def test_a_clock_of_whole_seconds_cannot_tell_first_from_next():
    rows = [step(4, 4, 1000.0 * (i // 20)) for i in range(100)]
    assert codes(rows) == [STEADY] * 100


def test_rows_that_stand_for_many_steps_are_not_warm():
    """The tables of vLLM's log: one time each, a new bucket in every other."""
    rows = [
        step(size, size, 10_000.0 * i, weight=400)
        for i, sizes in enumerate([(1, 2, 4), (1, 2, 8), (2, 4, 16)])
        for size in sizes
    ]
    assert codes(rows) == [STEADY] * 9


def test_two_ranks_at_the_same_nanosecond_are_both_warm():
    rows = [step(4, 4, ms, rank=rank) for ms in (0.0, 1.0, 2.0) for rank in (0, 1)]
    assert codes(rows) == [WARM, WARM, STEADY, STEADY, STEADY, STEADY]


def test_steps_without_a_time_are_steady():
    assert codes([step(4, 4, t_ns=None), step(4, 4, t_ns=None)]) == [STEADY, STEADY]


def test_empty_trace():
    assert found([]) == Periods({}, ())


# --- merging ----------------------------------------------------------------------------------


def test_merge_of_the_same_periods_is_the_same():
    periods = Periods({"a": 5, None: 7}, (1, 2, 3))
    assert periods.merge(periods) == periods


def test_merge_of_different_periods():
    one, two = Periods({"a": 5, "b": 6}, (1, 4)), Periods({"a": 9}, (2, 4))
    assert one.merge(two) == two.merge(one) == Periods({"a": 9, "b": 6}, (1, 2, 4))


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_expressions_work_on_batches_too(dtype):
    rows = [step(4, 4, 0.0, run="a"), step(4, 4, 9.0, run="a"), step(4, 4, 0.0, run=None)]
    steps_ = trace(rows).steps().with_columns(pl.col("run").cast(dtype))
    cold = steps_.select(Periods({"a": at(5)}, ()).is_cold()).collect().to_series()
    assert cold.to_list() == [True, False, False]
    cold = steps_.select(Periods({None: at(5)}, ()).is_cold()).collect().to_series()
    assert cold.to_list() == [False, False, True]
