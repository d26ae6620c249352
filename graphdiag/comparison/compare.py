"""From two traces to a comparison: the change, its terms, what they mean, what else differs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from graphdiag.buckets.sizecosts import winner
from graphdiag.charges import work_outside
from graphdiag.comparison import equaltraffic, sentences
from graphdiag.comparison.answer import Comparison, PerToken, TermIntervals, Terms
from graphdiag.comparison.change import (
    Change,
    Measured,
    Timed,
    captured_of,
    measure_change,
    modes_of,
)
from graphdiag.comparison.differences import differences
from graphdiag.comparison.equaltraffic import SIDES
from graphdiag.comparison.goodput import judge
from graphdiag.comparison.keyaudit import key_audit
from graphdiag.comparison.noise import of_work
from graphdiag.comparison.remarks import apart, not_identifiable, notes
from graphdiag.comparison.served import Served, measure_requests, measure_served, uses_graphs
from graphdiag.comparison.sizechange import replay_against_eager, size_changes
from graphdiag.comparison.startup import start_up
from graphdiag.comparison.stretches import too_few
from graphdiag.comparison.timedshare import unlike_others, untimed
from graphdiag.comparison.traffic import is_other_traffic
from graphdiag.diagnosis import report_of
from graphdiag.findings import Verdict
from graphdiag.ledger import Outside
from graphdiag.steptable import START_UP, step_table
from graphdiag.summary import Summary, summarize
from graphdiag.trace import Trace
from graphdiag.work import work_in_window

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Run:
    """One of the two: its summary, what the comparison calls it, and what it served.

    ``served`` and ``requests`` are within the objectives between tokens and for the first one, None
    without them.
    """

    summary: Summary
    source: str
    served: Served | None = None
    requests: Served | None = None


@dataclass(frozen=True)
class Slo:
    """Objectives in ms: for the interval between tokens, and for the first one."""

    itl_ms: float | None = None
    ttft_ms: float | None = None


def run_of(trace: Trace, source: str, slo: Slo | None = None) -> Run:
    """Summarise ``trace`` and measure what it served within ``slo``.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    summary = summarize(trace)
    itl, ttft = (None, None) if slo is None else (slo.itl_ms, slo.ttft_ms)
    return Run(
        summary,
        source,
        None if itl is None else measure_served(trace, summary, itl),
        None if ttft is None else measure_requests(trace, summary, ttft),
    )


