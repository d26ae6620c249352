"""An experiment for a terminal: the verdict, the table, each mode after its cost, the change."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from graphdiag.experiment.answer import Experiment
from graphdiag.reporters import experiment_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.text import WIDTH, bullets, heading, table, titled, to_text


def render(found: Experiment, *, width: int = WIDTH, color: bool = False) -> str:
    """Return the experiment as text, no line wider than ``width`` columns."""
    return to_text(_sections(found, width), width=width, color=color)


def _sections(found: Experiment, width: int) -> Iterator[RenderableType]:
    yield Text.assemble(("Verdict: ", "bold"), fmt.clean(found.verdict))
    yield Text(f"Ran: {tables.subject(found)}.", "dim")
    yield Text(f"Workload: {fmt.clean(found.workload.sentence)}.", "dim")
    yield Text(f"Buckets: {tables.buckets(found)}.", "dim")
    yield Text(f"Objective: {tables.objective(found)}.", "dim")
    if told := tables.faults(found):
        yield Text(f"Faults switched on: {told}.", "yellow")
    costs, *rest = tables.sheets(found)
    yield from table(costs, width)
    yield from titled("The modes", tables.what(found))
    yield from titled("After the full cost", tables.verdicts(found))
    if found.bucket_change is not None:
        title = f"One bucket changed, within {fmt.clean(found.bucket_change.budget)}"
        yield from titled(title, tables.bucket_change(found.bucket_change))
    if told_apart := tables.diagnoses(found):
        yield heading("What each trace shows by itself")
        yield bullets((f"{mode}:", sentence) for mode, sentence in told_apart)
    for sheet in rest:
        yield from table(sheet, width)
    yield from titled("Not identifiable", found.not_identifiable)
    yield from titled("Notes", found.notes)
