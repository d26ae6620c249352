"""An experiment in GitHub Markdown, to paste into an issue tracker."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag.experiment.answer import Experiment
from graphdiag.reporters import experiment_tables as tables
from graphdiag.reporters.markdown import escape, table, titled


def render(found: Experiment) -> str:
    """Return the experiment in GitHub Markdown."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Experiment) -> Iterator[str]:
    yield from ("### graphdiag experiment", "", f"**Verdict:** {escape(found.verdict)}", "")
    yield f"- Ran: {escape(tables.subject(found))}."
    yield f"- Workload: {escape(found.workload.sentence)}."
    yield f"- Buckets: {tables.buckets(found)}."
    yield f"- Objective: {escape(tables.objective(found))}."
    if told := tables.faults(found):
        yield f"- **Faults switched on**: {escape(told)}."
    yield ""
    costs, *rest = tables.sheets(found)
    yield from table(costs)
    yield from titled("The modes", tables.what(found))
    yield from titled("After the full cost", tables.verdicts(found))
    if found.bucket_change is not None:
        title = f"One bucket changed, within {escape(found.bucket_change.budget)}"
        yield from titled(title, tables.bucket_change(found.bucket_change))
    if told_apart := tables.diagnoses(found):
        yield from ("", "#### What each trace shows by itself", "")
        yield from (f"- **{mode}**: {escape(told)}" for mode, told in told_apart)
    yield from ("", "<details><summary>Changes and runs</summary>", "")
    for sheet in rest:
        yield from table(sheet)
    yield "</details>"
    yield from titled("Not identifiable", found.not_identifiable)
    yield from titled("Notes", found.notes)
