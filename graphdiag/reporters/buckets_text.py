"""The answer of ``graphdiag buckets`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from graphdiag.buckets.answer import BucketAnswer, SingleChange
from graphdiag.reporters import buckets_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import ENGINE_NAMES
from graphdiag.reporters.text import WIDTH, Flag, bullets, heading, table, titled, to_text


def render(answer: BucketAnswer, *, width: int = WIDTH, color: bool = False) -> str:
    """Return the answer as text, no line wider than ``width`` columns."""
    return to_text(_sections(answer, width), width=width, color=color)


def _sections(answer: BucketAnswer, width: int) -> Iterator[RenderableType]:
    yield Text.assemble(("Answer: ", "bold"), fmt.clean(answer.sentence))
    yield Text(f"Source: {fmt.clean(answer.source, 300)}; {tables.subject(answer)}.", "dim")
    slope = tables.slope(answer)
    if slope:
        yield Text(slope, "dim")
    if answer.best_single_change is not None:
        yield from _change("The best single change", answer.best_single_change, answer.engine)
    if answer.best_move is not None and answer.best_move != answer.best_single_change:
        yield from _change(
            "The best change without one more graph", answer.best_move, answer.engine
        )
    if answer.recommended is not None:
        yield heading("The set to capture")
        yield bullets([("-", tables.listed(answer.recommended.buckets))])
        yield from _flags(answer.flags, answer.engine)
    if answer.what_if is not None:
        yield heading("What if")
        remarks = answer.what_if_remarks or ["The engine takes the list as it is."]
        yield bullets(("-", fmt.clean(remark)) for remark in remarks)
    for sheet in tables.sheets(answer):
        yield from table(sheet, width)
    yield from titled("Not identifiable from this source", answer.not_identifiable)
    yield from titled("Notes", answer.notes)


def _change(title: str, change: SingleChange, engine: str | None) -> Iterator[RenderableType]:
    yield heading(title)
    yield bullets([("-", fmt.clean(change.sentence))])
    if change.hurts:
        worse = "; ".join(one.sentence for one in change.hurts[:3])
        yield bullets([("-", f"It costs: {fmt.clean(worse)}.")])
    if engine is None:
        yield bullets([("-", f"The sizes then: {tables.listed(change.plan.buckets)}.")])
    else:
        yield from _flags(change.flags, engine)


def _flags(pasted: dict[str, str], engine: str | None) -> Iterator[RenderableType]:
    for name, flag in pasted.items():
        if engine not in (None, name):
            continue
        yield Padding(Text(f"Paste for {ENGINE_NAMES[name]}:"), (0, 0, 0, 2))
        yield Flag(flag)
