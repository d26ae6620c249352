r"""Least prices by number of buckets and largest bucket, for one stretch of sizes.

With candidates :math:`c_1 < … < c_m` (and :math:`c_0` below all sizes), :math:`W_i` the steps up to
:math:`c_i` and :math:`T_j` the price of replaying :math:`c_j`, the least price of serving all sizes
up to :math:`c_j` with at most k buckets of which :math:`c_j` is the largest is

.. math:: f_k(j) = \min_{i \le j} f_{k-1}(i) + T_j (W_j - W_i).

Where :math:`T` never falls, :math:`C(i, j) = T_j (W_j - W_i)` is Monge: for a ≤ b ≤ c ≤ d,

.. math:: C(a,c) + C(b,d) - C(a,d) - C(b,c) = (T_c - T_d)(W_b - W_a) \le 0,

and, more than that, a line in :math:`T_j`: the minimum over i is the lower envelope of the lines
:math:`f_{k-1}(i) - t W_i` at :math:`t = T_j`. Its corners are those of the greatest convex minorant
of the points :math:`(W_i, f_{k-1}(i))`, which isotonic regression of their slopes gives in linear
time (Barlow et al., Statistical Inference under Order Restrictions, 1972, theorem 1.1). A layer so
costs O(m), where divide and conquer over a Monge matrix costs O(m log m) (Aggarwal et al.,
Geometric applications of a matrix-searching algorithm, Algorithmica 2, 1987).

The bound i ≤ j need not be enforced: for i > j, dropping from the set behind :math:`f_{k-1}(i)`
what lies above :math:`c_j` saves at least :math:`T_j` for each of the :math:`W_i - W_j` steps, so
that :math:`f_{k-1}(j) \le f_{k-1}(i) - T_j (W_i - W_j)` already.

Where a bucket is several graphs and k counts graphs, layer k of a bucket of g graphs follows layer
k - g. Larger buckets are never more graphs, so that columns fall into spans of as many each. The
argument holds within a span: the set that ends in :math:`c_i` is no more graphs with :math:`c_j` in
place of what lies above it. A span so needs no point beyond its own end.

Where prices fall somewhere, or an engine leaves a size eager because its bucket is too large
(``within``), the cost need not be Monge, and every pair (i, j) is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from graphdiag.buckets.problem import Floats, Ints

MOST_PAIRS = 2048
"""Most candidates of which every pair is looked at."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Stretch:
    """Sizes between two buckets that are given, and the candidates that may serve them.

    Attributes
    ----------
    candidates, replay
        Buckets to choose from, ascending, and the price of a step that replays them.
    steps, eager
        Steps, and their price if all ran eager, up to ``candidates[i - 1]`` at index i; 0 at 0.
    graphs
        Graphs captured for each candidate, never more for a larger one.
    unserved, unserved_eager
        Where an engine replays no bucket that is too large: steps, and their eager price, of the
        sizes that are too small for ``candidates[i - 1]``; else None.
    """

    candidates: Ints
    replay: Floats
    steps: Floats
    eager: Floats
    graphs: Ints
    unserved: Floats | None = None
    unserved_eager: Floats | None = None

    def upto(self, last: int) -> Stretch:
        """Return the stretch with its first ``last`` candidates alone."""
        small, small_eager = self.unserved, self.unserved_eager
        return Stretch(
            candidates=self.candidates[:last],
            replay=self.replay[:last],
            steps=self.steps[: last + 1],
            eager=self.eager[: last + 1],
            graphs=self.graphs[:last],
            unserved=None if small is None else small[:last],
            unserved_eager=None if small_eager is None else small_eager[:last],
        )


@dataclass(frozen=True)
class Layers:
    """The tables of one stretch; column 0 stands for no bucket.

    ``price[k, j]`` is the least price of the sizes up to candidate j - 1, that one the largest of
    at most k graphs; inf where there is none. ``before[k, j]`` is the column of the next smaller
    bucket, or j itself where one graph fewer does as well. ``graphs`` are those of each candidate.
    """

    price: Floats
    before: NDArray[np.int32]
    graphs: Ints

    def columns(self, count: int, column: int) -> list[int]:
        """Return the columns of the buckets behind ``price[count, column]``, ascending."""
        found = []
        while column > 0:
            before = int(self.before[count, column])
            if before == column:
                count -= 1
                continue
            found.append(column)
            column, count = before, count - int(self.graphs[column - 1])
        return found[::-1]


