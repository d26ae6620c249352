"""What became of the steps of two runs."""

from __future__ import annotations

from graphdiag import history, wording
from graphdiag.plots import palette
from graphdiag.plots.lanes import Bar, in_rows
from graphdiag.plots.outcomes_over_time import named
from graphdiag.plots.picture import Picture, Words
from graphdiag.plots.step_times import NO_STEPS
from graphdiag.summary import Summary


def outcomes_of_both(base: Summary, candidate: Summary) -> Picture | Words:
    """Return the share of the steps that met each fate, both runs one above the other."""
    sides = [history.outcomes(one) for one in (base, candidate)]
    if any(side.is_empty() for side in sides):
        return Words(f"One of the two has no steps. {NO_STEPS}")
    reasons: list[str] = []
    for side in sides:
        reasons += [one for one in side["reason"].drop_nulls() if one not in reasons]
    found = []
    for row, side in enumerate(sides):
        running = 0.0
        for fate, reason, steps, share in side.select(
            "fate", "reason", "steps", "share"
        ).iter_rows():
            rank = reasons.index(reason) if reason in reasons else 0
            title, color = named(fate, reason, min(rank, len(palette.FALLBACK) - 1))
            told = {"outcome": title, "steps": f"{steps:,} ({wording.percent(share)})"}
            found.append(Bar(row, running, running + share * 100, color, told, title))
            running += share * 100
    labels = [
        f"{name}\n{wording.count(int(side['steps'].sum()), 'step')}"
        for name, side in zip(("base", "candidate"), sides, strict=True)
    ]
    columns = 2 if reasons else 3
    return in_rows(found, labels, x="share of steps in %", x_range=(0.0, 100.0), columns=columns)
