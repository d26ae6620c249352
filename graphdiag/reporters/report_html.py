"""The report as one HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag.buckets.answer import BucketAnswer
from graphdiag.findings import Report
from graphdiag.plots import pictures
from graphdiag.plots.picture import Words
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import advice
from graphdiag.reporters.advice import sizes as recommended
from graphdiag.reporters.case_cards import case_cards
from graphdiag.reporters.html import Audit, Figure, Flag, Page, Section
from graphdiag.reporters.html import render as render_page
from graphdiag.reporters.tables import Sheet, sheets
from graphdiag.summary import Summary

NO_TRAFFIC = (
    "No step of a known size that a bucket serves, or that fell back for want of one: record the "
    "engine with graphdiag record, or read a server log that tells the sizes."
)
NO_EAGER = (
    "What an eager step costs is not known: record a run with graphs off, and graphdiag buckets "
    "takes it as --baseline."
)


def render(report: Report, summary: Summary, plan: BucketAnswer | None) -> str:
    """Return the report as a self-contained page.

    ``summary`` is what the report was computed from, and ``plan`` is that of
    :func:`graphdiag.bucket_advice.plan_beside`.
    """
    configuration = fmt.configuration(report)
    tables = list(sheets(report))
    if configuration:
        tables.append(Sheet("Configuration", ("key", "value"), configuration, 2, ()))
    return render_page(
        Page(
            title="graphdiag report",
            answer=f"Verdict: {report.verdict.sentence}",
            about=about(report),
            warnings=report.damage,
            cards=list(case_cards(report)),
            advice=list(_advice(report)),
            figures=[*_over_time(summary), *_by_size(report, plan), *_costs(report, plan)],
            audit=Audit(
                "Audit of the configuration and the dispatch",
                "What shows without any timing: an error happened in this trace, a warn is "
                "possible with this configuration, an info is good to know.",
                report.audit,
            ),
            sheets=tables,
            notes=[
                Section("Not identifiable from this source", report.not_identifiable),
                Section("Notes", fmt.other_notes(report)),
                Section(
                    "Notes on the cost by size and the number of graphs",
                    [] if plan is None else plan.notes,
                ),
            ],
        )
    )


def about(report: Report, name: str = "Source") -> list[str]:
    """Return what a report is about, in a line, and in another how it was simulated if it was."""
    lines = [f"{name}: {fmt.clean(report.source, 300)}; {fmt.subject(report)}."]
    if report.engine.get("simulated"):
        lines.append(f"Simulated: {fmt.clean(str(report.engine['simulated']))}")
    return lines


def _advice(report: Report) -> Iterator[Section]:
    told, sizes = advice(report), recommended(report)
    lines = [f"{cases}: {sentence}" for cases, sentence in told]
    flags: list[Flag] = []
    if sizes is not None:
        lines.append(f"sizes: {sizes.sentence}")
        flags = [Flag(f"Paste for {name}", flag) for name, flag in sizes.pasted]
        if sizes.listed:
            flags.append(Flag("Sizes to capture", sizes.listed))
    if lines:
        yield Section("What to do", lines, flags)


def _over_time(summary: Summary) -> Iterator[Figure]:
    yield Figure(
        "Step time over time",
        "A line is the mean time of the steps that ran one way. Grey is cold, until the last "
        "start-up capture or compilation, light blue is warm, where some artifact ran for the "
        "first time; the rest is steady. The lane on top marks what was captured or compiled.",
        pictures.step_times(summary),
    )
    yield Figure(
        "Outcome over time",
        "All steps of a stretch of time are 100 %: exact replays, padded ones, and those that fell "
        "back, by reason. Look for the moment at which a colour takes over.",
        pictures.outcomes_over_time(summary),
    )


def _by_size(report: Report, plan: BucketAnswer | None) -> Iterator[Figure]:
    yield Figure(
        "Requested sizes",
        "A bar is the steps that asked for a size; its orange part is the share of the rows they "
        "executed that was padding, its red part ran eager. A line is a captured size, a triangle "
        "one to capture.",
        pictures.sizes_served(report),
    )
    yield Figure(
        "Cost by size",
        "Blue is the step as it is replayed now, orange what its padded rows add to it, the dashed "
        "line the same step run eager; a cross is a size at which eager would win. "
        + (report.winner or NO_EAGER),
        Words(NO_TRAFFIC) if plan is None else pictures.cost_by_size(plan),
    )


def _costs(report: Report, plan: BucketAnswer | None) -> Iterator[Figure]:
    yield Figure(
        "Where a step's time goes",
        "From the best achievable, exact replay of every batch, each row adds what one case costs "
        "a step; they end at the mean step. A dark line is a 95 % interval.",
        pictures.step_ledger(report),
    )
    yield Figure(
        "Artifacts by how often they served",
        "Blue is a graph's share of the steps that graphs served, orange its share of the memory "
        "they hold: orange without blue is memory for nothing.",
        pictures.artifacts_served(report),
    )
    yield Figure(
        "What each number of graphs can give",
        "A point is the best set of so many graphs: lower is better, and past the knee more graphs "
        "gain little. The first points may lie above the picture.",
        Words(NO_TRAFFIC) if plan is None else pictures.frontier(plan),
    )
    yield Figure(
        "Host and GPU time of a step",
        "A row is one phase on the host or on the GPU. A GPU gap is time in which the step's own "
        "work let the GPU idle; blocked is the host waiting in copies and syncs.",
        pictures.gpu_times(report),
    )
    yield Figure(
        "Launches of a step",
        "Many launches with a gap above are work for graphs; few launches with many kernels are "
        "graphs at work.",
        pictures.gpu_launches(report),
    )
