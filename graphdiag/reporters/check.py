"""What ``graphdiag check`` prints: one line a broken limit, or one line when all hold."""

from __future__ import annotations

from collections.abc import Sequence

from graphdiag import wording
from graphdiag.checks import Limit, Result
from graphdiag.comparison.regression import Slowdown
from graphdiag.findings import Report
from graphdiag.reporters import format as fmt

_NEARLY_ALL = 0.9999
"""Share of the steps from which on nothing is said of the others."""


def broken_lines(
    report: Report, results: Sequence[Result], slowdowns: Sequence[Slowdown] = ()
) -> list[str]:
    """Return one sentence for each limit that does not hold."""
    return [
        *(_broken(report, result) for result in results if not result.holds),
        *(_too_slow(slowdown) for slowdown in slowdowns if not slowdown.holds),
    ]


def held_line(report: Report, results: Sequence[Result], slowdowns: Sequence[Slowdown] = ()) -> str:
    """Return one sentence that names every limit, all of which hold."""
    parts = [
        f"{result.limit.title} {_value(result)}{_over(report, result)} "
        f"({'at least' if result.limit.lowest else 'at most'} {_bound(result)})"
        for result in results
    ]
    parts += map(_no_slower, slowdowns)
    which = "the limit holds" if len(parts) == 1 else f"all {len(parts)} limits hold"
    return f"{which}: {', '.join(parts)}"


def _broken(report: Report, result: Result) -> str:
    limit = result.limit
    bound = _bound(result)
    if result.value is None:
        return (
            f"{limit.title} is {wording.MISSING}, so the limit of {bound} cannot hold: "
            f"{_why_unknown(report, result)}"
        )
    side = "under" if limit.lowest else "over"
    return f"{limit.title} {_value(result)}{_over(report, result)} is {side} the limit of {bound}"


def _too_slow(slowdown: Slowdown) -> str:
    if not slowdown.is_judged:
        why = fmt.clean(slowdown.why or "").rstrip(".")
        return (
            f"slowdown against the baseline is {wording.MISSING}, so the limit of "
            f"{_most(slowdown)} cannot hold: {why}"
        )
    return f"a step is {_slower(slowdown)}, which is over the limit of {_most(slowdown)}"


def _no_slower(slowdown: Slowdown) -> str:
    noise = ", within noise" if slowdown.is_over else ""
    return f"a step {_slower(slowdown)}{noise} (at most {_most(slowdown)})"


def _slower(slowdown: Slowdown) -> str:
    change, base = slowdown.change or 0.0, slowdown.base or 0.0
    share = f", {wording.figure(abs(change) / base * 100)} %" if base else ""
    interval = ""
    if slowdown.ci95 is not None:
        ends = (round(end, 6) + 0.0 for end in slowdown.ci95)
        low, high = sorted(end if change >= 0 else -end + 0.0 for end in ends)
        interval = f" (95 %: {wording.figure(low)} to {wording.figure(high)}{share})"
    elif share:
        interval = f" ({share.removeprefix(', ')})"
    word = "slower" if change >= 0 else "faster"
    steady = " and without start-up" if slowdown.steady else ""
    return (
        f"{wording.figure(abs(change))} ms{interval} {word} than the baseline's on equal "
        f"traffic{_of(slowdown)}{steady}"
    )


def _of(slowdown: Slowdown) -> str:
    """Return how much of the two is on equal traffic, where some is not."""
    if min(slowdown.shares) > _NEARLY_ALL:
        return ""
    base, candidate = (wording.percent(min(share, 1.0)) for share in slowdown.shares)
    return f" ({base} of its steps and {candidate} of the candidate's)"


def _most(slowdown: Slowdown) -> str:
    bound = slowdown.bound
    return f"{bound.value:g} ms" if bound.is_ms else f"{bound.value * 100:g} %"


def _value(result: Result) -> str:
    """Return the value, with enough digits to differ from a bound that it breaks."""
    value = result.value or 0.0
    if result.limit.unit == "rows":
        return wording.count(int(value))
    scale, unit = _scale(result.limit)
    text = wording.points(value) if unit == "%" else wording.figure(value)
    if not result.holds and text.removesuffix(".0") == f"{result.bound * scale:g}":
        text = f"{value * scale:.12g}"
    return f"{text} {unit}"


def _bound(result: Result) -> str:
    if result.limit.unit == "rows":
        return wording.count(int(result.bound))
    scale, unit = _scale(result.limit)
    return f"{result.bound * scale:g} {unit}"


def _scale(limit: Limit) -> tuple[int, str]:
    return (1, "s") if limit.unit == "s" else (100, "%")


def _over(report: Report, result: Result) -> str:
    """Return what the value is over: the steps or rows, and whose."""
    metrics, metric = result.metrics, result.limit.metric
    if metrics is None or metric == "dropped_rows":
        return ""
    scope = f"{result.scope} " if result.scope else ""
    sampled = "sampled " if report.sampled else ""
    if metric in ("fallback_rate", "exact_hit_rate"):
        steps = wording.count(metrics.eligible_steps, f"{sampled}{scope}step")
        return f" of {steps} that graphs should have served"
    if metric in ("padding_ratio", "waste"):
        rows = "requested" if metric == "padding_ratio" else "executed"
        return f" of the rows {rows} in {sampled}replayed {scope}steps"
    noun = "compile" if metric == "compile_seconds" else "capture"
    number = metrics.compile_count if noun == "compile" else metrics.capture_count
    return f" in {wording.count(number, f'{scope}{noun}')}"


def _why_unknown(report: Report, result: Result) -> str:
    if result.gap is not None:
        return _gap(report, result)
    if result.scope and (result.metrics is None or not result.metrics.steps):
        kind = "periods" if result.scope in report.periods else "phases"
        scopes = report.periods if kind == "periods" else report.phases
        known = [fmt.name(name) for name, metrics in scopes.items() if metrics.steps]
        told = ", ".join(known) or "none"
        return f"the trace has no {result.scope} steps ({kind} with steps: {told})"
    if not (result.metrics and result.metrics.steps):
        return "the trace has no steps"
    if not result.metrics.eligible_steps:
        return "graphs were to serve none of its steps"
    if result.limit.metric in ("padding_ratio", "waste"):
        return "no step replayed a graph whose bucket is known"
    return "the source does not tell"


def _gap(report: Report, result: Result) -> str:
    """Return why the source cannot tell, though it has a figure."""
    if result.gap == "dropped":
        return "an imported source does not say whether its recording lost rows"
    if result.gap == "no_work":
        return "no compilation or capture is on record"
    if result.gap == "undated":
        noun = "compilations" if result.limit.metric == "compile_seconds" else "captures"
        return f"when some {noun} ran is not on record"
    unknown = report.phases["unknown"].eligible_steps
    of = wording.count(report.metrics.eligible_steps, "step")
    return (
        f"{unknown:,} of the {of} that graphs should have served are of unknown phase in this "
        "source; hold the whole trace, without --phase"
    )
