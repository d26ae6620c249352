"""Replay against eager, size by size: where padding outweighs the launches it saves."""

from __future__ import annotations

import numpy as np

from graphdiag.buckets.answer import SizeCost, Slope
from graphdiag.buckets.prices import TimePrices
from graphdiag.buckets.problem import Ints, Problem, buckets_of

_NS_PER_MS = 1e6


def size_costs(problem: Problem, buckets: Ints, times: TimePrices | None) -> list[SizeCost]:
    """Return every requested size under ``buckets``, ascending.

    A replay of n rows in bucket b saves the launches of an eager step of n rows and executes b - n
    rows for nothing: its net is saving(n) - (replay(b) - replay(n)). What has no bucket, and what
    was not timed, is None.
    """
    found = buckets_of(problem, buckets)
    sizes = problem.sizes.astype(np.float64)
    padded = np.where(found > 0, found - problem.sizes, 0)
    known = times is not None and len(times.saved) > 0
    if times is not None:
        own, saving = times.curve.at(sizes) / _NS_PER_MS, times.saving(sizes) / _NS_PER_MS
        replay = times.curve.at(np.maximum(found, problem.sizes).astype(np.float64)) / _NS_PER_MS
        context = times.row_context * sizes / _NS_PER_MS
    costs = []
    for index, size in enumerate(problem.sizes.tolist()):
        bucket = int(found[index]) or None
        timed = times is not None and bucket is not None
        waste = float(replay[index] - own[index]) if timed else None
        saved = float(saving[index]) if known else None
        costs.append(
            SizeCost(
                requested=size,
                steps=float(problem.weights[index]),
                bucket=bucket,
                padded_rows=int(padded[index]) if bucket else None,
                replay_ms=float(replay[index] + context[index]) if timed else None,
                eager_ms=float(own[index] + saving[index] + context[index]) if known else None,
                padded_ms=waste,
                launch_saving_ms=saved,
                net_ms=None if waste is None or saved is None else saved - waste,
            )
        )
    return costs


def slope_of(times: TimePrices | None) -> Slope | None:
    """Return what one more row costs a replayed step; None without times."""
    if times is None:
        return None
    interval = times.slope_ci95
    return Slope(
        ms_per_row=times.curve.slope / _NS_PER_MS,
        ci95=None if interval is None else (interval[0] / _NS_PER_MS, interval[1] / _NS_PER_MS),
    )
