"""What a comparison cannot tell, and what its reader must know."""

from __future__ import annotations

import polars as pl

from graphdiag.comparison.answer import Objectives, SizeChange, StartUp
from graphdiag.comparison.change import Measured
from graphdiag.comparison.equaltraffic import SIDES
from graphdiag.comparison.stretches import too_few
from graphdiag.metrics import is_real, is_target
from graphdiag.runconfig import last_config
from graphdiag.summary import Summary
from graphdiag.wording import count, percent
from graphdiag_collectors.schema import DROPPED

_LEAST_APART = 0.05
"""Difference of the shares of steps without a phase or size, above which a split means nothing."""
Pair = tuple[Summary, Summary]


def apart(pair: Pair) -> list[str]:
    """Return sentences on why the steps of the two cannot be held against each other by size."""
    told = []
    axes = [_axes(summary) for summary in pair]
    for phase in sorted(axes[0].keys() & axes[1].keys()):
        if not axes[0][phase] & axes[1][phase]:
            counts = [", ".join(sorted(one[phase])) for one in axes]
            told.append(
                f"What the change is made of: the sizes of {phase} steps count {counts[0]} in the "
                f"base and {counts[1]} in the candidate; record both on one axis."
            )
    told += [
        f"What the change is made of: every step of the {name} captured or compiled, so that "
        "nothing tells what its work takes without; record it for longer."
        for name, summary in zip(SIDES, pair, strict=True)
        if _all_captured(summary)
    ]
    for column, what in (("phase", "phase"), ("requested", "size")):
        shares = [_share_without(summary, column) for summary in pair]
        if abs(shares[1] - shares[0]) > _LEAST_APART:
            told.append(
                f"What the change is made of: the {what} of {percent(shares[0])} of the base's "
                f"steps and of {percent(shares[1])} of the candidate's is not on record; record "
                "both engines."
            )
    return told


def not_identifiable(
    pair: Pair,
    change: Measured | None,
    unlike: list[str],
    starts: tuple[StartUp, StartUp],
    objectives: Objectives | None,
) -> list[str]:
    """Return sentences on what the two do not tell, and what would.

    ``unlike`` are those of :func:`apart`.
    """
    told = []
    if change is None:
        told += [_untimed(name, one) for name, one in zip(SIDES, pair, strict=True)]
    told += unlike if change is not None else []
    if change is not None and change.delta.ci95 is None:
        why = too_few(pair) or "their steps are in too few stretches of time; record longer"
        told.append(f"Whether the change is more than noise: {why}.")
    books = [] if change is None else [change.base, change.candidate]
    for name, one in zip(SIDES, books, strict=False):
        if one.unpriced_padded:
            told.append(
                f"What {count(round(one.unpriced_padded), 'padded step')} of the {name} cost: one "
                "bucket alone replayed in their phase, and nothing tells what a row costs; record "
                "traffic that reaches another bucket."
            )
        if one.unpriced_fallback:
            told.append(
                f"What {count(round(one.unpriced_fallback), 'fallback step')} of the {name} cost: "
                "nothing replayed in their phase; record a run in which graphs replay."
            )
    preempted = [_preempted(summary) for summary in pair]
    again = [int(summary.groups["recomputed"].sum()) for summary in pair]
    if change is not None and any(gone and not a for gone, a in zip(preempted, again, strict=True)):
        told.append(
            f"What memory costs: requests were preempted, {preempted[0]:.3g} per 1,000 steps in "
            f"the base and {preempted[1]:.3g} in the candidate, and the steps do not say how many "
            "tokens they compute again, so that this is in the traffic mix; record it (recomputed, "
            "docs/recorder.md), or run both with equally large KV caches."
        )
    for name, summary, start in zip(SIDES, pair, starts, strict=True):
        if start.first_step_s is None and _steps(summary):
            told.append(
                f"The time to the first step of the {name}: nothing before that step is on record; "
                "record the engine from its start (graphdiag record)."
            )
    if objectives is not None and objectives.slo_ttft_ms is not None:
        none = [
            (name, _dropped(one))
            for name, one in zip(SIDES, pair, strict=True)
            if one.requests.is_empty()
        ]
        told += [
            "Goodput within the objective for the first token: no request of the "
            f"{name} is on record, and {count(rows, 'row')} were dropped while recording, its "
            "requests perhaps among them; Recorder.status() says why rows were dropped "
            "(docs/recorder.md)."
            for name, rows in none
            if rows
        ]
        lacking = [name for name, rows in none if not rows]
        if lacking:
            told.append(
                "Goodput within the objective for the first token: no request of the "
                f"{' and of the '.join(lacking)} is on record; record them (Recorder.request, "
                "docs/recorder.md), or hold the engines' own metrics against each other (vLLM: "
                "vllm:time_to_first_token_seconds, SGLang: sglang:time_to_first_token_seconds)."
            )
    return [sentence for sentence in told if sentence]


