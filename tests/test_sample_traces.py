"""The bundled traces are small, say how they came to be, and are diagnosed as they must be."""

import pytest

from graphdiag.diagnosis import diagnose
from graphdiag.sources import open_source
from tests.conftest import ROOT

SAMPLES = ROOT / "sample_traces"
VERDICTS = {
    "healthy": None,
    "doubling_ladder": "padding",
    "fallback_trap": "fallback",
    "practice": "padding",
    "practice_eager": None,
    "cold_start": "compile",
}
RECORDED = {
    "practice_cpu_eager": None,
    "practice_cpu_graphs": "padding",
    "compile_in_measurement_cpu": "compile",
    "trap_cpu": "fallback",
}


@pytest.fixture(scope="module")
def reports():
    found = {}
    for name in (*VERDICTS, *RECORDED):
        with open_source([str(SAMPLES / f"{name}.parquet")]) as trace:
            found[name] = diagnose(trace)
    return found


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_is_right_and_the_trace_says_it_is_simulated(reports, name):
    report = reports[name]
    assert report.verdict.case == VERDICTS[name]
    assert "no device was measured" in report.engine["simulated"]
    assert (SAMPLES / f"{name}.parquet").stat().st_size < 300_000
    assert report.metrics.dropped_rows == 0


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_cpu_recorded_is_told_apart_from_what_was_simulated(reports, name):
    report = reports[name]
    assert report.verdict.case == RECORDED[name]
    assert "simulated" not in report.engine
    assert report.engine["name"] == "graphdiag experiment"
    assert report.engine["artifacts"] in ("eager", "static_compile")  # no graph of a GPU
    assert report.gpu is None
    assert (SAMPLES / f"{name}.parquet").stat().st_size < 300_000
    assert report.metrics.dropped_rows == 0
    assert b"/tmp/" not in (SAMPLES / f"{name}.parquet").read_bytes()


def test_the_recorded_practice_has_the_distribution_and_its_padding(reports):
    sizes = reports["practice_cpu_graphs"].sizes
    steps = dict.fromkeys(range(1, 33), 0)
    for one in sizes:
        if one.phase == "decode":
            steps[one.requested] += one.steps
    total = sum(steps.values())
    for first, last, percent in ((1, 1, 8), (2, 4, 17), (5, 8, 31), (9, 16, 29), (17, 32, 15)):
        assert sum(steps[n] for n in range(first, last + 1)) * 100 == percent * total
    metrics = reports["practice_cpu_graphs"].metrics
    assert metrics.padding_ratio == pytest.approx(0.282, abs=0.001)
    assert metrics.fallback_rate == 0
    assert metrics.capture_count == 5


def test_the_recorded_cold_start_names_the_steps_that_waited(reports):
    report = reports["compile_in_measurement_cpu"]
    found = next(f for f in report.audit if f.kind == "never_warmed")
    assert (found.severity, found.data["steps"]) == ("error", 5)


def test_the_recorded_trap_is_found(reports):
    trap = next(f for f in reports["trap_cpu"].audit if f.kind == "fallback_trap")
    assert trap.severity == "error"
    assert trap.data["largest_bucket"] == 8
    assert trap.data["batch_if_replayed"] <= 8 < trap.data["level"]


def test_prices_come_back_as_they_were_put_in(reports):
    padding = {c.case: c for c in reports["practice"].cases}["padding"]
    padded_rows = sum(
        (size.bucket - size.requested) * size.steps for size in reports["practice"].sizes
    )
    price = 0.24 * padded_rows / reports["practice"].metrics.eligible_steps
    assert padding.ms_per_step == pytest.approx(price, rel=0.02)
    assert padding.ci95[0] < price < padding.ci95[1]

    fallback = {c.case: c for c in reports["fallback_trap"].cases}["fallback"]
    eager = [s for s in reports["fallback_trap"].sizes if s.outcome == "fallback"]
    excess = sum(
        ((30.0 + 0.05 * s.requested) - (6.4 + 0.01 * s.requested)) * s.steps for s in eager
    )
    price = excess / reports["fallback_trap"].metrics.eligible_steps
    assert fallback.ms_per_step == pytest.approx(price, rel=0.02)


def test_the_trap_is_found_and_the_practice_adds_its_sizes(reports):
    trap = next(f for f in reports["fallback_trap"].audit if f.kind == "fallback_trap")
    assert trap.severity == "error"
    assert trap.data["largest_bucket"] == 32
    assert trap.data["batch_if_replayed"] <= 20
    assert reports["practice"].metrics.padding_ratio == pytest.approx(0.28, abs=0.01)
    assert [f for f in reports["healthy"].audit if f.severity != "info"] == []
