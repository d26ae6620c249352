"""The four cases: how bad each is, on what evidence, and what to do about it.

Every step's excess is charged to one case. Case 1, ``compile``: capture and first compilation
inside the measured window. Case 2, ``shapes``: recompilation and capture after start-up. Case 3,
``fallback``: steps that ran eager. Case 4, ``padding``: rows that were computed for no request.
"""

from __future__ import annotations

import polars as pl

from graphdiag.compilation import (
    Frame,
    limit_advice,
    limit_sentence,
    recompiled,
    recompiled_sentence,
)
from graphdiag.costs import RowCost
from graphdiag.evidence import Evidence, listed, score, step_count
from graphdiag.findings import AuditFinding, Case, Metrics, Recommendation
from graphdiag.wording import count, figure, percent, size_in_bytes
from graphdiag.work import Work

_MOST_FRAMES = 3
"""Most frames at the recompile limit that evidence names."""

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
    judged: Metrics,
    audit: list[AuditFinding],
    recommendation: Recommendation | None,
) -> list[Case]:
    """Return the four cases, worst first.

    ``judged`` are the metrics of the steps that verdicts come from: the steady ones, or all where
    no steady step counts.
    """
    work = evidence.work
    cases = [
        _compile(evidence, overall, work),
        _shapes(evidence, judged, work),
        _fallback(evidence, judged, audit, recommendation),
        _padding(evidence, judged, recommendation),
    ]
    return sorted(cases, key=lambda case: -score(case, evidence.mean_step_ns))


def _compile(evidence: Evidence, overall: Metrics, work: Work) -> Case:
    seconds = overall.compile_seconds + overall.capture_seconds
    told = []
    if overall.compile_count or overall.capture_count or seconds:
        told.append(
            f"{count(overall.compile_count, 'compilation')} took "
            f"{figure(overall.compile_seconds)} s, "
            f"{count(overall.capture_count, 'graph capture')} {figure(overall.capture_seconds)} s."
        )
    advice = []
    if work.in_start_up is None:
        told.append("Some of it fell among the steps, and none of that says how long it took.")
    elif work.in_start_up:
        told.append(
            f"{figure(work.in_start_up / 1e9)} s of it fell between the first and the last step of "
            f"the {figure(work.window_ns / 1e9)} s measured: the measurement includes warm-up."
        )
        advice = [
            "Send no user traffic, and start no measurement, before warm-up has captured and "
            "compiled every size; keep the compile cache between starts.",
            "Compare the steady period (periods.steady of --json) instead of the whole window.",
        ]
    elif told and work.window_ns and not work.in_steady:
        told.append("All of it came before the first step: the measurement is free of it.")
    shown = work.in_start_up is not None and work.window_ns
    return Case(
        case="compile",
        ms_per_step=_per_step(work.in_start_up, _counted(evidence, overall.steps))
        if shown
        else None,
        ci95=None,
        share=(work.in_start_up or 0.0) / work.window_ns if shown else None,
        evidence=told,
        advice=advice,
    )


def _counted(evidence: Evidence, steps: int) -> int:
    """Return ``steps``, or 0 where the source shows only some of them: no cost a step then."""
    return 0 if evidence.config.get("sampled") else steps


def _shapes(evidence: Evidence, judged: Metrics, work: Work) -> Case:
    told = []
    if judged.exact_hit_rate is not None:
        told.append(
            f"{percent(judged.exact_hit_rate)} of {count(judged.eligible_steps, 'step')} "
            "hit a bucket of exactly their size."
        )
    advice = []
    share = work.steps_touched / judged.steps if judged.steps else None
    # Without steps there is no steady state: whatever was compiled again is told.
    again = recompiled(work.later if judged.steps else evidence.summary.events)
    if work.steady_count:
        took = "" if work.in_steady is None else f", {figure(work.in_steady / 1e9)} s in all"
        told.append(f"Compilations and captures after start-up: {count(work.steady_count)}{took}.")
        share = max(share or 0.0, work.steady_count / max(1, judged.steps))
    if work.steady_count or again:
        told += map(recompiled_sentence, again)
        advice = [
            "Warm up the sizes that traffic asks for, or mark the changing dimension dynamic "
            "(torch._dynamo.mark_dynamic), so that no shape compiles while a user waits.",
        ]
    if evidence.frames_at_limit:
        raising = [one for one in evidence.frames_at_limit if one.limit.effect == "error"]
        told += _at_limit(evidence, raising)
        advice.append(limit_advice(evidence.frames_at_limit))
    return Case(
        case="shapes",
        ms_per_step=_per_step(
            work.in_steady, _counted(evidence, judged.eligible_steps or judged.steps)
        ),
        ci95=None,
        share=share,
        evidence=told,
        advice=advice,
    )


