"""The answer of ``graphdiag buckets`` as one HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag.buckets.answer import BucketAnswer, SingleChange
from graphdiag.plots import pictures
from graphdiag.reporters import buckets_tables as tables
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import ENGINE_NAMES
from graphdiag.reporters.html import Figure, Flag, Page, Section
from graphdiag.reporters.html import render as render_page


def render(answer: BucketAnswer) -> str:
    """Return the answer as a self-contained page."""
    slope = tables.slope(answer)
    source = f"Source: {fmt.clean(answer.source, 300)}; {tables.subject(answer)}."
    return render_page(
        Page(
            title="graphdiag buckets",
            answer=answer.sentence,
            about=[source, slope] if slope else [source],
            advice=list(_advice(answer)),
            figures=list(_figures(answer)),
            sheets=list(tables.sheets(answer)),
            notes=[
                Section("Not identifiable from this source", answer.not_identifiable),
                Section("Notes", answer.notes),
            ],
        )
    )


def _advice(answer: BucketAnswer) -> Iterator[Section]:
    change, move = answer.best_single_change, answer.best_move
    if change is not None:
        yield _change("The best single change", change, answer.engine)
    if move is not None and move != change:
        yield _change("The best change without one more graph", move, answer.engine)
    if answer.recommended is not None:
        sizes = tables.listed(answer.recommended.buckets)
        yield Section("The set to capture", [sizes], _flags(answer.flags, answer.engine))
    if answer.what_if is not None:
        remarks = answer.what_if_remarks or ["The engine takes the list as it is."]
        yield Section("What if", remarks)


def _change(title: str, change: SingleChange, engine: str | None) -> Section:
    lines = [change.sentence]
    if change.hurts:
        lines.append(f"It costs: {'; '.join(one.sentence for one in change.hurts[:3])}.")
    if engine is None:
        lines.append(f"The sizes then: {tables.listed(change.plan.buckets)}.")
        return Section(title, lines)
    return Section(title, lines, _flags(change.flags, engine))


def _flags(pasted: dict[str, str], engine: str | None) -> list[Flag]:
    return [
        Flag(f"Paste for {ENGINE_NAMES[name]}", flag)
        for name, flag in pasted.items()
        if engine in (None, name)
    ]


def _figures(answer: BucketAnswer) -> Iterator[Figure]:
    yield Figure(
        "Requested sizes",
        "A bar is the steps that asked for a size; its orange part is the share of the rows they "
        "executed that was padding. A line is a size captured now, a triangle a recommended one."
        if answer.current is not None
        else "A bar is the steps that asked for a size; a triangle is a recommended size.",
        pictures.requested_sizes(answer),
    )
    yield Figure(
        "Padding by size",
        "A bar is a size's share of all padded rows. A high bar far left of the next line replays "
        "a bucket that is much too large for it.",
        pictures.padding_by_size(answer),
    )
    yield Figure(
        "What each number of graphs can give",
        "A point is the best set of so many graphs: lower is better, and past the knee more graphs "
        "gain little. The first points may lie above the picture.",
        pictures.frontier(answer),
    )
    yield Figure(
        "Cost by size",
        "Blue is the step as it is replayed now, orange what its padded rows add to it"
        + (
            ", the dashed line the same step run eager: where blue is above it, eager would win."
            if any(size.eager_ms is not None for size in answer.sizes)
            else ". What an eager step costs is not known."
        ),
        pictures.cost_by_size(answer),
    )
