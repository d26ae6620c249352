"""How reporters write numbers and strings: the same in the terminal, Markdown and checks.

Numbers are written by :mod:`graphdiag.wording`. Strings come from logs and traces that nobody
vouches for, so every one passes through :func:`clean` before it is shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from graphdiag.checks import nothing_made
from graphdiag.findings import CASES, AuditFinding, Case, CaseName, Report
from graphdiag.wording import MISSING, count, duration, measure, milliseconds, percent

NAME_CHARS = 48
SENTENCE_CHARS = 1200

CASE_TITLES: dict[CaseName, str] = {
    "compile": "compilation time in the measurement",
    "shapes": "shapes recompiling or missing buckets",
    "fallback": "fallback to eager",
    "padding": "padding and graph memory",
}
"""What each case is about; whether it does harm is the verdict's to say."""

TOUCHED = {"padding": "executed rows", "compile": "the time measured"}

NONE_MADE = "compilations and captures: none on record"
NONE_WITHIN = "compilations and captures: none began in this window"

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int = SENTENCE_CHARS) -> str:
    r"""Return ``text`` on one line, safe for a terminal, at most about ``limit`` characters.

    Control, formatting and unassigned characters (colour codes, newlines, changes of
    writing direction) are shown as ``\x1b`` or ``\u202e`` instead of being obeyed.
    """
    cut = len(text) - limit
    shown = text[:limit] if cut > 0 else text
    if not shown.isprintable() or not shown.isascii():
        shown = "".join(map(_visible, shown))
    return f"{shown}... ({cut:,} more characters)" if cut > 0 else shown


def clipped(text: str, limit: int = NAME_CHARS) -> str:
    """Return ``text`` for a cell or a list: as :func:`clean`, its end cut off with an ellipsis."""
    return clean(text if len(text) <= limit else f"{text[: limit - 1]}…", limit)


def name(text: str) -> str:
    """Return an identifier short enough for a table cell: its start and its end."""
    if len(text) > NAME_CHARS:
        head = NAME_CHARS * 2 // 3
        text = f"{text[:head]}…{text[head + 1 - NAME_CHARS :]}"
    return clean(text, NAME_CHARS)


def instant(iso: str) -> str:
    """Return an ISO 8601 instant in UTC as ``2026-01-31 12:00:00 UTC``."""
    return f"{clean(iso, 40)[:19].replace('T', ' ')} UTC"


def numbers(values: Sequence[int]) -> str:
    """Return ``1, 2, 4``."""
    return ", ".join(map(str, values))


def case_number(case: CaseName) -> int:
    """Return 1 to 4, the number the four cases go by."""
    return CASES.index(case) + 1


def own_metric(case: CaseName, report: Report) -> str:
    """Return the metric a case is judged by, with what it is over.

    Compile and capture are over the whole trace; the rates are over the steady period, from
    which verdicts come, where the trace has one.
    """
    whole, steady = report.metrics, report.periods.get("steady")
    if case == "compile":
        if nothing_made(whole):
            return NONE_WITHIN if made_outside(report) else NONE_MADE
        return (
            f"{count(whole.compile_count, 'compile')} ({measure(whole.compile_seconds, 's')}) and "
            f"{count(whole.capture_count, 'capture')} ({measure(whole.capture_seconds, 's')}) "
            "in the whole trace"
        )
    metrics, period = (steady, "steady ") if steady and steady.eligible_steps else (whole, "")
    number = metrics.eligible_steps
    which = f"the one {period}step" if number == 1 else f"the {count(number, f'{period}step')}"
    over = f"of {which} that graphs should have served"
    if case == "padding":
        if metrics.padding_ratio is None:
            return f"padding ratio {MISSING}: no {period}step replayed a bucket that is known"
        return (
            f"padding ratio {percent(metrics.padding_ratio)} (padded rows / requested rows), waste "
            f"{percent(metrics.waste)} of the rows executed, over replayed {period}steps"
        )
    title, rate = (
        ("exact-bucket hit rate", metrics.exact_hit_rate)
        if case == "shapes"
        else ("fallback rate", metrics.fallback_rate)
    )
    if rate is None:
        if metrics.eligible_steps:
            return f"{title} {MISSING}: the bucket of some replays is unknown"
        return f"{title} {MISSING}: no step is known to be one that graphs should have served"
    return f"{title} {percent(rate)} {over}"


def price(case: Case) -> str:
    """Return what a case costs a step with its interval, or the share it touches."""
    if case.ms_per_step is not None:
        interval = ""
        if case.ci95 is not None:
            low, high = case.ci95
            interval = f" (95 % interval {milliseconds(low)} to {milliseconds(high)})"
        return f"costs {milliseconds(case.ms_per_step)} ms/step{interval}"
    what = TOUCHED.get(case.case, "steps")
    touched = "" if case.share is None else f"touches {percent(case.share)} of {what}; "
    return f"{touched}ms/step {MISSING}"


def is_quiet(case: Case) -> bool:
    """Say whether a case has nothing to mend: it costs nothing, touches nothing, has no advice."""
    return not (case.advice or case.ms_per_step or case.share)


def made_outside(report: Report) -> bool:
    """Say whether the report is of a window in which nothing was made, of a trace that has more."""
    return nothing_made(report.metrics) and any(one.captured for one in report.artifacts)


def is_unknown(metric: str) -> bool:
    """Say whether a case's metric, as :func:`own_metric` words it, tells nothing of the case."""
    return f" {MISSING}: " in metric or metric == NONE_MADE


def quiet_line(case: Case, report: Report) -> str:
    """Return the one line for a case with nothing to mend, or that cannot be judged."""
    metric = own_metric(case.case, report)
    return metric if is_unknown(metric) else f"nothing charged to it; {metric}"


def other_notes(report: Report) -> list[str]:
    """Return the notes beside the damage, which is told under the source's name."""
    return [note for note in report.notes if note not in report.damage]


def worst_first(audit: Sequence[AuditFinding]) -> list[AuditFinding]:
    """Return audit findings by severity, the order within one kept."""
    return sorted(audit, key=lambda finding: ("error", "warn", "info").index(finding.severity))


def steps(report: Report) -> str:
    """Return ``12,034 steps``, or ``sampled steps`` where the source shows only some."""
    return count(report.steps, "sampled step" if report.sampled else "step")


def subject(report: Report) -> str:
    """Return what the report is about: engine, steps and the time they cover."""
    engine = " ".join(
        clipped(str(report.engine[key])) for key in ("name", "version") if report.engine.get(key)
    )
    parts = [engine or f"engine {MISSING}", steps(report)]
    if report.window is not None:
        span = duration(report.window.seconds)
        parts.append(f"{span} from {instant(report.window.start)}")
    return ", ".join(parts)


def configuration(report: Report) -> list[tuple[str, str]]:
    """Return the engine's configuration beside its name and version, as pairs to print."""
    pairs = []
    for key, value in report.engine.items():
        if key in ("name", "version", "simulated", "notes") or value is None:
            continue
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value)) or "none"
        pairs.append((clipped(str(key)), clipped(str(value), 300)))
    return pairs


def _visible(char: str) -> str:
    if unicodedata.category(char) not in _INVISIBLE:
        return char
    code = ord(char)
    if code < 0x100:
        return {"\n": r"\n", "\r": r"\r", "\t": " "}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
