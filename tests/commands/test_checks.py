from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphdiag.checks import LIMITS, Unit, hold, parse_bound
from graphdiag.findings import Metrics, Report
from graphdiag.reporters import check

GOLDEN = Path(__file__).parents[1] / "reporters" / "golden"
SERVED = " % of 12,034 steps that graphs should have served is over "
PADDING = msgspec.json.decode((GOLDEN / "padding.json").read_bytes(), type=Report)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1%", "share", 0.01),
        (" 1 % ", "share", 0.01),
        ("0.7%", "share", 0.007),
        ("0.01", "share", 0.01),
        ("0", "share", 0.0),
        ("100%", "share", 1.0),
        ("150%", "ratio", 1.5),
        ("30", "s", 30.0),
        ("30s", "s", 30.0),
        ("2.5 s", "s", 2.5),
        ("0", "rows", 0.0),
        ("1e3", "rows", 1000.0),
    ],
)
def test_parse_bound(text: str, unit: Unit, value: float) -> None:
    assert parse_bound(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "share"),
        ("%", "share"),
        ("-1%", "share"),
        ("nan", "share"),
        ("inf%", "ratio"),
        ("1e999999999", "s"),
        ("1e9999999999999999999", "ratio"),
        ("1", "share"),
        ("5", "ratio"),
        ("101%", "share"),
        ("1%%", "share"),
        ("30%", "s"),
        ("1.5", "rows"),
        ("-0.5", "s"),
        ("sNaN", "rows"),
    ],
)
def test_what_is_no_bound(text: str, unit: Unit) -> None:
    with pytest.raises(ValueError, match=r"^'.*' (is|may) .*\.$"):
        parse_bound(text, unit)


@given(st.text(max_size=12), st.sampled_from(["share", "ratio", "s", "rows"]))
@example("1e-400%", "share")
def test_any_text_is_a_bound_or_one_sentence(text: str, unit: Unit) -> None:
    try:
        value = parse_bound(text, unit)
    except ValueError as error:
        sentence = str(error)
    else:
        assert 0 <= value < float("inf")
        return
    assert sentence.startswith(repr(text))


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_percent_and_fraction_are_the_same_bound(part: int, whole: int) -> None:
    """A rate computed as a ratio of counts is within the bound written as that percentage."""
    tenths = part % whole * 1000 // whole
    assert parse_bound(f"{tenths / 10}%", "share") == tenths / 1000
    assert parse_bound(f"{tenths / 1000}", "share") == tenths / 1000 or tenths == 1000


def _with(**changes: object) -> Report:
    metrics = msgspec.structs.replace(PADDING.metrics, **changes)
    return msgspec.structs.replace(PADDING, metrics=metrics)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_limit_holds_up_to_and_including_the_bound(value: float, bound: float) -> None:
    report = _with(fallback_rate=value, exact_hit_rate=value)
    most, least = hold(report, {"fallback_rate": bound, "exact_hit_rate": bound}, None, None)
    assert most.holds == (value <= bound)
    assert least.holds == (value >= bound)
    assert most.holds or least.holds


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_broken_line_never_shows_the_value_as_its_bound(value: float, bound: float) -> None:
    results = hold(_with(fallback_rate=value), {"fallback_rate": bound}, None, None)
    for line in check.broken_lines(PADDING, results):
        shown, limit = line.removeprefix("fallback rate ").split(SERVED)
        assert shown != limit.removeprefix("the limit of ").removesuffix(" %")


def test_a_value_close_to_its_bound_gets_more_digits() -> None:
    results = hold(_with(fallback_rate=0.0100004), {"fallback_rate": 0.01}, None, None)
    assert check.broken_lines(PADDING, results) == [
        "fallback rate 1.00004 % of 12,034 steps that graphs should have served is over the "
        "limit of 1 %"
    ]


def test_dropped_rows_are_the_whole_trace_whatever_the_scope() -> None:
    report = _with(dropped_rows=7)
    for phase, period in ((None, None), ("decode", None), (None, "steady")):
        (result,) = hold(report, {"dropped_rows": 6}, phase, period)
        assert not result.holds
        assert check.broken_lines(report, [result]) == [
            "dropped-row count 7 is over the limit of 6"
        ]


def test_every_limit_bounds_a_metric_of_the_report() -> None:
    assert {limit.metric for limit in LIMITS} <= set(Metrics.__struct_fields__)
    assert len({limit.option for limit in LIMITS}) == len(LIMITS)
    assert [limit.option for limit in LIMITS if limit.lowest] == ["min-exact-hit"]


