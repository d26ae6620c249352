"""The four cases: how bad each is, on what evidence, and what to do about it.

Every step's excess is charged to one case. Case 1, ``compile``: capture and first compilation
inside the measured window. Case 2, ``shapes``: recompilation and capture after start-up. Case 3,
``fallback``: steps that ran eager. Case 4, ``padding``: rows that were computed for no request.
"""

from __future__ import annotations

import polars as pl

from graphdiag.evidence import Evidence, listed
from graphdiag.findings import CASES, AuditFinding, Case, CaseName, Metrics, Recommendation, Verdict
from graphdiag.periods import STEADY
from graphdiag.summary import Summary
from graphdiag.wording import count, figure, percent, size_in_bytes
from graphdiag.work import Work, work_in_window

_SIGNIFICANT: dict[CaseName, float] = {
    "compile": 0.05,
    "shapes": 0.01,
    "fallback": 0.01,
    "padding": 0.05,
}
"""Least score at which a case is a verdict: share of step time where priced, else of steps
(padding: of executed rows)."""

_UNPRICED_PADDING = 0.5

_NAMES: dict[CaseName, str] = {
    "compile": "compilation is in the measurement",
    "shapes": "shapes recompile or miss their buckets",
    "fallback": "execution falls back to eager",
    "padding": "padding",
}

REASON_ADVICE = {
    "over_max": "Capture a size that covers the largest batch, or admit smaller batches.",
    "no_key": "Capture the sizes that traffic asks for, or let smaller batches be padded up.",
    "mode_excluded": (
        "Mixed batches have no graph in this mode; use one that captures them piecewise "
        "(vLLM: FULL_AND_PIECEWISE)."
    ),
    "dp_sync": (
        "One data-parallel rank could not replay, so none did; capture for the largest rank's "
        "batch and look at that rank's own reason."
    ),
    "lora": "Capture graphs for the adapter counts in use (vLLM: cudagraph_specialize_lora).",
    "not_captured": "Hold traffic back until warm-up has captured every size.",
    "dynamic": "Move the dynamic region out of the graph: a break there, graphs around it.",
    "unknown": (
        "The source does not say why; a recorder in the engine (docs/recorder.md) gives a reason "
        "for every step."
    ),
}


def all_cases(
    evidence: Evidence,
    overall: Metrics,
    steady: Metrics,
    window_ns: int,
    audit: list[AuditFinding],
    recommendation: Recommendation | None,
) -> list[Case]:
    """Return the four cases, worst first."""
    work = work_in_window(evidence.summary)
    cases = [
        _compile(overall, work, window_ns),
        _shapes(evidence, steady, work),
        _fallback(evidence, steady, audit, recommendation),
        _padding(evidence, steady, recommendation),
    ]
    return sorted(cases, key=lambda case: -score(case, evidence.costs.mean_step_ns))


def score(case: Case, mean_step_ns: float | None) -> float:
    """Return a case's weight: its share of the mean step's time where priced, else its share.

    Without a price a padded row weighs half a fallback step's share: reading the weights, which
    rules a decode step, costs no more for an added row.
    """
    if case.ms_per_step is not None and mean_step_ns:
        return case.ms_per_step * 1e6 / mean_step_ns
    return (case.share or 0.0) * (_UNPRICED_PADDING if case.case == "padding" else 1.0)


def verdict(cases: list[Case], mean_step_ns: float | None, overall: Metrics) -> Verdict:
    """Return the worst case that matters, or a clean bill of health."""
    if not overall.eligible_steps:
        return Verdict(case=None, sentence=_nothing_to_judge(overall))
    for case in cases:
        if score(case, mean_step_ns) >= _SIGNIFICANT[case.case]:
            return Verdict(case=case.case, sentence=_sentence(case))
    return Verdict(case=None, sentence=_healthy(cases, mean_step_ns, overall))


