"""What a change in the mean step time is made of, as a waterfall."""

from __future__ import annotations

from graphdiag import wording
from graphdiag.comparison.answer import Comparison
from graphdiag.plots import palette
from graphdiag.plots.lanes import Bar, connectors, in_rows, reach
from graphdiag.plots.picture import Picture, Words
from graphdiag.plots.step_ledger import interval, signed
from graphdiag.titles import SELDOM, TERMS

NOT_SPLIT = (
    "The change cannot be split into terms: both runs need the times of their steps, on the same "
    "axis; record both with graphdiag record."
)
_MARK = 0.004
"""Half the width of the mark of a mean, as a share of the axis."""


def change_terms(found: Comparison) -> Picture | Words:
    """Return the waterfall from the base's mean step time to the candidate's, term by term.

    The axis begins near the means, and not at 0; the means are marks, for their length would say
    nothing.
    """
    terms, base, candidate = found.terms, found.base_ms_per_step, found.candidate_ms_per_step
    if terms is None or base is None or candidate is None:
        return Words(NOT_SPLIT)
    steps, labels, places, running = [], [f"base\n{wording.figure(base)} ms"], [(0, base)], base
    named = [pair for pair in TERMS.items() if pair[0] not in SELDOM or getattr(terms, pair[0])]
    for row, (name, title) in enumerate(named, 1):
        amount: float = getattr(terms, name)
        ends = None if found.terms_ci95 is None else getattr(found.terms_ci95, name)
        shown = signed(amount)
        color, label = _direction(amount)
        steps.append(
            Bar(
                row,
                running,
                running + amount,
                color,
                {"term": title, "ms a step": shown, "95 % interval": interval(ends)},
                label,
                ci95=None if ends is None else (running + ends[0], running + ends[1]),
            )
        )
        running += amount
        places.append((row, running))
        labels.append(f"{title}\n{shown} ms")
    labels.append(f"candidate\n{wording.figure(candidate)} ms")
    x_range = reach(steps, zero=False)
    half = _MARK * (x_range[1] - x_range[0])
    marks = [
        Bar(row, at - half, at + half, color, {"mean": f"{wording.figure(at)} ms"}, label)
        for row, at, color, label in (
            (0, base, palette.BASE, "base"),
            (len(named) + 1, candidate, palette.CANDIDATE, "candidate"),
        )
    ]
    return in_rows(
        [*marks, *steps],
        labels,
        x="ms a step; the axis is cut",
        x_range=x_range,
        under=[connectors(places)],
    )


def _direction(amount: float) -> tuple[str, str]:
    """Return the colour of a term, and its name in the legend; none for one that is nothing."""
    if round(amount, 6) == 0:
        return palette.GREY, ""
    return (palette.SLOWER, "slower") if amount > 0 else (palette.FASTER, "faster")
