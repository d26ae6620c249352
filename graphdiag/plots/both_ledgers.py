"""Where the mean time of a step goes in two runs, side by side."""

from __future__ import annotations

from graphdiag import wording
from graphdiag.comparison.answer import Comparison
from graphdiag.findings import Charge
from graphdiag.plots.both_times import SIDES
from graphdiag.plots.lanes import Bar, in_rows
from graphdiag.plots.picture import Picture, Words
from graphdiag.plots.step_ledger import MEAN, interval, rows
from graphdiag.plots.step_times import NO_TIMES

_EDGES = ({"low": 0.02, "high": 0.34}, {"low": -0.34, "high": -0.02})


def in_a_step(amount: float | None) -> str:
    """Return an amount in ms a step for the pointer."""
    return wording.MISSING if amount is None else f"{wording.milliseconds(amount)} ms a step"


def ledgers_of_both(found: Comparison) -> Picture | Words:
    """Return what each case adds to a step in both, on one axis, and the means."""
    ledgers = (found.base.ledger, found.candidate.ledger)
    if ledgers[0] is None or ledgers[1] is None:
        return Words(f"One of the two has no step times. {NO_TIMES}")
    named = [*rows(ledgers[0], ledgers[1]), ("mean_ms", MEAN)]
    drawn = []
    for (side, color, _, _), ledger, edges in zip(SIDES, ledgers, _EDGES, strict=True):
        for row, (name, title) in enumerate(named):
            value: Charge | float = getattr(ledger, name)
            charge = value if isinstance(value, Charge) else Charge(ms_per_step=value, ci95=None)
            told = {
                side: f"{title}, {in_a_step(charge.ms_per_step)}",
                "95 % interval": "" if name == "mean_ms" else interval(charge.ci95),
            }
            length = charge.ms_per_step or 0.0
            bar = Bar(row, 0.0, length, color, told, side, ci95=charge.ci95, **edges)
            drawn.append(bar)
    labels = [title for _, title in named]
    return in_rows(drawn, labels, x="ms a step, mean of the timed steps")
