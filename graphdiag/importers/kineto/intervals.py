"""How long something was busy: the union of overlapping intervals, for many groups at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Busy:
    """Union and extent of the intervals of each group; int64 ns, by group number.

    Groups without an interval have ``count`` 0 and zeros.
    """

    count: np.ndarray
    first: np.ndarray
    last: np.ndarray
    union: np.ndarray

    @property
    def span(self) -> np.ndarray:
        """From the first start to the last end."""
        span: np.ndarray = self.last - self.first
        return span

    @property
    def idle(self) -> np.ndarray:
        """The part of the span that no interval covers."""
        idle: np.ndarray = self.span - self.union
        return idle


def busy(start: np.ndarray, end: np.ndarray, group: np.ndarray, groups: int) -> Busy:
    """Measure the intervals [start, end) of each group.

    Parameters
    ----------
    start, end
        int64 ns, ``end >= start``, in any order.
    group
        Group number of each interval, 0 to ``groups`` - 1.
    groups
        How many groups there are.
    """
    count, first, last, union = (np.zeros(groups, np.int64) for _ in range(4))
    if len(start):
        order = np.lexsort((start, group))
        start, end, group = start[order], end[order], group[order]
        heads = np.flatnonzero(np.diff(group, prepend=-1))
        present = group[heads]
        count[present] = np.diff(heads, append=len(group))
        first[present] = start[heads]
        last[present] = np.maximum.reduceat(end, heads)
        # Lay the groups end to end on one axis, so that one running maximum serves them all.
        length = last[present] - first[present]
        shift = np.repeat(np.cumsum(length) - length - first[present], count[present])
        start, end = start + shift, end + shift
        reached = np.maximum.accumulate(end)
        covered = np.append(start[0], reached[:-1])
        union[present] = np.add.reduceat(np.maximum(end - np.maximum(start, covered), 0), heads)
    return Busy(count, first, last, union)
