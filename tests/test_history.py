import polars as pl
import pytest

from graphdiag import history
from tests.build import START_NS, event, step
from tests.plots import runs


@pytest.fixture(scope="module")
def summary():
    return runs.summary()


def test_step_times_hold_every_step_and_all_of_their_time(summary):
    times = history.step_times(summary)
    assert times.group_by("way", maintain_order=True).agg(pl.col("steps").sum()).rows() == [
        ("replayed", 500),
        ("eager", 100),
    ]
    eager = times.filter(way="eager")
    assert eager["mean_ms"].to_list() == pytest.approx([11.0] * len(eager))
    replayed = times.filter(way="replayed")
    spent = (replayed["mean_ms"] * replayed["steps"]).sum()
    assert spent == pytest.approx(100 * sum(4.0 + 0.1 * bucket for bucket in (8, 8, 16, 16, 32)))
    both = history.mean_times(summary)
    assert both["steps"].sum() == 600
    assert (both["mean_ms"] * both["steps"]).sum() == pytest.approx(spent + 100 * 11.0)
    first, last = history.span(summary)
    assert both["start_ns"].min() == first == START_NS
    assert both["end_ns"].max() <= last


def test_start_up_is_cold_from_its_first_row_and_warm_where_an_artifact_ran_first(summary):
    started = history.start_up(summary)
    cold = started.filter(period="cold")
    assert cold["start_ns"].to_list() == [START_NS - 3_900_000_000]
    assert cold["end_ns"].to_list() == [START_NS - 910_000_000]
    assert cold["steps"].to_list() == [0]
    assert started.filter(period="warm")["steps"].sum() == 3


def test_what_was_made_is_counted_with_its_time(summary):
    made = history.made(summary)
    told = made.group_by("what", maintain_order=True).agg(pl.col("number", "seconds").sum())
    assert told.rows() == [("capture", 4, pytest.approx(0.36)), ("compile", 2, pytest.approx(4.0))]


def test_a_load_from_the_cache_is_no_compilation():
    rows = [event("compile", -20.0, dur_ns=10, cache="hit"), *runs.service(12)]
    assert set(history.made(runs.summary(rows))["what"]) == {"capture", "compile", "load"}


def test_ranks_that_make_the_same_at_one_time_take_it_once():
    rows = [
        event("capture", 0.0, dur_ns=10**9, artifact="a", rank=rank, pid=rank) for rank in (0, 1)
    ]
    made = history.made(runs.summary([*rows, step(8, 8, 2000.0, dur_ns=10**6)]))
    assert made.select("number", "seconds").rows() == [(2, 1.0)]


def test_outcomes_over_time_are_shares_of_each_slice(summary):
    found = history.outcomes_over_time(summary)
    assert found["steps"].sum() == 600
    shares = found.group_by("start_ns").agg(pl.col("share").sum())["share"].to_list()
    assert shares == pytest.approx([1.0] * len(shares))
    assert len(shares) <= 32
    whole = history.outcomes(summary)
    assert whole.select("fate", "reason", "steps").rows() == [
        ("exact", None, 200),
        ("padded", None, 300),
        ("fallback", "over_max", 100),
    ]


def test_rare_reasons_become_one():
    reasons = ("a", "a", "a", "b", "b", "c", "c", "d", "d", "e")
    found = history.outcomes(runs.summary(runs.service(600, reasons)))
    fallback = found.filter(fate="fallback")
    assert fallback.select("reason", "rank", "steps").rows() == [
        ("a", 0, 30),
        ("b", 1, 20),
        ("c", 2, 20),
        ("d", 3, 20),
        (history.OTHER_REASONS, 4, 10),
    ]


def test_a_source_without_times_has_no_history():
    rows = runs.without(runs.service(60), "t_ns")
    summary = runs.summary(rows)
    assert history.span(summary) is None
    assert history.step_times(summary).is_empty()
    assert history.outcomes_over_time(summary).is_empty()
    assert history.outcomes(summary)["steps"].sum() == 60
