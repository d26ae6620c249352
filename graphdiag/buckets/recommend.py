"""Which sizes to add: those that remove most padding and fallback, at most four more graphs.

The price is in rows, which every source has: a padded step costs its padded rows, an eager step
above the largest bucket its requested rows once more. One size is added at a time, the one that
saves most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiag.buckets.flags import flags
from graphdiag.buckets.histogram import Histogram, Ints
from graphdiag.findings import Recommendation
from graphdiag.runconfig import positive_int
from graphdiag.wording import count, percent

MAX_ADDED = 4
_MIN_STEPS = 0.01
"""Least share of steps an added size must help."""
_MIN_ROWS = 0.005
"""Least share of executed rows an added size must save."""


@dataclass(frozen=True)
class Fit:
    """How a bucket set serves a histogram: shares over its steps and rows.

    ``padding_ratio`` is padded / requested rows of replayed steps, None where none replays;
    ``fallback_rate`` is the share of steps above the largest bucket.
    """

    padding_ratio: float | None
    fallback_rate: float


def fit(traffic: Histogram, buckets: Ints) -> Fit:
    """Return how ``buckets`` (ascending) serve ``traffic``: each size the next bucket up."""
    total = int(traffic.counts.sum())
    slot = np.searchsorted(buckets, traffic.sizes)
    inside = slot < len(buckets)
    served = traffic.counts[inside]
    requested = int((served * traffic.sizes[inside]).sum())
    executed = int((served * buckets[slot[inside]]).sum())
    return Fit(
        padding_ratio=(executed - requested) / requested if requested else None,
        fallback_rate=1 - int(served.sum()) / total if total else 0.0,
    )


def recommend(
    traffic: Histogram,
    config: dict[str, Any],
    trapped_up_to: int | None = None,
    leave_large_eager: bool = False,
) -> Recommendation | None:
    """Return the sizes to add to ``traffic.captured``; None where none is worth a graph.

    ``leave_large_eager`` says that eager steps were measured to be faster than replay would be, so
    that none above the largest bucket needs a bucket.

    ``trapped_up_to`` is the size that would have kept the engine out of a fallback trap: it is
    added first, and the sizes between it and the largest bucket get no bucket of their own and
    count for nothing, since batches that large came only from running eager.
    """
    if not len(traffic.captured) or not len(traffic.sizes):
        return None
    buckets = traffic.captured
    added: list[int] = []
    limit = positive_int(config, "token_budget") if traffic.axis == "tokens" else None
    if trapped_up_to is not None or leave_large_eager:
        limit = int(buckets[-1])
    if trapped_up_to is not None:
        added.append(trapped_up_to)
        buckets = np.union1d(buckets, [trapped_up_to])
    while len(added) < MAX_ADDED:
        size = best_addition(traffic, buckets, limit)
        if size is None:
            break
        added.append(size)
        buckets = np.union1d(buckets, [size])
    if not added:
        return None
    lasting = traffic if trapped_up_to is None else _up_to(traffic, int(traffic.captured[-1]))
    now, then = fit(lasting, traffic.captured), fit(lasting, buckets)
    sizes = [int(size) for size in buckets]
    return Recommendation(
        add=sorted(added),
        drop=[],
        buckets=sizes,
        why=_why(now, then, sorted(added), int(lasting.counts.sum()), trapped_up_to),
        flags=flags(sizes, config),
        padding_ratio=then.padding_ratio if trapped_up_to is None else None,
        fallback_rate=then.fallback_rate if trapped_up_to is None else None,
    )


def best_addition(traffic: Histogram, buckets: Ints, limit: int | None = None) -> int | None:
    """Return the requested size that saves most rows as a bucket; None where none saves enough.

    With W and R the running sums of steps and of requested rows, a bucket c put between neighbours
    lo < c < hi saves (W(c) - W(lo)) · (hi - c) padded rows; above the largest bucket it turns the
    eager steps in (lo, c] into replays and saves Σ w·n - Σ w·(c - n) = 2·ΔR - c·ΔW.
    """
    sizes, counts = traffic.sizes, traffic.counts
    steps = np.concatenate([[0], np.cumsum(counts)])
    rows = np.concatenate([[0], np.cumsum(counts * sizes)])
    slot = np.searchsorted(buckets, sizes)
    below = np.where(slot > 0, buckets[np.maximum(slot - 1, 0)], 0)
    first = np.searchsorted(sizes, below, side="right")
    helped = steps[1:] - steps[first]
    inside = slot < len(buckets)
    above = buckets[np.minimum(slot, len(buckets) - 1)]
    saved = np.where(
        inside,
        helped * (above - sizes),
        2 * (rows[1:] - rows[first]) - sizes * helped,
    )
    executed = rows[-1] + np.where(inside, counts * (above - sizes), counts * sizes).sum()
    worth = (helped >= _MIN_STEPS * steps[-1]) & (saved >= _MIN_ROWS * executed)
    if limit is not None:
        worth &= sizes <= limit
    if not worth.any():
        return None
    return int(sizes[np.argmax(np.where(worth, saved, -1))])


def _up_to(traffic: Histogram, size: int) -> Histogram:
    below = traffic.sizes <= size
    return Histogram(traffic.sizes[below], traffic.counts[below], traffic.axis, traffic.captured)


def _why(now: Fit, then: Fit, added: list[int], steps: int, trapped_up_to: int | None) -> str:
    parts = []
    if now.padding_ratio is not None and then.padding_ratio is not None:
        before, after = percent(now.padding_ratio), percent(then.padding_ratio)
        if before != after:
            parts.append(f"padding from {before} to {after} of requested rows")
    if now.fallback_rate > 0:
        before, after = percent(now.fallback_rate), percent(then.fallback_rate)
        parts.append(f"fallback from {before} to {after} of steps")
    graphs = "one more graph" if len(added) == 1 else f"{len(added)} more graphs"
    over = f"over the {count(steps, 'step')} seen"
    what = f"Adding {', '.join(map(str, added))} ({graphs})"
    if trapped_up_to is None:
        return f"{what} takes {' and '.join(parts)}, {over}."
    rest = f", and takes {' and '.join(parts)}, {over} outside it" if parts else ""
    return f"{what} lets a batch of {trapped_up_to} replay, which ends the fallback trap{rest}."
