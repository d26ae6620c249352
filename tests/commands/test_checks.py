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
        shown, limit = line.removeprefix("fallback rate ").split(" % of 12,034 steps is over ")
        assert shown != limit.removeprefix("the limit of ").removesuffix(" %")


def test_a_value_close_to_its_bound_gets_more_digits() -> None:
    results = hold(_with(fallback_rate=0.0100004), {"fallback_rate": 0.01}, None, None)
    assert check.broken_lines(PADDING, results) == [
        "fallback rate 1.00004 % of 12,034 steps is over the limit of 1 %"
    ]


def test_dropped_rows_are_the_whole_trace_whatever_the_scope() -> None:
    report = _with(dropped_rows=7)
    for phase, period in ((None, None), ("decode", None), (None, "steady")):
        (result,) = hold(report, {"dropped_rows": 6}, phase, period)
        assert not result.holds
        assert check.broken_lines(report, [result]) == ["dropped rows 7 is over the limit of 6"]


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
