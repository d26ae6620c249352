"""Which sizes to add: those that save most, at most four more graphs, each worth its graph.

One size is added at a time, the one that saves most; :mod:`graphdiag.buckets.planner` has the sets
that are best as a whole. The price is step time where it was measured, else rows.
"""

from __future__ import annotations

import numpy as np

from graphdiag.buckets.changes import additions, moved
from graphdiag.buckets.flags import flags
from graphdiag.buckets.heldout import gain, split
from graphdiag.buckets.problem import Ints, Problem, Service, serve
from graphdiag.buckets.setting import Setting
from graphdiag.findings import Recommendation
from graphdiag.wording import count, percent

MAX_ADDED = 4
MIN_STEPS = 0.01
"""Least share of steps an added size must help."""
MIN_GAIN = 0.005
"""Least share of the price (step time, or executed rows) an added size must save."""


def recommend(setting: Setting) -> Recommendation | None:
    """Return the sizes to add to those captured; None where none is worth a graph.

    Out of a fallback trap the size that ends it comes first. Otherwise sizes fitted on one part of
    the traffic must gain on the rest, beyond noise.
    """
    current, traffic = setting.traffic.captured, setting.traffic
    trapped = setting.trapped_up_to
    if not len(current) or (not len(traffic.sizes) and trapped is None):
        return None
    problem = setting.problem()
    first = [] if trapped is None or trapped in current else [trapped]
    added = _added(problem, current, first)
    if not added or (not first and not _lasts(setting, problem)):
        return None
    buckets = np.union1d(current, added)
    now, then = serve(problem, current), serve(problem, buckets)
    sizes = [int(size) for size in buckets]
    return Recommendation(
        add=sorted(added),
        drop=[],
        buckets=sizes,
        why=_why(now, then, sorted(added), trapped),
        flags=flags(sizes, setting.config),
        padding_ratio=then.padding_ratio if trapped is None else None,
        fallback_rate=then.fallback_rate if trapped is None else None,
    )


def _added(problem: Problem, current: Ints, first: list[int]) -> list[int]:
    added = list(first)
    while len(added) < MAX_ADDED:
        size = best_addition(problem, np.union1d(current, np.array(added, np.int64)))
        if size is None:
            break
        added.append(size)
    return added


def best_addition(problem: Problem, buckets: Ints) -> int | None:
    """Return the size that saves most as a bucket; None where none helps and saves enough."""
    gains = additions(problem, buckets)
    price = serve(problem, buckets).price
    steps = problem.weights.sum()
    for index in np.argsort(-gains, kind="stable"):
        if gains[index] <= 0 or gains[index] < MIN_GAIN * price:
            return None
        size = int(problem.candidates[index])
        runs = moved(problem, buckets, np.union1d(buckets, [size]))
        if sum(run.steps for run in runs if run.gain > 0) >= MIN_STEPS * steps:
            return size
    return None


def _lasts(setting: Setting, problem: Problem) -> bool:
    """Say whether sizes fitted to one part of the traffic gain on the other, beyond noise."""
    parts = split(setting.traffic)
    if parts is None:
        return True
    current = setting.traffic.captured
    added = _added(problem.of(parts.fit), current, [])
    return bool(added) and gain([problem], current, np.union1d(current, added), parts).is_real


def _why(now: Service, then: Service, added: list[int], trapped_up_to: int | None) -> str:
    parts = []
    if now.padding_ratio is not None and then.padding_ratio is not None:
        before, after = percent(now.padding_ratio), percent(then.padding_ratio)
        if before != after:
            parts.append(f"padding from {before} to {after} of requested rows")
    if now.fallback_rate > 0:
        before, after = percent(now.fallback_rate), percent(then.fallback_rate)
        parts.append(f"fallback from {before} to {after} of steps")
    graphs = "one more graph" if len(added) == 1 else f"{len(added)} more graphs"
    over = f"over the {count(round(now.steps), 'step')} seen"
    what = f"Adding {', '.join(map(str, added))} ({graphs})"
    if trapped_up_to is None:
        return f"{what} takes {' and '.join(parts)}, {over}."
    rest = f", and takes {' and '.join(parts)}, {over} outside it" if parts else ""
    return f"{what} lets a batch of {trapped_up_to} replay, which ends the fallback trap{rest}."
