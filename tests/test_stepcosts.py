"""Mean host and GPU time of a step: each mean over the steps that have the figure."""

from __future__ import annotations

from msgspec.structs import replace

from graphdiag.reporters.tables import _step_costs
from graphdiag.stepcosts import step_costs
from graphdiag.summary import summarize
from tests.build import MS, step, trace
from tests.reporters.sample_reports import read


def test_each_mean_is_over_the_steps_that_have_it() -> None:
    rows = [step(8, 8, number, dur_ns=5 * MS, host_ns=2 * MS) for number in range(6)]
    rows[1]["gpu_span_ns"], rows[3]["gpu_span_ns"] = 3 * MS, 4 * MS
    rows[5] |= {"gpu_ns": MS, "gap_ns": MS // 2, "launches": 4, "kernels": 9, "replays": 1}
    rows.append(step(8, 8, 6, phase="prefill", gpu_span_ns=7 * MS))
    rows.append(step(8, 8, 7, runner="draft", gpu_span_ns=9 * MS))
    rows.append(step(8, 8, 8, phase="mixed", dur_ns=MS))
    costs = step_costs(summarize(trace(rows)))
    assert list(costs) == ["decode", "prefill"]
    decode, prefill = costs["decode"], costs["prefill"]
    assert (decode.steps, decode.host_ms, decode.gpu_span_ms) == (6, 2.0, 3.5)
    assert (decode.gpu_busy_ms, decode.gpu_gap_ms, decode.launches) == (1.0, 0.5, 4.0)
    assert (prefill.steps, prefill.gpu_span_ms, prefill.gpu_busy_ms) == (1, 7.0, None)


def test_the_span_has_a_column_where_steps_were_sampled() -> None:
    report = read("healthy")
    plain = _step_costs(report)
    assert "span" not in plain.headers
    (costs,) = report.step_costs.values()
    sampled = replace(report, step_costs={"decode": replace(costs, gpu_span_ms=1.25)})
    sheet = _step_costs(sampled)
    assert sheet.rows[0][sheet.headers.index("span")] == "1.25"
    assert "span: start to end of sampled steps" in sheet.notes[0]
