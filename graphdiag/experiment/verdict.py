"""Which mode of an experiment to run: the one that serves most, or is repaid first."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from graphdiag.experiment.answer import Mode


def best_mode(rows: Sequence[Mode], base: str) -> str:
    """Say which of the modes serves best after its full cost; they were held against ``base``."""
    held = [row.against for row in rows if row.against is not None]
    if not held:
        return f"Only {base} has run: there is nothing to hold it against."
    won = [row for row in rows if row.against is not None and row.against.succeeded]
    if not won:
        if all(one.succeeded is None for one in held):
            return "Which mode serves best is not identifiable: the steps carry no times."
        if any(_gain(row) > 0 for row in rows):
            return (
                f"No mode is shown to improve on {base}: what is gained is within noise; more "
                "rounds or a quieter machine would settle it."
            )
        return f"No mode improves on {base} after its full cost."
    best = max(won, key=_gain)
    alike = [row for row in won if _reach(row) >= _gain(best)]
    first = min(alike, key=lambda row: _cost(row))
    told = first.against.sentence if first.against is not None else ""
    if not won[1:]:
        return told
    if not alike[1:]:
        return f"{len(won)} modes have succeeded, and {best.mode} serves most: {told}"
    names = " and ".join(row.mode for row in alike)
    return f"{names} serve alike, within noise, and {first.mode} is repaid first: {told}"


def _gain(row: Mode) -> float:
    """Return what the mode serves more than the base: tokens/s, else ms less a step."""
    if row.against is None:
        return 0.0
    gain, change = row.against.gain_tokens_per_s, row.against.change_ms_per_step
    return gain if gain is not None else -(change or 0.0)


def _reach(row: Mode) -> float:
    """Return the most that the mode may serve more than the base, noise considered."""
    if row.against is None or row.against.gain_ci95 is None:
        return _gain(row)
    return row.against.gain_ci95[1]


def _cost(row: Mode) -> float:
    """Return after how many steps the mode's start is repaid."""
    return inf if row.against is None or row.against.cold.steps is None else row.against.cold.steps
