"""Where the mean time of a step goes, as a waterfall."""

from __future__ import annotations

from graphdiag import wording
from graphdiag.findings import Charge, Report, StepLedger
from graphdiag.plots import palette
from graphdiag.plots.lanes import Bar, connectors, in_rows
from graphdiag.plots.picture import Picture, Words
from graphdiag.plots.step_times import NO_TIMES
from graphdiag.titles import ledger_rows

COLORS = {
    "achievable": palette.ACHIEVABLE,
    **palette.CASES,
    "stalls": palette.BROWN,
    "residual": palette.UNEXPLAINED,
}
MEAN = "mean step"


def step_ledger(report: Report) -> Picture | Words:
    """Return the waterfall from the best achievable step time to the mean one, case by case."""
    ledger = report.ledger
    if ledger is None:
        return Words(NO_TIMES)
    found, labels, places, running = [], [], [], 0.0
    for row, (name, title) in enumerate(rows(ledger)):
        charge: Charge = getattr(ledger, name)
        amount = charge.ms_per_step or 0.0
        ends = None if charge.ci95 is None else tuple(running + end for end in charge.ci95)
        told = {
            "ms a step": told_amount(charge.ms_per_step),
            "95 % interval": interval(charge.ci95),
            "of the mean": share(charge.ms_per_step, ledger.mean_ms),
        }
        bar = Bar(row, running, running + amount, COLORS[name], told, ci95=ends)  # type: ignore[arg-type]
        running += amount
        found.append(bar)
        places.append((row, running))
        labels.append(f"{title}\n{_amount(charge.ms_per_step, is_first=not row)}")
    told = {
        "ms a step": wording.figure(ledger.mean_ms),
        "95 % interval": "",
        "of the mean": "100 %",
    }
    found.append(Bar(len(labels), 0.0, ledger.mean_ms, palette.NOW, told))
    labels.append(f"{MEAN}\n{wording.figure(ledger.mean_ms)} ms")
    over = f"ms a step, mean of {wording.count(ledger.steps, 'timed step')}"
    return in_rows(found, labels, x=over, under=[connectors(places)])


def told_amount(amount: float | None) -> str:
    """Return an amount in ms for the pointer."""
    return wording.MISSING if amount is None else wording.figure(amount)


def share(amount: float | None, of_all: float) -> str:
    """Return an amount as a share of all, as the pointer shows it."""
    return wording.percent(amount / of_all if amount is not None and of_all else None)


def _amount(amount: float | None, *, is_first: bool) -> str:
    if amount is None:
        return wording.MISSING
    return f"{wording.figure(amount) if is_first else signed(amount)} ms"


def signed(amount: float) -> str:
    """Return an amount in ms with its sign; rounding errors are nothing, less than 1 µs nearly."""
    rounded = round(amount, 9) + 0.0
    if 0 < abs(rounded) < 0.001:
        return "about 0"
    return f"{'+' if rounded > 0 else ''}{wording.figure(rounded)}"


def rows(*ledgers: StepLedger) -> list[tuple[str, str]]:
    """Return attribute and title of what a ledger is made of, without stalls where none stalled."""
    stalled = any(ledger.stalled_steps for ledger in ledgers)
    unknown = [one.padding for one in ledgers if one.padding.ms_per_step is None]
    titles = ledger_rows(unknown[0] if unknown else ledgers[0].padding)
    return [pair for pair in titles.items() if stalled or pair[0] != "stalls"]


def interval(ends: tuple[float, float] | None) -> str:
    """Return an interval for the pointer; in words where none can be drawn."""
    if ends is None:
        return "none can be drawn"
    return f"{wording.figure(ends[0])} to {wording.figure(ends[1])}"