def _fallback(
    evidence: Evidence,
    judged: Metrics,
    audit: list[AuditFinding],
    recommendation: Recommendation | None,
) -> Case:
    rows = evidence.judged.filter(pl.col("outcome") == "fallback")
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
    if judged.fallback_rate is not None:
        told.append(
            f"{count(fallen)} of {count(judged.eligible_steps, 'step')} "
            f"({percent(judged.fallback_rate)}) fell back to eager."
        )
    for reason, weight, low, high in reasons.iter_rows():
        sizes = f", sizes {low} to {high}" if low is not None and high != low else ""
        sizes = f", size {low}" if low is not None and high == low else sizes
        told.append(f"Reason {reason}: {count(weight, 'step')}{sizes}.")
    eager = [frame for frame in evidence.frames_at_limit if frame.limit.effect == "eager"]
    told += _at_limit(evidence, eager)
    prices = evidence.costs.prices
    never_used = any(
        finding.kind == "unused_artifacts" and finding.severity == "error" for finding in audit
    )
    advice = []
    if never_used:
        advice.append(
            "Compare the key of a capture with the key of a step (mode, uniform batch, LoRA, "
            "stream): one of them differs. Adding sizes will not help."
        )
    elif prices.fallback is not None and prices.fallback < 0:
        advice.append("Leave these sizes eager: eager was faster than replay would have been.")
    elif len(reasons):
        if recommendation is not None and judged.fallback_rate:
            advice.append(f"Add {listed(recommendation.add)} to the captured sizes.")
        advice += [
            REASON_ADVICE[str(reason)]
            for reason in reasons["reason"]
            if str(reason) in REASON_ADVICE
        ]
    if eager:
        advice.append(limit_advice(eager))
    if prices.fallback is not None:
        beyond = _beyond_replayed(evidence, rows)
        told.append(
            f"Priced against replay at the same size{beyond}: "
            f"{figure(prices.fallback / 1e6 / max(1, fallen - prices.unpriced_fallback))} ms a "
            "fallback step."
        )
    return Case(
        case="fallback",
        ms_per_step=_per_step(prices.fallback, judged.eligible_steps),
        ci95=_interval(evidence.costs.fallback_ci95, judged.eligible_steps),
        share=judged.fallback_rate,
        evidence=told,
        advice=advice,
    )


def _at_limit(evidence: Evidence, frames: list[Frame]) -> list[str]:
    """Return sentences on frames at torch's recompile limit, those with most steps at it first."""
    steps = step_count(evidence.steps)
    told = [limit_sentence(frame, steps) for frame in frames[:_MOST_FRAMES]]
    if len(frames) > len(told):
        more = count(len(frames) - len(told), "more frame")
        told.append(f"The same is true of {more}; the audit names them.")
    return told


def _beyond_replayed(evidence: Evidence, fallbacks: pl.DataFrame) -> str:
    """Say where the price of a fallback is extended beyond the largest bucket that was timed."""
    largest = max((curve.sizes[-1] for curve in evidence.costs.curves.values()), default=0.0)
    highest = fallbacks["requested"].max()
    if not isinstance(highest, int) or highest <= largest:
        return ""
    return f", extended beyond the largest bucket timed ({largest:.0f}) by the cost of a row"


def _padding(evidence: Evidence, judged: Metrics, recommendation: Recommendation | None) -> Case:
    told = []
    if judged.padding_ratio is not None:
        told.append(
            f"Replayed steps computed {percent(judged.padding_ratio)} more rows than requested; "
            f"{percent(judged.waste)} of executed rows served no request."
        )
        told += _worst_gaps(evidence)
    for phase, row in evidence.costs.rows.items():
        sizes = evidence.costs.curves[phase].sizes
        told.append(
            f"An added row costs {_row_cost(row)} in {phase}, measured over buckets "
            f"{sizes[0]:.0f} to {sizes[-1]:.0f}."
        )
    if judged.graph_bytes is not None:
        told.append(f"The graphs hold {size_in_bytes(judged.graph_bytes)} of device memory.")
    advice = []
    below = _below_largest(evidence, recommendation)
    if judged.padding_ratio and below:
        advice.append(f"Add {listed(below)} to the captured sizes.")
    return Case(
        case="padding",
        ms_per_step=_per_step(evidence.costs.prices.padding, judged.eligible_steps),
        ci95=_interval(evidence.costs.padding_ci95, judged.eligible_steps),
        share=judged.waste,
        evidence=told,
        advice=advice,
    )


def _row_cost(row: RowCost) -> str:
    cost = f"{figure(row.ns / 1e6)} ms"
    if row.ci95 is None:
        return cost
    low, high = (figure(round(end / 1e6, 9)) for end in row.ci95)
    return f"{cost} (95 %: {low} to {high})"


def _below_largest(evidence: Evidence, recommendation: Recommendation | None) -> list[int]:
    """Return the recommended sizes that can take padding away: those below the largest bucket."""
    if recommendation is None or not evidence.captured:
        return []
    return [size for size in recommendation.add if size < evidence.captured[-1]]


def _worst_gaps(evidence: Evidence) -> list[str]:
    """Name the two requested sizes that padded most rows."""
    padded = evidence.judged.filter(pl.col("outcome") == "padded")
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


def _per_step(total_ns: float | None, steps: int) -> float | None:
    return total_ns / 1e6 / steps if total_ns is not None and steps else None


def _interval(ns: tuple[float, float] | None, steps: int) -> tuple[float, float] | None:
    return (ns[0] / 1e6 / steps, ns[1] / 1e6 / steps) if ns is not None and steps else None