def test_the_reason_why_a_metric_is_unknown() -> None:
    (result,) = hold(_with(fallback_rate=None), {"fallback_rate": 0.5}, None, None)
    known = result.metrics
    assert known is not None
    off = replace(result, metrics=msgspec.structs.replace(known, eligible_steps=0))
    (line,) = check.broken_lines(PADDING, [off])
    assert line.endswith(": graphs were to serve none of its steps")
    (line,) = check.broken_lines(PADDING, [result])
    assert line.endswith(": the source does not tell")
    (waste,) = hold(_with(waste=None), {"waste": 0.5}, None, None)
    (line,) = check.broken_lines(PADDING, [waste])
    assert line.endswith(": no step replayed a graph whose bucket is known")


def _with_unknown_phase(**changes: object) -> Report:
    """Return a report in which 34 eligible steps have no phase."""
    unknown = msgspec.structs.replace(PADDING.metrics, eligible_steps=34, **changes)
    return msgspec.structs.replace(PADDING, phases={**PADDING.phases, "unknown": unknown})


RATES = {"fallback_rate": 1.0, "padding_ratio": 9.0, "waste": 1.0, "exact_hit_rate": 0.0}


def test_steps_of_unknown_phase_may_be_of_the_phase_asked_for() -> None:
    report = _with_unknown_phase()
    results = hold(report, RATES, "decode", None)
    assert [result.gap for result in results] == ["no_phase"] * 4
    (line,) = check.broken_lines(report, results[:1])
    assert line == (
        "fallback rate is not identifiable, so the limit of 100 % cannot hold: 34 of the 12,034 "
        "steps that graphs should have served are of unknown phase in this source; hold the whole "
        "trace, without --phase"
    )
    for phase, period in ((None, None), (None, "steady")):
        assert all(result.holds for result in hold(report, RATES, phase, period))
    none = _with_unknown_phase()
    none.phases["unknown"] = msgspec.structs.replace(none.metrics, eligible_steps=0)
    assert all(result.holds for result in hold(none, RATES, "decode", None))


def test_replays_of_a_phase_are_known_where_all_without_one_fell_back() -> None:
    results = hold(_with_unknown_phase(fallback_rate=1.0), RATES, "decode", None)
    assert {result.limit.metric for result in results if result.holds} == {"padding_ratio", "waste"}


def test_a_source_that_shows_no_start_up_breaks_its_limits() -> None:
    nothing = {"compile_count": 0, "compile_seconds": 0.0, "capture_count": 0}
    bounds = {"compile_seconds": 1.0, "capture_seconds": 1.0}
    report = _with(**nothing, capture_seconds=0.0)
    for period in (None, "steady"):
        lines = check.broken_lines(report, hold(report, bounds, None, period))
        assert [line.split(": ")[1] for line in lines] == [
            "no compilation or capture is on record"
        ] * 2
    shown = _with(**nothing, capture_seconds=0.5)
    assert all(result.holds for result in hold(shown, bounds, None, None))


def test_captures_whose_time_is_not_told_are_of_no_period() -> None:
    report = _with(capture_count=9)
    (result,) = hold(report, {"capture_seconds": 99.0}, None, "steady")
    (line,) = check.broken_lines(report, [result])
    assert line.endswith(": when some captures ran is not on record")
    (result,) = hold(report, {"capture_seconds": 99.0}, None, None)
    assert result.holds


def test_an_import_does_not_tell_what_a_recording_dropped() -> None:
    report = msgspec.structs.replace(PADDING, engine={**PADDING.engine, "importer": "kineto"})
    (result,) = hold(report, {"dropped_rows": 0.0}, None, None)
    (line,) = check.broken_lines(report, [result])
    assert line == (
        "dropped-row count is not identifiable, so the limit of 0 cannot hold: an imported source "
        "does not say whether its recording lost rows"
    )


def test_without_steps_no_rate_holds() -> None:
    empty = msgspec.json.decode((GOLDEN / "empty.json").read_bytes(), type=Report)
    assert not any(result.holds for result in hold(empty, RATES, None, None))


def test_the_line_of_limits_that_hold_counts_the_steps_of_the_scope() -> None:
    report = _with_unknown_phase(fallback_rate=1.0)
    decode = hold(report, {"padding_ratio": 9.0, "waste": 1.0}, "decode", None)
    assert check.held_line(report, decode) == (
        "all 2 limits hold: padding ratio 44.7 % of the rows requested in replayed decode steps "
        "(at most 900 %), waste 30.9 % of the rows executed in replayed decode steps (at most "
        "100 %)"
    )
    steady = hold(report, {"fallback_rate": 0.01}, None, "steady")
    assert check.held_line(report, steady) == (
        "the limit holds: fallback rate 0.01 % of 12,000 steady steps that graphs should have "
        "served (at most 1 %)"
    )
