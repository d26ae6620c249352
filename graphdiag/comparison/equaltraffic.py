"""Whether two runs can be held against each other on equal traffic, and what that leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphdiag.comparison.decomposition import Overlap
from graphdiag.steptable import NO_SIZE, Bools, Ints
from graphdiag.wording import percent

LEAST_COMMON = 0.5
"""Least share of the steps of each that both must tell a time of."""
_FEW = 0.05
"""Share of the steps of either up to which what is left out is a remark."""
SIDES = ("base", "candidate")


def is_comparable(overlap: Overlap) -> bool:
    """Say whether both tell a time of enough of the steps for a change on equal traffic."""
    return min(overlap.common) >= LEAST_COMMON - 1e-9


def apart(overlap: Overlap) -> list[str]:
    """Return why nothing can be held against each other on equal traffic; empty where it can."""
    if is_comparable(overlap):
        return []
    return [
        f"What the change is made of, and what it is on equal traffic: {_lacking(overlap)}; record "
        "both under traffic whose sizes overlap, or let each replay the buckets that the other "
        "does."
    ]


def left_out(overlap: Overlap) -> list[str]:
    """Return a sentence on steps that are not on equal traffic, where they are not few."""
    if min(overlap.common) >= 1 - _FEW:
        return []
    return [
        "The change on equal traffic, of all steps: some are left out of it, because "
        f"{_lacking(overlap)}."
    ]


def remarks(overlap: Overlap) -> list[str]:
    """Return sentences on the few steps left out, and on times that are read off a curve."""
    told = []
    if min(overlap.common) >= 1 - _FEW and (lacking := _lacking(overlap)):
        told.append(f"The change on equal traffic leaves some steps out: {lacking}.")
    for side, name in enumerate(SIDES):
        for phase, sizes, share in _by_phase(overlap, overlap.read_off[side], 1 - side):
            told.append(
                f"The {name} never timed the buckets that serve {phase} steps of {sizes} "
                f"({percent(share)} of the {SIDES[1 - side]}'s steps): what it would take there is "
                "read off its other buckets."
            )
    return told


def _lacking(overlap: Overlap) -> str:
    """Return what each of the two tells nothing of, in one clause; empty where they tell all."""
    clauses = [
        f"the {name}'s times tell nothing of {phase} steps of {sizes} ({percent(share)} of the "
        f"{SIDES[1 - side]}'s steps)"
        for side, name in enumerate(SIDES)
        for phase, sizes, share in _by_phase(overlap, ~overlap.known[side], 1 - side)
    ]
    return ", and ".join(clauses)


def _by_phase(overlap: Overlap, which: Bools, of: int) -> Iterator[tuple[str, str, float]]:
    """Yield phase, sizes in words and share of the steps of ``of``, of the strata ``which``."""
    share = overlap.shares[of]
    for code, phase in enumerate(overlap.phases):
        mine = which & (overlap.phase == code) & (share > 0)
        if mine.any():
            yield phase, _sizes(overlap.sizes[mine]), min(float(share[mine].sum()), 1.0)


def _sizes(sizes: Ints) -> str:
    known = sizes[sizes != NO_SIZE]
    if not len(known):
        return "unknown size"
    low, high = int(known.min()), int(known.max())
    return (
        f"size {low:,}"
        if low == high
        else f"{len(np.unique(known)):,} sizes from {low:,} to {high:,}"
    )
