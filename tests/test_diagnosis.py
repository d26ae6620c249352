import json

import msgspec
import numpy as np
import pytest

from graphdiag.diagnosis import diagnose
from graphdiag.findings import CASES
from tests.build import MS, event, step, trace

SIZES = (1, 4, 8, 16, 32)


def run(**config):
    return event("run", config={"axis": "requests", "capture_sizes": list(SIZES), **config})


def replay(size, at_ms, *, base=5.0, slope=0.24, **columns):
    bucket = next(b for b in SIZES if b >= size)
    return step(size, bucket, at_ms, dur_ns=round((base + slope * bucket) * MS), **columns)


def healthy(steps=400, start_ms=0.0):
    return [replay(SIZES[i % 5], start_ms + 10 * i) for i in range(steps)]


def report(rows):
    found = diagnose(trace(rows))
    assert {case.case for case in found.cases} == set(CASES)
    json.loads(msgspec.json.encode(found))
    return found


def case(found, name):
    return next(c for c in found.cases if c.case == name)


def noisy(steps):
    """Steps that pad every other time, and whose times vary by far more than that costs."""
    random = np.random.default_rng(0)
    for i in range(steps):
        size, bucket = [(9, 16), (8, 8), (16, 16), (12, 16)][i % 4]
        ms = (5.0 + 0.12 * bucket) * random.lognormal(0.0, 0.6)
        yield step(size, bucket, 20 * i, dur_ns=round(ms * MS))


def test_a_price_that_may_be_noise_is_no_verdict():
    few, many = (report([run(max_num_seqs=32), *noisy(steps)]) for steps in (120, 4000))
    assert few.verdict.case is None
    assert few.verdict.sentence.startswith("No case costs time beyond noise: of 120 steps")
    assert few.verdict.sentence.endswith(" ms, within noise.")
    assert case(few, "padding").ci95[0] < 0
    assert many.verdict.case == "padding"
    assert case(many, "padding").ci95[0] > 0


def test_exact_replays_are_healthy():
    found = report([run(max_num_seqs=32), *healthy()])
    assert found.verdict.case is None
    assert found.verdict.sentence.startswith(
        "Healthy: of 400 steps that graphs should have served, 100 % replayed their exact size"
    )
    assert [f for f in found.audit if f.severity != "info"] == []
    assert found.recommendation is None
    assert found.window.seconds == pytest.approx(4.0, abs=0.02)
    assert found.metrics.step_ms_mean == pytest.approx(5 + 0.24 * sum(SIZES) / 5)


def test_padding_is_case_four_with_its_price():
    rows = [run(max_num_seqs=32), *healthy(100)]
    rows += [replay(9, 1000 + 10 * i) for i in range(300)]
    found = report(rows)
    assert found.verdict.case == "padding"
    # 300 of the 395 steady steps pad seven rows at 0.24 ms.
    assert case(found, "padding").ms_per_step == pytest.approx(300 * 1.68 / 395)
    low, high = case(found, "padding").ci95
    assert low <= case(found, "padding").ms_per_step <= high
    assert 9 in found.recommendation.add
    assert found.metrics.padding_ratio == pytest.approx(300 * 7 / (100 * 61 / 5 + 2700))


def test_fallback_is_case_three_with_its_reasons():
    rows = [run(max_num_seqs=64), *healthy(200)]
    rows += [step(48, None, 2000 + 30 * i, dur_ns=30 * MS, reason="over_max") for i in range(100)]
    found = report(rows)
    assert found.verdict.case == "fallback"
    excess = 30 - (5 + 0.24 * 48)
    assert case(found, "fallback").ms_per_step == pytest.approx(excess * 100 / 295)
    assert any("over_max: 100 steps, size 48" in line for line in case(found, "fallback").evidence)
    assert found.recommendation.add == [48]


