"""The seed's worked example, out of traces that know what must come out."""

import pytest

from graphdiag.buckets.setting import of_summary
from graphdiag.buckets.sizecosts import size_costs, slope_of, winner
from graphdiag.comparison.sizechange import replay_against_eager
from graphdiag.diagnosis import report_of
from graphdiag.findings import SizeCost
from tests.buckets.making import LADDER, ROW_MS, engine_rows, graphs_off_rows, summary

SIZES = [*LADDER] * 20 + [9] * 40


def costs(rows, baseline=None):
    setting = of_summary(summary(rows), "made by hand", baseline=baseline)
    found = size_costs(setting.problem(), setting.traffic.captured, setting.times)
    return {size.requested: size for size in found}, setting


def worked_example(found):
    eight, nine = found[8], found[9]
    assert (eight.bucket, eight.padded_rows) == (8, 0)
    assert eight.eager_ms == pytest.approx(5.1)
    assert eight.replay_ms == pytest.approx(4.35)
    assert eight.launch_saving_ms == eight.net_ms == pytest.approx(0.75)
    assert (nine.bucket, nine.padded_rows) == (16, 7)
    assert nine.padded_ms == pytest.approx(1.68)
    assert nine.launch_saving_ms == pytest.approx(0.75)
    assert nine.net_ms == pytest.approx(-0.93)
    assert nine.replay_ms - nine.eager_ms == pytest.approx(0.93)
    assert nine.steps == 40


def test_bucket_nine_is_really_bucket_sixteen_priced_with_steps_that_fell_back():
    found, setting = costs(engine_rows([*SIZES, *[40] * 20]))
    worked_example(found)
    assert slope_of(setting.times).ms_per_row == pytest.approx(ROW_MS)
    assert found[40].bucket is found[40].replay_ms is found[40].net_ms is None
    assert found[40].eager_ms == pytest.approx(2.43 + 0.24 * 40 + 0.75)
    assert setting.notes[-1].startswith("Eager steps were timed at 40: at other sizes replay is")


def test_and_priced_with_a_trace_that_had_its_graphs_off():
    baseline = summary(graphs_off_rows([1, 8, 9, 16, 32] * 60))
    found, setting = costs(engine_rows(SIZES), baseline)
    worked_example(found)
    assert not any("at other sizes" in note for note in setting.notes)


def test_without_an_eager_step_replay_has_a_time_and_no_net():
    found, setting = costs(engine_rows(SIZES))
    assert found[9].padded_ms == pytest.approx(1.68)
    assert found[9].eager_ms is found[9].launch_saving_ms is found[9].net_ms is None
    assert "trace of the engine with graphs off as --baseline" in setting.not_identifiable[0]


def test_without_times_there_are_rows_alone():
    found, setting = costs([{**row, "dur_ns": None} for row in engine_rows(SIZES)])
    assert (found[9].bucket, found[9].padded_rows, found[9].replay_ms) == (16, 7, None)
    assert slope_of(setting.times) is None


def test_where_rows_are_free_padding_costs_nothing():
    found, _ = costs([{**row, "dur_ns": 5_000_000} for row in engine_rows(SIZES)])
    assert found[9].padded_ms == 0


def told(*nets):
    """What is said of sizes 1, 2, 3… with these nets."""
    return winner(
        [
            SizeCost(
                requested=size,
                steps=1,
                bucket=size,
                padded_rows=0,
                replay_ms=1.0,
                eager_ms=None if net is None else 1.0 + net,
                padded_ms=0.0,
                launch_saving_ms=net,
                net_ms=net,
            )
            for size, net in enumerate(nets, 1)
        ]
    )


def test_who_wins_and_from_which_size_on():
    assert told(None, None) is None
    assert told(0.5, None, 0.1) == "Replay is faster than eager at every size that replays: 1 to 3."
    assert told(-1).startswith("Eager is faster than replay at every size that replays: 1.")
    assert told(-1, -1, 1, 1) == (
        "Replay is faster from 3 on; eager is at 1 to 2, where padding outweighs the launches that "
        "replay saves."
    )
    assert told(1, -1, 1, -1, -1) == (
        "Eager is faster from 4 on and at 2, where padding outweighs the launches that replay "
        "saves; replay is at the other sizes."
    )
    many = told(*[-1, 1] * 6)
    assert "eager is at 1, 3, 5, 7 and 2 more ranges" in many


def test_a_comparison_with_graphs_off_says_who_wins():
    replays = summary(engine_rows(SIZES))
    off = summary(graphs_off_rows(SIZES))
    reports = tuple(report_of(one, "") for one in (off, replays))
    assert reports[1].winner is None
    assert any("Whether replay is faster" in one for one in reports[1].not_identifiable)
    for pair, told in (((off, replays), reports), ((replays, off), reports[::-1])):
        found = {one.requested: one for one in replay_against_eager(pair, told)}
        worked_example(found)


def test_the_report_says_who_wins_where_steps_fell_back():
    report = report_of(summary(engine_rows([*SIZES, *[40] * 20])), "")
    found = {one.requested: one for one in report.size_costs}
    worked_example(found)
    assert report.winner.startswith("Replay is faster from ")
