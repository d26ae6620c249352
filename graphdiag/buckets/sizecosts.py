"""Replay against eager, size by size: where padding outweighs the launches it saves."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from graphdiag.buckets.answer import Slope
from graphdiag.buckets.prices import TimePrices
from graphdiag.buckets.problem import Ints, Problem, buckets_of
from graphdiag.buckets.setting import Setting
from graphdiag.findings import SizeCost

_NS_PER_MS = 1e6
_MOST_RANGES = 4


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


def costs_of(setting: Setting) -> list[SizeCost]:
    """Return :func:`size_costs` under the sizes that the engine has now."""
    captured = setting.rules.normalised(setting.traffic.captured.tolist())
    return size_costs(setting.problem(), np.array(captured, np.int64), setting.times)


def winner(costs: list[SizeCost]) -> str | None:
    """Return which of replay and eager is faster at which sizes; None where none is told."""
    net = [(one.requested, one.net_ms) for one in costs if one.net_ms is not None]
    if not net:
        return None
    runs = [
        (wins, [size for size, _ in run])
        for wins, run in groupby(net, key=lambda pair: pair[1] >= 0)
    ]
    wins, last = runs[-1]
    if len(runs) == 1:
        if wins:
            return f"Replay is faster than eager at every size that replays: {_range(last)}."
        return (
            f"Eager is faster than replay at every size that replays: {_range(last)}. Padding "
            "outweighs the launches that replay saves."
        )
    why = "where padding outweighs the launches that replay saves"
    losing = [_range(run) for won, run in runs[:-1] if not won]
    more = f" and {len(losing) - _MOST_RANGES} more ranges" if len(losing) > _MOST_RANGES else ""
    listed = f"{', '.join(losing[:_MOST_RANGES])}{more}"
    if wins:
        return f"Replay is faster from {last[0]} on; eager is at {listed}, {why}."
    also = f" and at {listed}" if losing else ""
    return f"Eager is faster from {last[0]} on{also}, {why}; replay is at the other sizes."


def _range(sizes: list[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def slope_of(times: TimePrices | None) -> Slope | None:
    """Return what one more row costs a replayed step; None without times."""
    if times is None:
        return None
    interval = times.slope_ci95
    return Slope(
        ms_per_row=times.curve.slope / _NS_PER_MS,
        ci95=None if interval is None else (interval[0] / _NS_PER_MS, interval[1] / _NS_PER_MS),
    )