def _compile(overall: Metrics, work: Work, window_ns: int) -> Case:
    seconds = overall.compile_seconds + overall.capture_seconds
    inside = work.in_start_up / 1e9
    evidence = [
        f"{count(overall.compile_count, 'compilation')} took {figure(overall.compile_seconds)} s, "
        f"{count(overall.capture_count, 'graph capture')} {figure(overall.capture_seconds)} s."
    ]
    if work.in_start_up:
        evidence.append(
            f"{figure(inside)} s of it fell between the first and the last step of the "
            f"{figure(window_ns / 1e9)} s measured: the measurement includes warm-up."
        )
    elif seconds:
        evidence.append("All of it came before the first step: the measurement is free of it.")
    advice = (
        [
            "Send no user traffic, and start no measurement, before warm-up has captured and "
            "compiled every size; keep the compile cache between starts.",
            "Compare the steady period (`periods.steady`) instead of the whole window.",
        ]
        if work.in_start_up
        else []
    )
    return Case(
        case="compile",
        ms_per_step=_per_step(work.in_start_up, overall.steps) if window_ns else None,
        ci95=None,
        share=work.in_start_up / window_ns if window_ns else None,
        evidence=evidence,
        advice=advice,
    )


def _shapes(evidence: Evidence, steady: Metrics, work: Work) -> Case:
    told = []
    if steady.exact_hit_rate is not None:
        told.append(
            f"{percent(steady.exact_hit_rate)} of {count(steady.eligible_steps, 'steady step')} "
            "hit a bucket of exactly their size."
        )
    advice = []
    share = work.steps_touched / steady.steps if steady.steps else None
    if work.steady_count:
        told.append(
            f"{count(work.steady_count)} compilations or captures came after start-up and took "
            f"{figure(work.in_steady / 1e9)} s."
        )
        reasons = _recompile_reasons(evidence.summary)
        told += [f"Recompiled {count(times, 'time')}: {reason}" for reason, times in reasons]
        advice = [
            "Warm up the sizes that traffic asks for, or mark the changing dimension dynamic "
            "(torch._dynamo.mark_dynamic), so that no shape compiles while a user waits.",
        ]
        share = max(share or 0.0, work.steady_count / max(1, steady.steps))
    return Case(
        case="shapes",
        ms_per_step=_per_step(work.in_steady, steady.eligible_steps or steady.steps),
        ci95=None,
        share=share,
        evidence=told,
        advice=advice,
    )


def _fallback(
    evidence: Evidence,
    steady: Metrics,
    audit: list[AuditFinding],
    recommendation: Recommendation | None,
) -> Case:
    rows = evidence.steps.filter((pl.col("outcome") == "fallback") & (pl.col("period") == STEADY))
    reasons = (
        rows.group_by(pl.col("reason").fill_null("unknown"))
        .agg(
            pl.col("weight").sum(),
            pl.col("requested").min().alias("low"),
            pl.col("requested").max().alias("high"),
        )
        .sort("weight", "reason", descending=True)
    )
    told = []
    fallen = int(rows["weight"].sum())
    if steady.fallback_rate is not None:
        told.append(
            f"{count(fallen)} of {count(steady.eligible_steps, 'steady step')} "
            f"({percent(steady.fallback_rate)}) fell back to eager."
        )
    for reason, weight, low, high in reasons.iter_rows():
        sizes = f", sizes {low} to {high}" if low is not None and high != low else ""
        sizes = f", size {low}" if low is not None and high == low else sizes
        told.append(f"Reason {reason}: {count(weight, 'step')}{sizes}.")
    never_used = any(
        finding.kind == "unused_artifacts" and finding.severity == "error" for finding in audit
    )
    advice = []
    if never_used:
        advice.append(
            "Compare the key of a capture with the key of a step (mode, uniform batch, LoRA, "
            "stream): one of them differs. Adding sizes will not help."
        )
    elif len(reasons):
        if recommendation is not None and steady.fallback_rate:
            advice.append(f"Add {listed(recommendation.add)} to the captured sizes.")
        advice += [
            REASON_ADVICE[str(reason)]
            for reason in reasons["reason"]
            if str(reason) in REASON_ADVICE
        ]
    prices = evidence.costs.prices
    if prices.fallback is not None:
        told.append(
            "Priced against replay at the same size: "
            f"{figure(prices.fallback / 1e6 / max(1, fallen - prices.unpriced_fallback))} ms a "
            "fallback step."
        )
    return Case(
        case="fallback",
        ms_per_step=_per_step(prices.fallback, steady.eligible_steps),
        ci95=_interval(evidence.costs.fallback_ci95, steady.eligible_steps),
        share=steady.fallback_rate,
        evidence=told,
        advice=advice,
    )