def test_fallback_that_costs_nothing_is_no_case_and_not_called_healthy():
    rows = [run(max_num_seqs=64), *healthy(200)]
    as_long = round((5 + 0.24 * 48) * MS)
    rows += [step(48, None, 2000 + 30 * i, dur_ns=as_long, reason="over_max") for i in range(300)]
    found = report(rows)
    assert found.verdict.case is None
    assert found.verdict.sentence.startswith("No case costs time: of 500 steps")
    assert "60.0 % fell back to eager, which is measured to cost 0 ms" in found.verdict.sentence


def test_compile_inside_the_measurement_is_case_one():
    first = [replay(8, 0)]
    compiling = [
        event("compile", 50 + 3000 * i, dur_ns=2900 * MS, kind="inductor", artifact=f"r{i}")
        for i in range(3)
    ]
    between = [replay(8, 3000 * i + 2970) for i in range(3)]
    found = report([run(), *first, *compiling, *between, *healthy(500, 9100)])
    assert found.verdict.case == "compile"
    assert found.metrics.compile_count == 3
    assert found.metrics.compile_seconds == pytest.approx(8.7)
    assert found.periods["cold"].compile_seconds == pytest.approx(8.7)
    assert case(found, "compile").ms_per_step == pytest.approx(8700 / 504)
    assert case(found, "shapes").ms_per_step == 0


def test_start_up_before_the_first_step_is_no_case():
    captures = [
        event("capture", -9000 + i, dur_ns=100 * MS, size=s, artifact=f"decode/{s}")
        for i, s in enumerate(reversed(SIZES))
    ]
    compiled = event("compile", -20_000, dur_ns=8000 * MS, artifact="region")
    found = report([run(max_num_seqs=32), compiled, *captures, *healthy()])
    assert found.verdict.case is None
    assert found.metrics.compile_seconds == pytest.approx(8.0)
    assert found.metrics.capture_count == 5
    assert case(found, "compile").ms_per_step == 0
    assert any("before the first step" in line for line in case(found, "compile").evidence)


def test_recompilation_in_steady_state_is_case_two():
    again = [
        event(
            "compile",
            2000 + 200 * i,
            dur_ns=90 * MS,
            reason=f"0/{i}: tensor 'x' size mismatch at index 0. expected {i}, actual {i + 1}",
        )
        for i in range(8)
    ]
    found = report([run(), *healthy(400), *again])
    assert found.verdict.case == "shapes"
    assert case(found, "shapes").ms_per_step == pytest.approx(8 * 90 / 395)
    assert any("size mismatch" in line for line in case(found, "shapes").evidence)
    assert case(found, "compile").ms_per_step == 0


def test_captures_inside_steady_steps_are_case_two():
    late = [
        step(
            size,
            None,
            5000 + 300 * i,
            outcome="capture",
            dur_ns=250 * MS,
            compile_ns=240 * MS,
            artifact=f"decode/{size}",
        )
        for i, size in enumerate((3, 5, 6, 7, 9, 10))
    ]
    found = report([run(), *healthy(400), *late])
    assert found.verdict.case == "shapes"
    assert case(found, "shapes").ms_per_step == pytest.approx(6 * 240 / 395)
    assert any(f.kind == "never_warmed" and f.severity == "error" for f in found.audit)


def test_without_times_the_shares_decide_and_nothing_is_priced():
    rows = [run(max_num_seqs=32)]
    rows += [{**row, "dur_ns": None} for row in healthy(100)]
    rows += [step(9, 16, 1000 + i) for i in range(300)]
    found = report(rows)
    assert found.verdict.case == "padding"
    assert case(found, "padding").ms_per_step is None
    assert any("Milliseconds a step" in sentence for sentence in found.not_identifiable)


def test_aggregated_rows_count_by_weight():
    rows = [run(), step(9, 16, weight=41), step(40, None, weight=9, reason="over_max")]
    found = report(rows)
    assert found.steps == 50
    assert found.metrics.fallback_rate == pytest.approx(0.18)
    assert found.metrics.padding_ratio == pytest.approx(7 / 9)
    assert found.sizes[0].steps == 41


def test_a_padded_step_of_unknown_size_breaks_nothing():
    found = report([run(), *healthy(20), step(None, 16, 900, outcome="padded"), replay(9, 950)])
    assert any("asked for 9 and replayed 16" in line for line in case(found, "padding").evidence)


