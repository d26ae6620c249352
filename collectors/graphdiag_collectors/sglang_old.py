"""Hooks on the graph runners of SGLang up to 0.5.13, and on the CPU graph runner of all versions.

There the runner holds the graphs itself: ``replay`` (``execute`` of the newer CPU graph runner)
runs one, and ``can_run`` decides. After a replay ``raw_bs`` and ``bs`` tell the sizes, except
where a runner sets them only when it pads, or not at all; then its list of buckets does.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.sglang_reasons import next_size, tokens_of, wanted_size
from graphdiag_collectors.sglang_runners import decide, draft_frame
from graphdiag_collectors.sglang_steps import THREAD
from graphdiag_collectors.sglang_words import artifact, graph_mode, role


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
            hooks.patch(owner, name, partial(_replay, guard=ran))


def _replay(original: Function, guard: Guard) -> Function:
    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on or tracker.replaying:
            return original(self, *args, **kwargs)
        start = perf_counter()
        raw = 0
        try:
            batch = args[0] if args else kwargs["forward_batch"]
            prefill = "prefill" in role(self)
            asked = tokens_of(batch) if prefill else batch.batch_size
            raw = int(asked if asked is not None else batch.batch_size)
        except Exception as error:
            guard.failed(error)
            return original(self, *args, **kwargs)
        tracker.replaying = True
        try:
            output = original(self, *args, **kwargs)
        finally:
            tracker.replaying = False
        try:
            end = perf_counter()
            frame = tracker.frame
            alone = frame is None
            if frame is None:
                frame = draft_frame(self, raw, batch)
                frame.start = start
            _fill(frame, self, raw, prefill)
            frame.launch += end - start
            if frame.runner == "draft":
                tracker.refused = None
            elif not prefill and (wanted_size(self, batch) or 0) > raw:
                frame.reason = "dp_sync"
            if alone:
                tracker.close(frame)
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return output

    return replay


def _fill(frame: Any, runner: Any, raw: int, prefill: bool) -> None:
    bucket = bucket_of(runner, raw, prefill)
    frame.replayed = True
    frame.reason = None
    frame.bucket = bucket
    frame.artifact = None if bucket is None else artifact(role(runner), bucket)
    frame.mode = graph_mode(runner)
    frame.replays += 1


def bucket_of(runner: Any, raw: int, prefill: bool) -> int | None:
    """Return the bucket a runner has just replayed for ``raw`` requests or tokens."""
    if prefill:
        return next_size(getattr(runner, "capture_num_tokens", None) or (), raw)
    sizes = getattr(runner, "capture_bs", None) or ()
    if type(runner).__name__ == "CPUGraphRunner" or not hasattr(runner, "bs"):
        return next_size(sizes, raw)
    return int(runner.bs)
