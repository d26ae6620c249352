"""The comparison as one HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag import wording
from graphdiag.comparison.answer import Comparison
from graphdiag.plots import pictures
from graphdiag.reporters import compare_tables as tables
from graphdiag.reporters.html import Audit, Card, Figure, Page, Section
from graphdiag.reporters.html import render as render_page
from graphdiag.reporters.report_html import about
from graphdiag.reporters.tables import Sheet
from graphdiag.summary import Summary

_DIFFERENCES = "What differs in the configuration"


def render(found: Comparison, base: Summary, candidate: Summary) -> str:
    """Return the comparison as a self-contained page; the summaries are what it came from."""
    return render_page(
        Page(
            title="graphdiag compare",
            answer=f"Verdict: {found.verdict.sentence}",
            about=[*about(found.base, "Base"), *about(found.candidate, "Candidate")],
            warnings=[*_damage(found)],
            cards=list(_cards(found)),
            advice=list(_told(found)),
            first=list(_differences(found)),
            figures=[*_change(found), *_side_by_side(found, base, candidate)],
            audit=Audit(
                "Key audit: what changed and is in no artifact's key",
                "An error: artifacts came from a cache and may be stale. A warn: the candidate has "
                "a cache and made them itself. An info: they live no longer than their process.",
                found.key_audit,
            ),
            sheets=list(tables.sheets(found)),
            notes=[
                Section("Not identifiable from these sources", found.not_identifiable),
                Section("Notes", found.notes),
            ],
        )
    )


def _damage(found: Comparison) -> Iterator[str]:
    for name, report in (("Base", found.base), ("Candidate", found.candidate)):
        yield from (f"{name}: {note}" for note in report.damage)


def _cards(found: Comparison) -> Iterator[Card]:
    changes = [
        ("All steps", found.delta_ms_per_step, found.ci95, "start-up included"),
        ("On equal traffic", found.matched_ms_per_step, found.matched_ci95, "each size as often"),
        ("Steady", found.steady_ms_per_step, found.steady_ci95, "without start-up"),
    ]
    for title, change, ends, over in changes:
        if change is not None:
            yield Card(
                title, [(_change_of(change), "change in the mean step")], [_over(ends, over)]
            )
    if found.objectives is not None:
        told = found.objectives
        answer = {True: "yes", False: "no", None: "n/a"}[told.succeeded]
        yield Card("Has it succeeded?", [(answer, "under the objectives given")], [told.sentence])


def _change_of(change: float) -> str:
    rounded = round(change, 6) + 0.0
    return f"{'+' if rounded > 0 else ''}{wording.figure(rounded)} ms"


def _over(ends: tuple[float, float] | None, over: str) -> str:
    if ends is None:
        return f"{over[:1].upper()}{over[1:]}; no interval can be drawn."
    low, high = (_change_of(end) for end in ends)
    return f"{over[:1].upper()}{over[1:]}; 95 % interval {low} to {high}."


def _told(found: Comparison) -> Iterator[Section]:
    if found.waterfall:
        yield Section("From base to candidate", found.waterfall)


def _differences(found: Comparison) -> Iterator[Sheet]:
    rows = tables.differences(found)
    more = tables.more_differences(found)
    if rows:
        yield Sheet(_DIFFERENCES, ("", "base", "candidate"), rows, 3, (more,) if more else ())
    else:
        yield Sheet(_DIFFERENCES, (), [], 0, (tables.no_differences(found),))


def _change(found: Comparison) -> Iterator[Figure]:
    yield Figure(
        "What the change is made of",
        "From the base's mean step to the candidate's: a bar to the right makes the step longer, "
        "one to the left shorter. A dark line is a 95 % interval; one that holds the bar's start "
        "may be noise.",
        pictures.change_terms(found),
    )
    yield Figure(
        "Where a step's time goes in both",
        "What each case adds to the best achievable, the base above the candidate.",
        pictures.ledgers_of_both(found),
    )


def _side_by_side(found: Comparison, base: Summary, candidate: Summary) -> Iterator[Figure]:
    yield Figure(
        "Step time over time",
        "The mean step time of both, each from its own first step; compile and capture inside the "
        "measurement stand out at its beginning.",
        pictures.step_times_of_both(base, candidate),
    )
    yield Figure(
        "Outcomes",
        "All steps of a run are 100 %: exact replays, padded ones, and those that fell back, by "
        "reason.",
        pictures.outcomes_of_both(base, candidate),
    )
    yield Figure(
        "Requested sizes",
        "How often each size was asked for, as a share of the steps: where the two differ, their "
        "traffic did.",
        pictures.sizes_of_both(found),
    )
    yield Figure(
        "Cost by size",
        "The mean time of a step of each size, as it was measured: the same size, served by both.",
        pictures.costs_of_both(found),
    )
