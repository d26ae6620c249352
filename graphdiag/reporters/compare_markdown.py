"""A comparison in GitHub Markdown, to paste into an issue tracker."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag.comparison.answer import Comparison
from graphdiag.findings import Report
from graphdiag.reporters import compare_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.markdown import audited, code, escape, table, titled
from graphdiag.reporters.tables import Sheet


def render(found: Comparison) -> str:
    """Return the comparison in GitHub Markdown; the long tables are folded away."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Comparison) -> Iterator[str]:
    yield from (
        "### graphdiag compare",
        "",
        f"**Verdict:** {escape(found.verdict.sentence)}",
        "",
    )
    yield from _source("Base", found.base)
    yield from _source("Candidate", found.candidate)
    yield from _differences(found)
    yield from titled("From base to candidate", found.waterfall)
    if found.objectives is not None:
        yield from titled("Has it succeeded?", [found.objectives.sentence])
    yield ""
    shown = list(tables.sheets(found))
    first = 2 if found.terms is not None else 1
    for sheet in shown[:first]:
        yield from table(sheet)
    if shown[first:]:
        yield from ("<details><summary>Start-up, goodput and sizes</summary>", "")
        for sheet in shown[first:]:
            yield from table(sheet)
        yield "</details>"
    yield from audited("Key audit: what changed and is in no artifact's key", found.key_audit)
    yield from titled("Not identifiable from these sources", found.not_identifiable)
    yield from titled("Notes", found.notes)


def _source(title: str, report: Report) -> Iterator[str]:
    source = code(fmt.clean(report.source, 300))
    yield f"- {title}: {source}; {escape(fmt.subject(report))}."
    yield from (f"  - **Note**: {escape(note)}" for note in report.damage)
    if report.engine.get("simulated"):
        yield f"  - **Simulated**: {escape(str(report.engine['simulated']))}"


def _differences(found: Comparison) -> Iterator[str]:
    rows = tables.differences(found)
    title = "What differs in the configuration"
    if not rows:
        yield from titled(title, [tables.no_differences(found)])
        return
    more = tables.more_differences(found)
    yield ""
    yield from table(Sheet(title, ("", "base", "candidate"), rows, 3, (more,) if more else ()))
