from __future__ import annotations

import math
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import NASTY, read

from graphdiag import wording
from graphdiag.findings import Case, CaseName
from graphdiag.reporters import format as fmt


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.032, "3.2 %"),
        (0.88, "88.0 %"),
        (1.5, "150.0 %"),
        (0.0004, "0.04 %"),
        (0.000001, "< 0.001 %"),
        (0.9997, "99.97 %"),
        (0.9999999, "> 99.999 %"),
        (1.0000001, "> 100 %"),
        (None, "not identifiable"),
        (math.nan, "not identifiable"),
    ],
)
def test_percent(fraction: float | None, shown: str) -> None:
    assert wording.percent(fraction) == shown


@given(st.floats(0, 10))
def test_only_exact_values_are_written_as_0_and_100_percent(fraction: float) -> None:
    shown = wording.percent(fraction)
    assert (shown == "0 %") == (fraction * 100 == 0)
    assert (shown == "100 %") == (fraction * 100 == 100)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.24, "0.24"),
        (5.1234, "5.12"),
        (0.0004, "0.0004"),
        (0.0000012345, "0.00000123"),
        (31.25, "31.2"),
        (463.977, "464"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234567.8, "1,234,568"),
        (0.0, "0"),
        (-0.5, "-0.5"),
    ],
)
def test_figure_keeps_three_digits_without_exponent(value: float, shown: str) -> None:
    assert wording.figure(value) == shown


@given(st.floats(1e-6, 1e9))
def test_figure_is_within_half_a_percent(value: float) -> None:
    shown = wording.figure(value)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1024, "1 KiB"),
        (146800640, "140 MiB"),
        (891289600, "850 MiB"),
        (2**31, "2 GiB"),
        (2**60, "1,048,576 TiB"),
        (None, "not identifiable"),
    ],
)
def test_size_in_bytes(size: int | None, shown: str) -> None:
    assert wording.size_in_bytes(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.00241, "2.41 ms"),
        (1.5, "1.5 s"),
        (0.25, "250 ms"),
        (65.2, "65.2 s"),
        (600, "10 min"),
        (9000, "2.5 h"),
        (864000, "10 days"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert wording.duration(seconds) == shown


def test_count_has_singular_and_thousands() -> None:
    assert wording.count(1, "step") == "1 step"
    assert wording.count(12034, "step") == "12,034 steps"
    assert wording.count(0, "step") == "0 steps"


def test_clean_shows_control_characters_on_one_line() -> None:
    shown = fmt.clean(NASTY)
    assert shown.startswith(r"\x1b[31mred\x1b[0m [red]x[/red] \r\nline2")
    assert r"\u202egnp\u200b" in shown
    assert r"\x9b2J" in shown


def test_clean_says_how_much_it_left_out() -> None:
    assert fmt.clean("A" * 1_000_000, 10) == "AAAAAAAAAA... (999,990 more characters)"


@given(st.text() | st.text(st.characters(categories=["Cs", "Cc", "Cf"])))
def test_clean_leaves_nothing_a_terminal_obeys(text: str) -> None:
    shown = fmt.clean(text)
    assert all(unicodedata.category(char)[0] != "C" for char in shown)
    assert len(shown.splitlines()) <= 1
    shown.encode()


def test_clean_keeps_other_languages() -> None:
    assert fmt.clean("größe 批大小 × −") == "größe 批大小 × −"


def test_name_keeps_start_and_end() -> None:
    shown = fmt.name("start" + "x" * 1000 + "end")
    assert shown.startswith("start")
    assert shown.endswith("end")
    assert len(shown) == fmt.NAME_CHARS


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("compile", "0 compiles (0 s) and 6 captures (4.2 s) in the whole trace"),
        (
            "shapes",
            "exact-bucket hit rate 36.9 % of the 12,000 steady steps that graphs should have "
            "served",
        ),
        (
            "fallback",
            "fallback rate 0.01 % of the 12,000 steady steps that graphs should have served",
        ),
        (
            "padding",
            "padding ratio 44.8 % (padded rows / requested rows), waste 30.9 % of the rows "
            "executed, over replayed steady steps",
        ),
    ],
)
def test_each_case_has_its_own_metric(case: CaseName, shown: str) -> None:
    assert fmt.own_metric(case, read("padding")) == shown