def _padding(evidence: Evidence, steady: Metrics, recommendation: Recommendation | None) -> Case:
    told = []
    if steady.padding_ratio is not None:
        told.append(
            f"Replayed steps computed {percent(steady.padding_ratio)} more rows than requested; "
            f"{percent(steady.waste)} of executed rows served no request."
        )
        told += _worst_gaps(evidence)
    for phase, curve in evidence.costs.curves.items():
        told.append(
            f"An added row costs {figure(curve.slope / 1e6)} ms in {phase}, measured over buckets "
            f"{curve.sizes[0]:.0f} to {curve.sizes[-1]:.0f}."
        )
    if steady.graph_bytes is not None:
        told.append(f"The graphs hold {size_in_bytes(steady.graph_bytes)} of device memory.")
    advice = []
    if steady.padding_ratio and recommendation is not None:
        advice.append(f"Add {listed(recommendation.add)} to the captured sizes.")
    return Case(
        case="padding",
        ms_per_step=_per_step(evidence.costs.prices.padding, steady.eligible_steps),
        ci95=_interval(evidence.costs.padding_ci95, steady.eligible_steps),
        share=steady.waste,
        evidence=told,
        advice=advice,
    )


def _worst_gaps(evidence: Evidence) -> list[str]:
    """Name the two requested sizes that padded most rows."""
    padded = evidence.steps.filter((pl.col("outcome") == "padded") & (pl.col("period") == STEADY))
    worst = (
        padded.group_by("requested", "bucket")
        .agg(pl.col("weight").sum())
        .with_columns(((pl.col("bucket") - pl.col("requested")) * pl.col("weight")).alias("rows"))
        .drop_nulls("rows")
        .sort("rows", "requested", descending=True)
        .head(2)
    )
    return [
        f"{count(row['weight'], 'step')} asked for {row['requested']} and replayed "
        f"{row['bucket']}: {count(row['rows'], 'padded row')}."
        for row in worst.iter_rows(named=True)
    ]


def _recompile_reasons(summary: Summary) -> list[tuple[str, int]]:
    again = summary.events.filter((pl.col("event") == "compile") & pl.col("reason").is_not_null())
    table = (
        again.group_by("reason")
        .agg(pl.col("weight").fill_null(1).sum())
        .sort("weight", "reason", descending=[True, False])
        .head(3)
    )
    return [(str(reason).splitlines()[0], count) for reason, count in table.iter_rows()]


def _healthy(cases: list[Case], mean_step_ns: float | None, overall: Metrics) -> str:
    if overall.exact_hit_rate is None:
        return (
            f"No case found: of {count(overall.eligible_steps, 'step')} that graphs should have "
            f"served, {percent(overall.fallback_rate)} fell back to eager; which sizes replayed, "
            "and so the padding, is not identifiable."
        )
    told = (
        f"Healthy: of {count(overall.eligible_steps, 'step')} that graphs should have served, "
        f"{percent(overall.exact_hit_rate)} replayed their exact size, "
        f"{percent(overall.padded_share)} a larger one and {percent(overall.fallback_rate)} fell "
        "back to eager"
    )
    padding = next(case for case in cases if case.case == "padding")
    if overall.padded_share and padding.ms_per_step is not None and mean_step_ns:
        return (
            f"{told}; padding costs {figure(padding.ms_per_step)} ms of a step of "
            f"{figure(mean_step_ns / 1e6)} ms."
        )
    return f"{told}."


def _sentence(case: Case) -> str:
    price = f" It costs {figure(case.ms_per_step)} ms a step." if case.ms_per_step else ""
    return f"Case {CASES.index(case.case) + 1}, {_NAMES[case.case]}: {_headline(case)}{price}"


def _headline(case: Case) -> str:
    at = {"compile": 1, "shapes": 1, "fallback": 0, "padding": 0}[case.case]
    return case.evidence[min(at, len(case.evidence) - 1)] if case.evidence else ""


def _nothing_to_judge(overall: Metrics) -> str:
    if overall.steps:
        return (
            f"No verdict: of {count(overall.steps, 'step')} none says whether a graph should have "
            "served it, because graphs are off or the source does not tell the bucket."
        )
    return "No verdict: the source holds no step."


def _per_step(total_ns: float | None, steps: int) -> float | None:
    return total_ns / 1e6 / steps if total_ns is not None and steps else None


def _interval(ns: tuple[float, float] | None, steps: int) -> tuple[float, float] | None:
    return (ns[0] / 1e6 / steps, ns[1] / 1e6 / steps) if ns is not None and steps else None