def solve(stretch: Stretch, most: int) -> Layers:
    """Return the tables for up to ``most`` graphs."""
    width = len(stretch.candidates) + 1
    price = np.full((most + 1, width), np.inf)
    before = np.zeros((most + 1, width), np.int32)
    price[:, 0] = 0.0
    layer = _by_envelope if is_monge(stretch) else _by_pairs
    own = np.arange(width)
    ends = np.flatnonzero(np.diff(stretch.graphs, append=0)) + 1
    spans = [
        (first + 1, last, stretch.upto(last), int(stretch.graphs[last - 1]))
        for first, last in pairwise([0, *ends.tolist()])
    ]
    for count in range(1, most + 1):
        price[count] = price[count - 1]
        before[count] = own
        for first, last, part, graphs in spans:
            if graphs > count:
                continue
            best, column = layer(part, price[count - graphs, : last + 1])
            span = slice(first, last + 1)
            better = best[span] < price[count, span]
            price[count, span] = np.where(better, best[span], price[count, span])
            before[count, span] = np.where(better, column[span], own[span])
    return Layers(price, before, stretch.graphs)


def is_monge(stretch: Stretch) -> bool:
    """Say whether the cost is Monge: replay prices never fall, and no size is left eager."""
    return stretch.unserved is None and bool((np.diff(stretch.replay) >= 0).all())


def _by_envelope(stretch: Stretch, last: Floats) -> tuple[Floats, Ints]:
    """Return the next layer by the lower envelope; the last column precedes nothing."""
    points, replay, steps = last[:-1], stretch.replay, stretch.steps
    there = np.flatnonzero(np.isfinite(points))
    width = np.diff(steps[there])
    if not width.all():  # of points at the same place the lowest counts
        there = there[np.lexsort((points[there], steps[there]))]
        there = there[np.diff(steps[there], prepend=-1.0) > 0]
        width = np.diff(steps[there])
    if len(width):
        minorant = isotonic_regression(np.diff(points[there]) / width, weights=width)
        blocks = np.asarray(minorant.blocks, dtype=np.int64)
        corner = np.searchsorted(minorant.x[blocks[:-1]], replay)
        corners: Ints = there[blocks]
    else:
        corners, corner = there, np.zeros(len(replay), np.int64)
    own = np.arange(1, len(last))
    best, column = np.full(len(replay), np.inf), np.zeros(len(replay), np.int64)
    for aside in (-1, 0, 1):  # the regression's rounding may miss the corner by one
        near = np.minimum(corners[np.clip(corner + aside, 0, len(corners) - 1)], own - 1)
        found = points[near] + replay * (steps[1:] - steps[near])
        better = found < best
        best[better], column[better] = found[better], near[better]
    return np.concatenate([[0.0], best]), np.concatenate([[0], column])


def _by_pairs(stretch: Stretch, last: Floats) -> tuple[Floats, Ints]:
    """Return the next layer from all pairs.

    Sizes too small for bucket j run eager. Where the bucket before is above them all, they are
    none; where it is below, they cost the same whatever it is, but for its own sizes.
    """
    count = len(stretch.replay)
    steps, eager = stretch.steps, stretch.eager
    small = np.zeros(count) if stretch.unserved is None else stretch.unserved
    small_eager = np.zeros(count) if stretch.unserved_eager is None else stretch.unserved_eager
    best, column = np.full(count, np.inf), np.zeros(count, np.int64)
    rows = max(1, _CHUNK // len(last))
    own = np.arange(count + 1)
    for first in range(0, count, rows):
        j = slice(first, min(first + rows, count))
        begin = np.maximum(steps[None, :], small[j, None])
        left = np.maximum(small_eager[j, None] - eager[None, :], 0.0)
        left = np.where(steps[None, :] < small[j, None], left, 0.0)
        cost = last[None, :] + stretch.replay[j, None] * (steps[1:][j, None] - begin) + left
        cost[own[None, :] > np.arange(first, j.stop)[:, None]] = np.inf
        column[j] = np.argmin(cost, axis=1)
        best[j] = cost[np.arange(j.stop - first), column[j]]
    return np.concatenate([[0.0], best]), np.concatenate([[0], column])
