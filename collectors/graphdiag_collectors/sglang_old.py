"""Hooks on the graph runners of SGLang up to 0.5.13, and on the CPU graph runner of all versions.

There the runner holds the graphs itself: ``replay`` (``execute`` of the newer CPU graph runner)
runs one, and ``can_run`` decides. After a replay ``raw_bs`` and ``bs`` tell the sizes, except
where a runner sets them only when it pads, or not at all; then its list of buckets does.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_reasons import next_size, tokens_of, wanted_size
from graphdiag_collectors.sglang_replay import around_replay, enter_draft, traits_of
from graphdiag_collectors.sglang_rows import Graph
from graphdiag_collectors.sglang_runners import decide
from graphdiag_collectors.sglang_steps import GRAPH, LAUNCH, REASON, REPLAYS, Tracker
from graphdiag_collectors.sglang_words import artifact, graph_mode, role

_KNOWN = "_graphdiag_graphs"


def patch_old_runner(hooks: Hooks, owner: type) -> None:
    """Patch the deciding and the replaying method of a runner class that holds its graphs."""
    names = vars(owner)
    for name in ("can_run", "can_run_graph"):
        if name in names:
            asked = hooks.guard("sglang.can_run")
            hooks.patch(owner, name, partial(decide, guard=asked))
    for name in ("replay", "execute"):
        if name in names:
            ran = hooks.guard("sglang.replay")
            hooks.patch(
                owner, name, partial(around_replay, guard=ran, before=_asked, after=_replayed)
            )


def _asked(runner: Any, batch: Any) -> int:
    """Return what a batch asks for, requests or tokens, before the runner pads it."""
    size = tokens_of(batch) if traits_of(runner).prefill else None
    return int(batch.batch_size if size is None else size)


def _replayed(tracker: Tracker, runner: Any, batch: Any, raw: int, took: float) -> None:
    """Fill in the step under way, or record one where the runner replays outside of any."""
    traits = traits_of(runner)
    seen = tracker.seen
    if seen is None:
        alone = enter_draft(tracker, runner, raw, batch)
        if alone is not None:
            _replayed(tracker, runner, batch, raw, took)
            tracker.close(alone, perf_counter() - took, None, None)
        return
    seen[GRAPH] = _graph(runner, bucket_of(runner, raw, traits.prefill))
    seen[REASON] = None
    seen[LAUNCH] += took
    seen[REPLAYS] += 1
    if traits.draft:
        tracker.refused = None
    elif not traits.prefill and (wanted_size(runner, batch) or 0) > raw:
        seen[REASON] = "dp_sync"


def _graph(runner: Any, bucket: int | None) -> Graph:
    """Return what we know of the graph of a bucket, worked out at its first replay."""
    known = vars(runner).get(_KNOWN)
    if known is None:
        known = {}
        setattr(runner, _KNOWN, known)
    graph: Graph | None = known.get(bucket)
    if graph is None:
        name = None if bucket is None else artifact(role(runner), bucket)
        graph = Graph(name, NULL if bucket is None else bucket, graph_mode(runner), 1)
        known[bucket] = graph
    return graph


def bucket_of(runner: Any, raw: int, prefill: bool) -> int | None:
    """Return the bucket a runner has just replayed for ``raw`` requests or tokens."""
    if prefill:
        return next_size(getattr(runner, "capture_num_tokens", None) or (), raw)
    sizes = getattr(runner, "capture_bs", None) or ()
    if type(runner).__name__ == "CPUGraphRunner" or not hasattr(runner, "bs"):
        return next_size(sizes, raw)
    return int(runner.bs)
