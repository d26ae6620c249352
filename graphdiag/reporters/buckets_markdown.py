"""The answer of ``graphdiag buckets`` in GitHub Markdown, to paste into an issue tracker."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag.buckets.answer import BucketAnswer, SingleChange
from graphdiag.reporters import buckets_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import ENGINE_NAMES
from graphdiag.reporters.markdown import block, code, escape, table, titled


def render(answer: BucketAnswer) -> str:
    """Return the answer in GitHub Markdown."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: BucketAnswer) -> Iterator[str]:
    yield from ("### graphdiag buckets", "", f"**Answer:** {escape(answer.sentence)}", "")
    yield f"Source: {code(fmt.clean(answer.source, 300))}; {escape(tables.subject(answer))}."
    slope = tables.slope(answer)
    if slope:
        yield from ("", escape(slope))
    if answer.best_single_change is not None:
        yield from _change("The best single change", answer.best_single_change, answer.engine)
    if answer.best_move is not None and answer.best_move != answer.best_single_change:
        yield from _change(
            "The best change without one more graph", answer.best_move, answer.engine
        )
    if answer.recommended is not None:
        yield from ("", "#### The set to capture", "")
        yield escape(tables.listed(answer.recommended.buckets))
        yield from _flags(answer.flags, answer.engine)
    if answer.what_if is not None:
        remarks = answer.what_if_remarks or ["The engine takes the list as it is."]
        yield from titled("What if", remarks)
    yield ""
    for sheet in tables.sheets(answer):
        yield from table(sheet)
    yield from titled("Not identifiable from this source", answer.not_identifiable)
    yield from titled("Notes", answer.notes)


def _change(title: str, change: SingleChange, engine: str | None) -> Iterator[str]:
    yield from ("", f"#### {title}", "", escape(change.sentence))
    if change.hurts:
        worse = "; ".join(one.sentence for one in change.hurts[:3])
        yield from ("", f"It costs: {escape(worse)}.")
    if engine is None:
        yield from ("", f"The sizes then: {tables.listed(change.plan.buckets)}.")
    else:
        yield from _flags(change.flags, engine)


def _flags(pasted: dict[str, str], engine: str | None) -> Iterator[str]:
    for name, flag in pasted.items():
        if engine not in (None, name):
            continue
        yield from ("", f"For {ENGINE_NAMES[name]}:", "", *block(flag))
