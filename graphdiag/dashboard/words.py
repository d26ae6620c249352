"""The page's words: what was found, as HTML in which everything from a trace is text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment

from graphdiag import wording
from graphdiag.buckets.answer import Plan
from graphdiag.buckets.whatif import Priced
from graphdiag.dashboard.state import Found
from graphdiag.findings import Metrics
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import ENGINE_NAMES, advice
from graphdiag.reporters.advice import sizes as recommended
from graphdiag.reporters.case_cards import case_cards
from graphdiag.reporters.html.templating import MOST_PASTED, environment_of
from graphdiag.reporters.report_html import about
from graphdiag.timerange import iso

MOST_LINES = 30
"""Lines of a list that are shown; the rest is in ``graphdiag report``."""


def style() -> str:
    """Return the stylesheet of everything inside the page."""
    return asset("dashboard.css")


@cache
def asset(name: str) -> str:
    """Return the text of a file beside this module."""
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


def verdict(found: Found) -> str:
    """Return the verdict and the four cases as cards."""
    report = found.report
    return _render("verdict.html", report=report, cards=list(case_cards(report)))


def advised(found: Found) -> str:
    """Return what to do, with the flag to copy, the audit, and what is not known."""
    report = found.report
    told, sizes = advice(report), recommended(report)
    lines = [f"{cases}: {sentence}" for cases, sentence in told]
    flags: list[tuple[str, str]] = []
    if sizes is not None:
        lines.append(f"sizes: {sizes.sentence}")
        flags = [(f"Paste for {name}", flag) for name, flag in sizes.pasted]
        if sizes.listed:
            flags.append(("Sizes to capture", sizes.listed))
    return _render(
        "advice.html",
        lines=lines[:MOST_LINES],
        flags=flags,
        audit=report.audit[:MOST_LINES],
        unknown=report.not_identifiable[:MOST_LINES],
        notes=[*report.damage, *fmt.other_notes(report)][:MOST_LINES],
    )


def status(
    name: str, found: Found | None, error: str | None, *, grows: bool, computing: bool = False
) -> str:
    """Return what trace it is, how much of it was read, and whether it is looked at again.

    ``computing`` says that the findings on the page are of what was selected before.
    """
    steps = None if found is None else wording.count(found.steps, "step")
    return _render(
        "status.html", name=name, steps=steps, error=error, grows=grows, computing=computing
    )


def refused(why: str) -> str:
    """Return why what was typed is no window, nothing where it is one."""
    return _render("refused.html", why=why)


def window(found: Found) -> str:
    """Return what the figures are of: the source, the stretch of it, and how ends are chosen."""
    chosen = found.chosen.window
    width = wording.duration(found.cell_ns / 1e9)
    told = None
    if chosen is not None:
        ends = (chosen.start_ns, chosen.end_ns)  # a border may lie before the first event
        start, end = (max(0, ns - found.first_ns) / 1e9 for ns in ends)
        told = {
            "start": f"{start:,.3f}",
            "end": f"{end:,.3f}",
            "empty": not found.report.steps,
            "flag": f"--window {iso(chosen.start_ns)}..{iso(chosen.end_ns)}",
        }
    return _render("window.html", about=about(found.report), told=told, width=width)


def edited(now: Priced | None, then: Priced, notes: Sequence[str]) -> str:
    """Return what a list of sizes gives beside the current one, its flag, and what is assumed."""
    before = None if now is None else now.plan
    told = [_told(plan) for plan in (before, then.plan)]
    rows = [(name, told[0][name], told[1][name]) for name in told[1]]
    flags = [(f"Paste for {ENGINE_NAMES[name]}", flag) for name, flag in then.flags.items()]
    return _render(
        "edited.html",
        rows=rows,
        flags=flags,
        remarks=then.remarks[:MOST_LINES],
        has_now=now is not None,
        notes=notes[:MOST_LINES],
    )


def _told(plan: Plan | None) -> dict[str, str]:
    """Return the figures of a plan in words, empty ones where there is none."""
    names = ("graphs", "padding", "fallback", "mean step", "memory", "warm-up")
    if plan is None:
        return dict.fromkeys(names, "")
    figures = (
        wording.count(plan.graphs),
        wording.percent(plan.padding_ratio),
        wording.percent(plan.fallback_rate),
        wording.measure(plan.cost_ms_per_step, "ms"),
        wording.measure(plan.memory_mib, "MiB"),
        wording.measure(plan.warmup_s, "s"),
    )
    return dict(zip(names, figures, strict=True))


def tiles(metrics: Metrics) -> str:
    """Return the numbers on top."""
    told = [
        ("steps", wording.count(metrics.steps), "steps"),
        ("exact", wording.percent(metrics.exact_hit_rate, "n/a"), "exact-bucket hit rate"),
        ("fallback", wording.percent(metrics.fallback_rate, "n/a"), "fallback rate"),
        ("padding", wording.percent(metrics.padding_ratio, "n/a"), "padding ratio"),
        ("mean", wording.measure(metrics.step_ms_mean, "ms", "n/a"), "mean step"),
        ("p99", wording.measure(metrics.step_ms_p99, "ms", "n/a"), "99 % of steps within"),
    ]
    return _render("tiles.html", tiles=told)


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = environment_of(__package__)
    environment.globals["pasted"] = lambda text: fmt.clean(text, MOST_PASTED)
    return environment