def restarted(rows, at_ms):
    later = round(at_ms * MS)
    return [{**row, "t_ns": row["t_ns"] + later, "run": "run-2"} for row in rows]


def test_a_second_start_is_judged_against_its_own_first_step():
    captures = [event("capture", -900, dur_ns=800 * MS, size=8, artifact="decode/8")]
    captures += [event("capture", -100, size=4, artifact="decode/4")]  # its time is not told
    once = [run(max_num_seqs=32), *captures, *healthy(200)]
    found = report([*once, *restarted(once, 3_600_000)])
    assert found.verdict.case is None
    assert case(found, "compile").ms_per_step == 0
    assert found.metrics.capture_seconds == pytest.approx(1.6)
    assert any("2 engine starts" in note for note in found.notes)


def test_work_without_a_time_is_not_identifiable_and_never_long():
    found = report([run(), *healthy(50), event("capture", 20, size=2), *healthy(200, 600)])
    assert case(found, "compile").ms_per_step is None
    assert found.verdict.case is None


def test_compile_in_a_sampled_source_has_a_share_but_no_cost_a_step():
    rows = [run(sampled=True, sample_every=40), replay(8, 0)]
    rows += [event("compile", 5, dur_ns=3000 * MS), *healthy(200, 3010)]
    found = report(rows)
    assert case(found, "compile").ms_per_step is None
    assert case(found, "compile").share == pytest.approx(0.6, abs=0.02)
    assert any("shows only some steps" in text for text in found.not_identifiable)


def test_replays_of_unknown_requested_size_have_no_price():
    rows = [{**row, "requested": None, "outcome": "padded"} for row in healthy(200)]
    found = report([run(), *rows])
    assert case(found, "padding").ms_per_step is None
    assert found.metrics.padding_ratio is None


def test_sizes_that_make_no_sense_give_no_rates_beyond_the_possible():
    rows = [step(-3, 16, i) for i in range(20)] + [step(9, 8, 50 + i) for i in range(20)]
    found = report([run(), *healthy(20), *rows])
    assert found.metrics.padding_ratio == 0
    assert found.metrics.waste == 0
    assert found.steps == 60
    assert found.metrics.eligible_steps == found.metrics.timed_steps == 20
    assert found.metrics.exact_hit_rate == 1
    assert any(note.startswith("40 steps had sizes that no step has") for note in found.notes)


def test_eager_that_is_faster_is_left_eager():
    rows = [run(), *healthy(200)]
    rows += [step(48, None, 3000 + 9 * i, dur_ns=8 * MS, reason="over_max") for i in range(100)]
    found = report(rows)
    assert case(found, "fallback").ms_per_step < 0
    assert case(found, "fallback").advice == [
        "Leave these sizes eager: eager was faster than replay would have been."
    ]
    assert found.recommendation is None
    assert found.verdict.case is None


def test_a_price_beyond_the_largest_bucket_says_so():
    rows = [run(), *healthy(200)]
    rows += [step(48, None, 3000 + 30 * i, dur_ns=30 * MS, reason="over_max") for i in range(50)]
    told = " ".join(case(report(rows), "fallback").evidence)
    assert "extended beyond the largest bucket timed (32)" in told


def test_a_handful_of_steps_is_too_little_to_judge_by():
    found = report([run(), *[step(9, 16, i) for i in range(5)]])
    assert found.verdict.case is None
    assert found.verdict.sentence.startswith("No verdict: 5 steps")


def test_only_captures_says_that_no_step_is_there():
    found = report([event("capture", size=8, artifact="decode/8", dur_ns=90 * MS)])
    assert found.steps == 0
    assert found.window is None
    assert found.verdict.case is None
    assert found.verdict.sentence == (
        "No verdict: the source holds no step, only 1 graph capture (0.09 s)."
    )
    assert found.metrics.exact_hit_rate is None
    assert found.metrics.capture_count == 1