def compare(base: Run, candidate: Run, slo: Slo | None = None) -> Comparison:
    """Compare two runs; what the data cannot tell is null and named."""
    pair = (base.summary, candidate.summary)
    sides = [_timed(summary) for summary in pair]
    later = [_steady(side) for side in sides]
    partly = [
        told for name, one in zip(SIDES, pair, strict=True) if (told := unlike_others(name, one))
    ]
    whole = measure_change(*sides) if all(map(_has_steps, sides)) and not partly else None
    steady = measure_change(*later) if all(map(_has_steps, later)) and not partly else None
    by_size = apart(pair)
    unlike = [*by_size, *([] if whole is None else equaltraffic.apart(whole.overlap))]
    split, steady_split = (
        None if one is None or unlike or not one.is_comparable else one for one in (whole, steady)
    )
    changed = differences(*pair)
    reports = (report_of(base.summary, base.source), report_of(candidate.summary, candidate.source))
    starts = (start_up(pair[0]), start_up(pair[1]))
    objectives = None
    if slo is not None:
        objectives = judge(
            (base.served, candidate.served),
            (base.requests, candidate.requests),
            starts,
            slo.itl_ms,
            slo.ttft_ms,
            same_traffic=not is_other_traffic(
                None if by_size else whole, [side.table for side in sides]
            ),
            graphs=uses_graphs(pair[1]),
            too_short=too_few(pair),
        )
    sizes = size_changes(*pair)
    costs = replay_against_eager(pair, reports)
    cold = [
        _has_steps(one) and not _has_steps(rest) for one, rest in zip(sides, later, strict=True)
    ]
    if partly:
        verdict = Verdict(case=None, sentence=f"No verdict on time: {', and '.join(partly)}.")
    elif whole is None:
        verdict = sentences.untimed(reports[0].metrics, reports[1].metrics)
    else:
        verdict = sentences.verdict(split, whole)
    return Comparison(
        format=1,
        base_source=base.source,
        candidate_source=candidate.source,
        delta_ms_per_step=None if whole is None else _ms(whole.delta.value),
        ci95=None if whole is None else _interval(whole.delta),
        base_ms_per_step=None if whole is None else _ms(whole.base.mean),
        candidate_ms_per_step=None if whole is None else _ms(whole.candidate.mean),
        terms=None if split is None else _terms(split),
        terms_ci95=None if split is None else _intervals(split),
        matched_ms_per_step=None if split is None else _ms(split.matched.value),
        matched_ci95=None if split is None else _interval(split.matched),
        steady_ms_per_step=None if steady is None else _ms(steady.delta.value),
        steady_ci95=None if steady is None else _interval(steady.delta),
        base_steady_ms_per_step=None if steady is None else _ms(steady.base.mean),
        candidate_steady_ms_per_step=None if steady is None else _ms(steady.candidate.mean),
        steady_matched_ms_per_step=(
            None if steady_split is None else _ms(steady_split.matched.value)
        ),
        steady_matched_ci95=None if steady_split is None else _interval(steady_split.matched),
        per_token=None if split is None else _per_token(split),
        verdict=verdict,
        waterfall=[] if split is None else sentences.waterfall(split),
        objectives=objectives,
        differences=changed,
        key_audit=key_audit(*pair, changed),
        base_start_up=starts[0],
        candidate_start_up=starts[1],
        sizes=sizes,
        not_identifiable=[
            *(f"The change in step time: {told}; record the time of all." for told in partly),
            *not_identifiable(pair, whole, unlike, starts, objectives),
            *([] if split is None else equaltraffic.left_out(split.overlap)),
            *([] if split is None or steady is None else equaltraffic.apart(steady.overlap)),
        ],
        notes=[
            *notes(pair, split, sizes, cold, base.source == candidate.source),
            *([] if split is None else equaltraffic.remarks(split.overlap)),
            *(told for name, one in zip(SIDES, pair, strict=True) if (told := untimed(name, one))),
        ],
        base=reports[0],
        candidate=reports[1],
        size_costs=costs,
        winner=winner(costs),
        matched_shares=None if split is None else split.overlap.common,
        steady_matched_shares=None if steady_split is None else steady_split.overlap.common,
    )


def _timed(summary: Summary) -> Timed:
    found = work_in_window(summary)
    work = work_outside(summary, found)
    return Timed(
        step_table(summary),
        modes_of(summary),
        work,
        captured_of(summary),
        of_work(found.later["dur_ns"].fill_null(0).cast(pl.Float64).to_numpy(), work.later),
    )


def _steady(side: Timed) -> Timed:
    return replace(side, table=side.table.without(START_UP), work=Outside(later=side.work.later))


def _has_steps(side: Timed) -> bool:
    return bool(side.table.steps.sum() > 0)


def _ms(ns: float) -> float:
    return ns / _NS_PER_MS


def _interval(change: Change) -> tuple[float, float] | None:
    return None if change.ci95 is None else (_ms(change.ci95[0]), _ms(change.ci95[1]))


def _terms(change: Measured) -> Terms:
    return Terms(**{name: _ms(term.value) for name, term in change.terms.items()})


def _intervals(change: Measured) -> TermIntervals:
    return TermIntervals(**{name: _interval(term) for name, term in change.terms.items()})


def _per_token(change: Measured) -> PerToken | None:
    if change.per_token is None:
        return None
    return PerToken(
        delta_ms=_ms(change.per_token.value),
        ci95=_interval(change.per_token),
        terms=Terms(**{name: _ms(value) for name, value in change.per_token_terms.items()}),
    )
