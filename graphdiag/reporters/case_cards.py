"""The four cases as cards: the metric each is judged by, what it costs, and on what evidence."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag import wording
from graphdiag.checks import nothing_made
from graphdiag.findings import Case, Report
from graphdiag.reporters import format as fmt
from graphdiag.reporters.html import Card

_MOST_EVIDENCE = 5
UNKNOWN = "n/a"


def case_cards(report: Report) -> Iterator[Card]:
    """Yield a card for each case, worst first."""
    for case in report.cases:
        metric = fmt.own_metric(case.case, report)
        quiet = fmt.is_quiet(case)
        lines = [_sentence(metric)] if quiet else case.evidence[:_MOST_EVIDENCE]
        more = 0 if quiet else len(case.evidence) - len(lines)
        if more:
            lines = [*lines, f"{wording.count(more, 'more line')} in --json."]
        yield Card(
            title=f"{fmt.case_number(case.case)} {case.case}: {fmt.CASE_TITLES[case.case]}",
            figures=[_metric(case, report), _cost(case, metric)],
            lines=lines or [_sentence(metric)],
            mark="verdict" if case.case == report.verdict.case else "",
            is_quiet=quiet,
        )


def _metric(case: Case, report: Report) -> tuple[str, str]:
    whole, steady = report.metrics, report.periods.get("steady")
    if case.case == "compile":
        if nothing_made(whole):
            return "none" if fmt.made_outside(report) else UNKNOWN, "compiles and captures"
        number = wording.count(whole.compile_count + whole.capture_count)
        seconds = wording.measure(whole.compile_seconds + whole.capture_seconds, "s")
        return f"{number} in {seconds}", "compiles and captures"
    judged = steady if steady and steady.eligible_steps else whole
    name, value = {
        "shapes": ("exact-bucket hit rate", judged.exact_hit_rate),
        "fallback": ("fallback rate", judged.fallback_rate),
        "padding": ("padding ratio", judged.padding_ratio),
    }[case.case]
    return wording.percent(value, UNKNOWN), name


def _cost(case: Case, metric: str) -> tuple[str, str]:
    if fmt.is_quiet(case):
        unknown = case.ms_per_step is None and fmt.is_unknown(metric)
        return (UNKNOWN, "ms a step") if unknown else ("nothing", "charged to it")
    if case.ms_per_step is None:
        if not case.share:
            return UNKNOWN, "ms a step"
        return wording.percent(case.share), f"of {fmt.TOUCHED.get(case.case, 'steps')} touched"
    if case.ci95 is None:
        return f"{wording.milliseconds(case.ms_per_step)} ms", "a step"
    low, high = (wording.milliseconds(end) for end in case.ci95)
    return f"{wording.milliseconds(case.ms_per_step)} ms", f"a step (95 % interval {low} to {high})"


def _sentence(metric: str) -> str:
    return f"{metric[:1].upper()}{metric[1:]}."