def test_replays_of_unknown_bucket_are_not_guessed():
    rows = [step(32, None, i, outcome=None, mode="full", artifact=None) for i in range(10)]
    found = report(rows)
    assert found.metrics.exact_hit_rate is None
    assert found.metrics.padded_share is None
    assert found.metrics.padding_ratio is None
    assert found.metrics.fallback_rate == 0
    assert found.verdict.case is None
    assert found.verdict.sentence.startswith("No case found: of 10 steps")
    assert any("padding of 10 replayed steps" in text for text in found.not_identifiable)


def test_fallback_counts_replays_of_unknown_bucket_as_served():
    rows = [step(32, None, i, outcome=None, mode="full", artifact=None) for i in range(20)]
    found = report([*rows, *[step(33, None, 30 + i, reason="unknown") for i in range(10)]])
    assert found.metrics.fallback_rate == pytest.approx(1 / 3)
    assert found.verdict.case == "fallback"


def test_eager_steps_of_unknown_cause_give_no_verdict():
    found = report([step(32, None, i, outcome=None, mode="eager") for i in range(10)])
    assert found.verdict.sentence.startswith("No verdict: of 10 steps none")


def test_a_phase_without_graphs_is_eager_and_no_fallback():
    prefill = [
        step(500, None, 10 * i, phase="prefill", axis="tokens", outcome="eager") for i in range(50)
    ]
    found = report([run(), *healthy(100), *prefill])
    assert found.verdict.case is None
    assert found.phases["prefill"].eligible_steps == 0
    assert found.phases["prefill"].fallback_rate is None
    assert found.phases["decode"].exact_hit_rate == 1
    assert found.steps == 150


def test_synthetic_and_drafter_steps_stay_out_of_the_headline():
    rows = [run(), *healthy(100)]
    rows += [step(1, 32, kind="filler")] * 50
    rows += [step(3, 4, runner="draft")] * 70
    found = report(rows)
    assert found.steps == 100
    assert found.metrics.exact_hit_rate == 1
    assert found.runners["draft"].steps == 70
    assert found.runners["draft"].padded_share == 1


def test_dropped_rows_hooks_and_simulation_are_shown():
    rows = [
        run(simulated="arrivals at nine times their rate", notes=["the clock has no year"]),
        *healthy(10),
        event("mark", kind="dropped", weight=1234),
        event("mark", kind="hook_off", config={"hook": "dispatch"}),
    ]
    found = report(rows)
    assert found.metrics.dropped_rows == 1234
    notes = "\n".join(found.notes)
    assert found.damage == ["1,234 rows were dropped while recording and are missing here."]
    assert found.damage[0] in found.notes
    assert found.engine["simulated"].startswith("arrivals at nine times")
    assert "the clock has no year" in notes
    assert "dispatch" in notes


def test_gpu_windows_add_up():
    window = {
        "kind": "gpu_window",
        "dur_ns": 10 * MS,
        "gpu_ns": 9 * MS,
        "gap_ns": MS,
        "launches": 5,
        "kernels": 425,
        "graph_kernels": 421,
        "config": {"graph_launches": 1, "unlinked_events": 2},
    }
    found = report([run(), *healthy(10), event("mark", **window), event("mark", **window)])
    assert found.gpu.busy_ms == 18
    assert found.gpu.idle_ms == 2
    assert found.gpu.graph_launches == 2
    assert found.gpu.kernels_outside_graphs == 8
    assert found.gpu.unlinked_events == 4


def test_artifacts_join_what_was_captured_with_what_served():
    rows = [
        event("capture", size=8, artifact="decode/8", kind="cuda_graph", dur_ns=MS, pool_bytes=64),
        event("capture", size=4, artifact="decode/4", kind="cuda_graph"),
        step(8, 8),
        step(7, 8),
        step(16, 16),
    ]
    found = report(rows)
    by_name = {row.artifact: row for row in found.artifacts}
    assert by_name["decode/8"].served == 2
    assert by_name["decode/8"].capture_ms == 1
    assert by_name["decode/8"].pool_bytes == 64
    assert by_name["decode/4"].served == 0
    assert by_name["decode/4"].capture_ms is None
    assert not by_name["decode/16"].captured
    assert found.metrics.unique_artifacts == 3