def test_without_a_steady_period_the_metric_is_over_the_whole_trace() -> None:
    shown = fmt.own_metric("fallback", read("fallback"))
    assert shown == "fallback rate 75.8 % of the 1,076 steps that graphs should have served"


def test_one_step_is_not_the_1_step() -> None:
    report = read("fallback")
    one = msgspec.structs.replace(report.metrics, eligible_steps=1, fallback_rate=1.0)
    report = msgspec.structs.replace(report, metrics=one)
    shown = fmt.own_metric("fallback", report)
    assert shown == "fallback rate 100 % of the one step that graphs should have served"


def test_nothing_on_record_is_not_zero_seconds() -> None:
    case = _case(case="compile")
    assert fmt.quiet_line(case, read("healthy")) == "compilations and captures: none on record"
    assert fmt.quiet_line(case, read("padding")).startswith("nothing charged to it; 0 compiles")


def test_nothing_made_in_a_window_is_not_nothing_on_record() -> None:
    case, report = _case(case="compile"), read("padding")
    made = {"compile_count": 0, "capture_count": 0, "compile_seconds": 0.0, "capture_seconds": 0.0}
    metrics = msgspec.structs.replace(report.metrics, **made)
    within = msgspec.structs.replace(report, metrics=metrics)
    assert any(one.captured for one in within.artifacts)
    told = "nothing charged to it; compilations and captures: none began in this window"
    assert fmt.quiet_line(case, within) == told


def test_notes_on_what_was_not_read_come_apart() -> None:
    damage = ["12 rows were dropped while recording and are missing here."]
    other = ["The zone is taken as UTC.", "No line of the log is damaged."]
    report = msgspec.structs.replace(read("padding"), notes=[*damage, *other], damage=damage)
    assert fmt.other_notes(report) == other


def test_a_cell_ends_in_an_ellipsis() -> None:
    assert fmt.clipped("A" * 20, 10) == "AAAAAAAAA…"
    assert fmt.clipped("A" * 10, 10) == "A" * 10
    engine = {"name": "n" * 62, "sizes": list(range(200))}
    report = msgspec.structs.replace(read("padding"), engine=engine)
    told = [fmt.subject(report), *(value for _, value in fmt.configuration(report))]
    assert all("…" in text and "more characters" not in text for text in told)


@pytest.mark.parametrize("case", ["shapes", "fallback", "padding"])
def test_an_unknown_metric_is_said_with_its_reason(case: CaseName) -> None:
    assert " not identifiable: no step " in fmt.own_metric(case, read("empty"))


def test_configuration_leaves_out_what_the_header_says_and_what_is_unknown() -> None:
    engine = {"name": "vllm", "version": "1", "device": None, "graphs_off": [], "sizes": [1, 2]}
    report = msgspec.structs.replace(read("padding"), engine=engine)
    assert fmt.configuration(report) == [("graphs_off", "none"), ("sizes", "1, 2")]


def _case(**values: object) -> Case:
    empty = {"ms_per_step": None, "ci95": None, "share": None, "evidence": [], "advice": []}
    return Case(**{"case": "padding", **empty, **values})  # type: ignore[arg-type]


def test_price_is_in_ms_a_step_with_its_interval_or_says_that_it_is_unknown() -> None:
    priced = _case(ms_per_step=0.24, ci95=(0.2, 0.28))
    assert fmt.price(priced) == "costs 0.24 ms/step (95 % interval 0.2 to 0.28)"
    assert fmt.price(_case(ms_per_step=0.24)) == "costs 0.24 ms/step"
    tiny = _case(ms_per_step=0.0004, ci95=(-0.0001, 0.0))
    assert fmt.price(tiny) == "costs < 0.001 ms/step (95 % interval > -0.001 to 0)"
    shared = _case(share=0.3)
    assert fmt.price(shared) == "touches 30.0 % of executed rows; ms/step not identifiable"
    assert fmt.price(_case()) == "ms/step not identifiable"


def test_a_case_is_quiet_only_with_nothing_to_mend() -> None:
    assert fmt.is_quiet(_case(share=0.0, ms_per_step=0.0))
    assert not fmt.is_quiet(_case(share=0.1))
    assert fmt.is_quiet(_case(evidence=["0 of 9 steps."]))
    assert not fmt.is_quiet(_case(advice=["x"]))
