"""A comparison for a terminal: verdict, what differs, the way from base to candidate, tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from graphdiag.comparison.answer import Comparison
from graphdiag.findings import Report
from graphdiag.reporters import compare_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.tables import Sheet
from graphdiag.reporters.text import (
    TABLE_WIDTH,
    WIDTH,
    audit,
    bullets,
    heading,
    table,
    titled,
    to_text,
)

HEADERS = ("", "base", "candidate")


def render(found: Comparison, *, width: int = WIDTH, color: bool = False) -> str:
    """Return the comparison as text, no line wider than ``width`` columns."""
    return to_text(_sections(found, width), width=width, color=color)


def _sections(found: Comparison, width: int) -> Iterator[RenderableType]:
    style = "bold" if found.verdict.case is None else "bold red"
    yield Text.assemble(("Verdict: ", style), fmt.clean(found.verdict.sentence))
    yield from _source("Base", found.base)
    yield from _source("Candidate", found.candidate)
    yield from _differences(found, width)
    if found.waterfall:
        yield heading("From base to candidate")
        yield Padding(Text("\n".join(map(fmt.clean, found.waterfall))), (0, 0, 0, 2))
    if found.objectives is not None:
        yield heading("Has it succeeded?")
        yield bullets([("-", fmt.clean(found.objectives.sentence))])
    for sheet in tables.sheets(found):
        yield from table(sheet, width)
    if found.key_audit:
        yield heading("Key audit: what changed and is in no artifact's key")
        yield audit(found.key_audit)
    yield from titled("Not identifiable from these sources", found.not_identifiable)
    yield from titled("Notes", found.notes)


def _source(title: str, report: Report) -> Iterator[RenderableType]:
    yield Text(f"{title}: {tables.subject(report)}", "dim")
    if report.damage:
        yield bullets((Text("!", "bold yellow"), fmt.clean(note)) for note in report.damage)
    if report.engine.get("simulated"):
        yield bullets([("Simulated:", fmt.clean(str(report.engine["simulated"])))])


def _differences(found: Comparison, width: int) -> Iterator[RenderableType]:
    rows = tables.differences(found)
    title = "What differs in the configuration"
    if not rows:
        yield from titled(title, [tables.no_differences(found)])
        return
    more = tables.more_differences(found)
    left = 3 if width >= TABLE_WIDTH else 1  # where each row is a sentence, values have names
    yield from table(Sheet(title, HEADERS, rows, left, (more,) if more else ()), width)