def notes(
    pair: Pair,
    change: Measured | None,
    sizes: list[SizeChange],
    all_cold: list[bool],
    same_source: bool,
) -> list[str]:
    """Return what the reader must know; ``all_cold`` says whose timed steps are all start-up."""
    told = []
    if same_source:
        told.append("Base and candidate are the same source.")
    names = [last_config(summary.events).get("engine") for summary in pair]
    if all(names) and names[0] != names[1]:
        told.append(f"The engines differ: {names[0]} and {names[1]}.")
    if change is not None and not any(one.base_steps and one.candidate_steps for one in sizes):
        told.append(
            "No size was asked for in both: each engine's times at the other's sizes are read off "
            "its own curve, and the split between traffic and engine rests on that."
        )
    told += [
        f"The clock of the {name} was set back while recording, {count(back, 'time')}: what rests "
        "on when its steps ran (start-up, goodput, the intervals) may not hold."
        for name, summary in zip(SIDES, pair, strict=True)
        if (back := int(summary.groups["set_back"].sum()))
    ]
    told += [
        f"Every timed step of the {name} fell into start-up: there is no steady state to price by."
        for name, cold in zip(SIDES, all_cold, strict=True)
        if cold
    ]
    told += [
        f"The source of the {name} shows only some steps: its times are means over those, and "
        "compilation between them is not counted."
        for name, summary in zip(SIDES, pair, strict=True)
        if last_config(summary.events).get("sampled")
    ]
    return told


def _dropped(summary: Summary) -> int:
    """Return how many rows were dropped while recording."""
    marks = summary.events.filter((pl.col("event") == "mark") & (pl.col("kind") == DROPPED))
    return int(marks["weight"].fill_null(1).sum())


def _untimed(name: str, summary: Summary) -> str:
    steps = summary.groups.filter(is_real() & is_target())
    number = _steps(summary)
    if not number:
        return f"The change in step time: the {name} holds no step; record its engine under load."
    if not int(steps["dur_ns_weight"].sum()):
        return (
            f"The change in step time: the {count(number, 'step')} of the {name} carry no times; "
            "record its engine to get them (graphdiag record, graphdiag attach)."
        )
    return ""


def _all_captured(summary: Summary) -> bool:
    """Say whether there are timed steps, and each of them captured."""
    timed = summary.groups.filter(is_real() & is_target() & (pl.col("dur_ns_weight") > 0))
    return bool(len(timed)) and bool((timed["outcome"] == "capture").fill_null(False).all())


def _steps(summary: Summary) -> int:
    return int(summary.groups.filter(is_real() & is_target())["weight"].sum())


def _share_without(summary: Summary, column: str) -> float:
    """Return the share of the timed steps that have no ``column``."""
    steps = summary.groups.filter(is_real() & is_target())
    timed = int(steps["dur_ns_weight"].sum())
    lacking = int(steps.filter(pl.col(column).is_null())["dur_ns_weight"].sum())
    return lacking / timed if timed else 0.0


def _axes(summary: Summary) -> dict[str, set[str]]:
    """Return what the sizes of each phase count, where that is told."""
    steps = summary.groups.filter(
        is_real() & is_target() & pl.col("axis").is_not_null() & pl.col("requested").is_not_null()
    )
    found: dict[str, set[str]] = {}
    for phase, axis in steps.select(pl.col("phase").fill_null("unknown"), "axis").iter_rows():
        found.setdefault(phase, set()).add(axis)
    return found


def _preempted(summary: Summary) -> float:
    steps = summary.groups.filter(is_real() & is_target())
    number = int(steps["weight"].sum())
    return int(steps["preempted"].sum()) / number * 1000 if number else 0.0
