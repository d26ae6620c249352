"""Rows of steps off the common path: in a profile window, or with a result that nobody fetches."""

from __future__ import annotations

from collections import deque
from typing import Any

from graphdiag_collectors import profiler
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.channel import Channel
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.vllm_lane import ShapedChannel

Row = tuple[Any, ...]
"""A step that waits for its result: whose it is, what :func:`profiled` returned, start, clock
before and after the dispatch, clock when the model was launched, context, tokens, requests, tokens
sampled where every request gets one, and code of the shape."""
Waiting = list[Row]
"""A row, popped by whoever writes it, so that only one does."""


def profiled(runner: Any, plan: Any, dummy: bool = False, *_: Any) -> Any:
    """Say to the open profile window that a step begins, and return what became of it.

    False where the step is not profiled, whose row the window must be given all the same.
    """
    before = runner.__dict__.get("_graphdiag_held")
    if before:
        profiler.step_ended(before)  # where that step raised
    serves = plan.total_num_scheduled_tokens and not dummy
    return (serves and profiler.step_begun()) or False


class StepRows:
    """Where the steps of one runner are written.

    Attributes
    ----------
    rows
        The channel of the common path, and in ``lane`` its rows.
    late
        The same where results are fetched by another thread, which writes there; else None.
    channel
        For rows that the engine's own thread writes.
    waiting
        Steps whose results are under way, the oldest first.
    fetched_type
        The class of those results, once one was seen.
    """

    def __init__(self, recorder: Recorder, deferred: bool) -> None:
        rows = recorder.channel_of(ShapedChannel, runner="target", axis="tokens")
        self.late = rows if deferred else None
        self.lane = rows.shaped
        self.waiting: deque[Waiting] = deque()
        self.fetched_type: type[Any] | None = None
        self.rows = rows
        self.channel = recorder.channel(runner="target", axis="tokens") if deferred else rows

    def drain(self) -> None:
        """Write the steps whose results nobody fetched."""
        while self.waiting:
            self.give_up(self.waiting.popleft())

    def forked(self) -> None:
        """Forget the steps that wait for their results, in a child: they are the parent's."""
        while self.waiting:
            self.waiting.popleft().clear()

    def is_fetched(self, output: Any) -> bool:
        """Whether ``output`` is a promise of a result; remembers its class where it is."""
        promised = hasattr(output, "get_output")
        if promised:
            self.fetched_type = type(output)
        return promised

    def give_up(self, waiting: Waiting) -> None:
        """Write a step whose result nobody has fetched, unless somebody just has."""
        try:
            _, held, start, began, chosen, launched, kv, tokens, reqs, _, code = waiting.pop()
        except IndexError:
            return
        end = float("nan")
        # fmt: off
        self.record(
            self.channel, held, start, end, began, chosen, launched, kv, tokens, reqs, NULL, code
        )
        # fmt: on

    def record(
        self,
        channel: Channel,
        held: Any,
        start: float,
        end: float,
        began: float,
        chosen: float,
        launched: float,
        kv: int,
        tokens: int,
        reqs: int,
        produced: int,
        code: int,
    ) -> None:
        """Write a row that is in a profile window, or not in the lane of all others."""
        label, bucket, query, replays, loras, replayed, gone = self.lane.shapes[code]
        words = self.rows.labels.words[label]
        columns: dict[str, Any] = {
            "requested": tokens,
            "bucket": bucket,
            "artifact": words.artifact,
            "mode": words.mode,
            "outcome": words.outcome,
            "reason": words.reason,
            "clock": (start, end),
            "phase": words.phase,
            "num_reqs": reqs,
            "num_tokens": tokens,
            "kv_tokens": kv,
            "tokens_out": produced,
            "query_len": query,
            "replays": replays,
            "dispatch_ns": ns_of(chosen - began),
            "host_ns": ns_of(launched - start),
            "loras": loras,
            "loras_replayed": replayed,
            "preempted": gone,
        }
        if held is None:
            channel.record(**columns)
        else:
            profiler.record(held or None, channel, **columns)


def ns_of(seconds: float) -> int:
    """Return whole ns."""
    return round(seconds * 1e9)
