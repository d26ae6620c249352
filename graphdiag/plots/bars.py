"""Requested sizes gathered into few enough bars to draw, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from graphdiag.findings import SizeCost

MOST_BARS = 240
_SQUEEZED = 0.3
"""Share of a linear axis that the middle 80 % of the steps need, for it not to squeeze them."""
_FEW = 64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Counted(Protocol):
    """A requested size, and how many steps asked for it."""

    @property
    def requested(self) -> int: ...  # noqa: D102
    @property
    def steps(self) -> float: ...  # noqa: D102


@dataclass(frozen=True)
class Bars:
    """Bars over an axis of requested sizes, ascending; all arrays of one length.

    Attributes
    ----------
    first, last
        The smallest and the largest size that a bar stands for.
    least, most
        The smallest and the largest bucket that they replay; 0 where all run eager.
    steps, eager
        Steps, and those of them that run eager. Shares of all steps where the source has shares.
    requested, padded
        Requested and padded rows of the steps that replay.
    """

    first: Ints
    last: Ints
    least: Ints
    most: Ints
    steps: Floats
    eager: Floats
    requested: Floats
    padded: Floats

    @property
    def left(self) -> Floats:
        """Left edges: half a row below the first size."""
        return self.first.astype(np.float64) - 0.5

    @property
    def right(self) -> Floats:
        """Right edges: half a row above the last size."""
        return self.last.astype(np.float64) + 0.5

    @property
    def waste(self) -> Floats:
        """Padded rows / executed rows of replayed steps, 0 where none replays."""
        executed = self.requested + self.padded
        return np.divide(self.padded, executed, out=np.zeros_like(executed), where=executed > 0)


def gather(sizes: Sequence[SizeCost], *, log: bool, most: int = MOST_BARS) -> Bars:
    """Return ``sizes`` (ascending) as at most ``most`` bars of equal width on their axis."""
    requested = np.array([size.requested for size in sizes], np.int64)
    steps = np.array([size.steps for size in sizes], np.float64)
    bucket = np.array([size.bucket or 0 for size in sizes], np.int64)
    padded = np.array([size.padded_rows or 0 for size in sizes], np.float64)
    edges = starts(int(requested[0]), int(requested[-1]), log=log, most=most)
    group = np.searchsorted(edges, requested, side="right") - 1
    begin = np.flatnonzero(np.diff(group, prepend=-1))
    replays = bucket > 0
    ends = np.append(edges[1:], requested[-1] + 1) - 1

    def sums(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, begin), np.float64)

    return Bars(
        first=edges[group[begin]],
        last=ends[group[begin]],
        least=np.minimum.reduceat(bucket, begin),
        most=np.maximum.reduceat(bucket, begin),
        steps=sums(steps),
        eager=sums(np.where(replays, 0.0, steps)),
        requested=sums(np.where(replays, steps * requested, 0.0)),
        padded=sums(steps * padded),
    )


def fits_log(sizes: Sequence[Counted]) -> bool:
    """Say whether a linear axis would squeeze most steps into a corner."""
    requested = np.array([size.requested for size in sizes], np.float64)
    span = requested[-1] - requested[0]
    if span < _FEW:
        return False
    passed = np.cumsum([size.steps for size in sizes])
    low, high = np.searchsorted(passed, passed[-1] * np.array([0.1, 0.9]))
    return bool(requested[high] - requested[low] < _SQUEEZED * span)


def starts(low: int, high: int, *, log: bool, most: int) -> Ints:
    """Return the first size of each bar between ``low`` and ``high``."""
    if log:
        edges = np.geomspace(low, high + 1, most + 1)[:-1]
        return np.unique(np.rint(edges).astype(np.int64))
    width = -(-(high - low + 1) // most)
    return np.arange(low, high + 1, width, dtype=np.int64)
