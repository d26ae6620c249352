"""The verdict: the worst of the four cases that matters, or why there is none.

A case whose price may be noise is not named: nothing tells that it costs time.
"""

from __future__ import annotations

import polars as pl

from graphdiag.compilation import Frame, limit_sentence
from graphdiag.evidence import Evidence, score
from graphdiag.findings import CASES, Case, CaseName, Metrics, Verdict
from graphdiag.wording import count, figure, percent

_SIGNIFICANT: dict[CaseName, float] = {
    "compile": 0.05,
    "shapes": 0.01,
    "fallback": 0.01,
    "padding": 0.05,
}
"""Least score at which a case is a verdict: share of step time where priced, else of steps
(padding: of executed rows)."""

FEWEST_STEPS = 10
"""Fewest steps that graphs should have served to judge by."""

_NAMES: dict[CaseName, str] = {
    "compile": "compilation is in the measurement",
    "shapes": "shapes recompile or miss their buckets",
    "fallback": "execution falls back to eager",
    "padding": "padding",
}


def verdict(evidence: Evidence, cases: list[Case], overall: Metrics, judged: Metrics) -> Verdict:
    """Return the worst case that matters, or a clean bill of health; ``cases`` are worst first."""
    if 0 < overall.eligible_steps < FEWEST_STEPS:
        few = count(overall.eligible_steps, "step")
        return Verdict(
            case=None,
            sentence=(
                f"No verdict: {few} that graphs should have served is too little to judge by; "
                f"record at least {FEWEST_STEPS}."
            ),
        )
    # Where graphs should have served no step, compiling alone can be judged: it needs no bucket.
    compiling = not overall.eligible_steps
    if not compiling or overall.steps >= FEWEST_STEPS:
        for case in cases:
            if compiling and case.case not in ("compile", "shapes"):
                continue
            if _weighs(case, evidence.mean_step_ns) and case.case not in evidence.costs.noise:
                return Verdict(case=case.case, sentence=_sentence(case, overall, judged))
    if compiling or _runs_compiled(evidence):
        for frame in evidence.frames_at_limit:
            if frame.steps or not overall.steps:
                return _at_limit(frame, overall.steps)
    if compiling:
        return Verdict(case=None, sentence=_nothing_to_judge(evidence, overall))
    return Verdict(case=None, sentence=_healthy(cases, evidence, overall))


def _weighs(case: Case, mean_step_ns: float | None) -> bool:
    return score(case, mean_step_ns) >= _SIGNIFICANT[case.case]


def _runs_compiled(evidence: Evidence) -> bool:
    """Say whether compiled regions serve steps: at the limit they may run eager unnoticed."""
    return not evidence.steps.filter(pl.col("mode") == "compiled").is_empty()


def _at_limit(frame: Frame, steps: int) -> Verdict:
    case: CaseName = "shapes" if frame.limit.effect == "error" else "fallback"
    told = limit_sentence(frame, steps)
    return Verdict(case=case, sentence=f"{_title(case)}: {told}")


def _title(case: CaseName) -> str:
    return f"Case {CASES.index(case) + 1}, {_NAMES[case]}"


def _healthy(cases: list[Case], evidence: Evidence, overall: Metrics) -> str:
    mean_step_ns = evidence.mean_step_ns
    if overall.exact_hit_rate is None:
        return (
            f"No case found: of {count(overall.eligible_steps, 'step')} that graphs should have "
            f"served, {percent(overall.fallback_rate)} fell back to eager; which sizes replayed, "
            "and so the padding, is not identifiable."
        )
    weighing = [case.case for case in cases if _weighs(case, mean_step_ns)]
    noise = {case: ", within noise" for case in weighing if case in evidence.costs.noise}
    fallback = next(case for case in cases if case.case == "fallback")
    is_frequent = (overall.fallback_rate or 0) >= _SIGNIFICANT["fallback"]
    health = "No case costs time" if noise or is_frequent else "Healthy"
    if noise:
        health += " beyond noise"
    told = (
        f"{health}: of {count(overall.eligible_steps, 'step')} that graphs should have served, "
        f"{percent(overall.exact_hit_rate)} replayed their exact size, "
        f"{percent(overall.padded_share)} a larger one and {percent(overall.fallback_rate)} fell "
        "back to eager"
    )
    if is_frequent and fallback.ms_per_step is not None:
        told += (
            f", which is measured to cost {figure(fallback.ms_per_step)} ms a step over replay at "
            f"the same size{noise.get('fallback', '')}"
        )
    padding = next(case for case in cases if case.case == "padding")
    if overall.padded_share and padding.ms_per_step is not None and mean_step_ns:
        return (
            f"{told}; padding costs {figure(padding.ms_per_step)} ms of a step of "
            f"{figure(mean_step_ns / 1e6)} ms{noise.get('padding', '')}."
        )
    return f"{told}."


def _sentence(case: Case, overall: Metrics, judged: Metrics) -> str:
    steps = overall.steps if case.case == "compile" else judged.eligible_steps
    over = "of the window" if case.case == "compile" else "that graphs should have served"
    if not steps:
        steps, over = judged.steps, "in all"
    price = (
        f" It costs {figure(case.ms_per_step)} ms a step, over {count(steps, 'step')} {over}."
        if case.ms_per_step
        else ""
    )
    return f"{_title(case.case)}: {_headline(case, judged)}{price}"


def _headline(case: Case, judged: Metrics) -> str:
    """Return the evidence that says most: shapes begin with the hit rate where it is known."""
    hit_rate = judged.exact_hit_rate is not None
    at = {"compile": 1, "shapes": int(hit_rate), "fallback": 0, "padding": 0}[case.case]
    return case.evidence[min(at, len(case.evidence) - 1)] if case.evidence else ""


def _nothing_to_judge(evidence: Evidence, overall: Metrics) -> str:
    if overall.steps:
        return (
            f"No verdict: of {count(overall.steps, 'step')} none says whether a graph should have "
            "served it, because graphs are off or the source does not tell the bucket."
        )
    seen = []
    if overall.compile_count:
        took = figure(overall.compile_seconds)
        seen.append(f"{count(overall.compile_count, 'compilation')} ({took} s)")
    if overall.capture_count:
        took = figure(overall.capture_seconds)
        seen.append(f"{count(overall.capture_count, 'graph capture')} ({took} s)")
    if evidence.replays.outside:
        seen.append(count(evidence.replays.outside, "graph replay"))
    shows = f", only {', '.join(seen)}" if seen else ""
    return f"No verdict: the source holds no step{shows}."
