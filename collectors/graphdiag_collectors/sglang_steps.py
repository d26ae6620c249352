"""The step that is under way, and how it becomes a row.

A :class:`Frame` is one forward: ``ModelRunner.forward`` opens it, the hooks inside fill it in, and
it becomes one row when the engine has its result. A forward of the scheduler's belongs to a
:class:`Batch`, whose result comes later, often after the next batch was launched; its time then
runs from the result before it, or from its own launch where the engine was idle, so that the
times of all steps add up to the time the engine was at work. Where a forward has its result when
it returns, as on a CPU, the time is that of its batch alone.
"""

from __future__ import annotations

import threading
from collections import deque
from math import isnan
from time import perf_counter

from graphdiag_collectors import session
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.channel import Channel
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.sglang_words import Mode

MOST_PENDING = 8
"""Batches whose result may be outstanding; an older one is recorded without its time."""

_NAN = float("nan")


class Frame:
    """One forward. Times are seconds of ``perf_counter``; None stands for unknown.

    Attributes
    ----------
    expects
        Whether graphs are on for this sort of step, so that running eager is a fallback.
    synchronous
        Whether the forward has its result when it returns, as on a CPU.
    """

    end = _NAN
    num_tokens: int | None = None
    kv_tokens: int | None = None
    query_len: int | None = None
    loras: int | None = None
    kind: str | None = None
    mode = "eager"
    replayed = False
    replays = 0
    bucket: int | None = None
    artifact: str | None = None
    reason: str | None = None
    dispatch = 0.0
    launch = 0.0
    expects = False
    synchronous = False

    def __init__(self, what: Mode, runner: str, requested: int | None, num_reqs: int) -> None:
        self.start = perf_counter()
        self.what = what
        self.runner = runner
        self.requested = requested
        self.num_reqs = num_reqs
        if what.kind is not None:
            self.kind = what.kind


class Batch:
    """One batch the scheduler ran, and the forwards that made it up."""

    __slots__ = ("end", "frames", "kind", "queued", "result", "start")

    def __init__(self, queued: int | None, kind: str | None) -> None:
        self.start = perf_counter()
        self.end = _NAN
        self.queued = queued
        self.kind = kind
        self.frames: list[Frame] = []
        self.result = 0


class Tracker:
    """What one thread of the engine is doing.

    Attributes
    ----------
    frame
        The forward under way, or None.
    batch
        The scheduler's batch under way, or None.
    capturing
        How many capture sessions are open, one within the other.
    pending
        Batches that were run and whose result is outstanding, oldest first.
    replaying
        Whether a graph is being replayed: what a replay of the engine calls is no second one.
    refused
        Why the drafter's graphs turned the last draft down, a key of ``sglang_reasons.MEANING``.
    retracted
        Requests retracted since the last batch of the scheduler.
    """

    __slots__ = (
        "_channels",
        "_recorder",
        "_result_at",
        "batch",
        "capturing",
        "frame",
        "pending",
        "refused",
        "replaying",
        "retracted",
    )

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.batch: Batch | None = None
        self.capturing = 0
        self.pending: deque[Batch] = deque()
        self.replaying = False
        self.refused: str | None = None
        self.retracted = 0
        self._result_at = 0.0
        self._recorder: Recorder | None = None
        self._channels: dict[str, Channel] = {}

    def close(self, frame: Frame) -> None:
        """Take a forward that has returned: a row now, or with the result of its batch."""
        frame.end = perf_counter()
        batch = self.batch
        if batch is not None:
            frame.kind = frame.kind or batch.kind
            batch.frames.append(frame)
        else:
            self._record(frame, frame.start, frame.end if frame.synchronous else _NAN, None)

    def launched(self, batch: Batch, result: object) -> None:
        """Take a batch that ``run_batch`` returned ``result`` for."""
        if batch.frames:
            batch.end = perf_counter()
            batch.result = id(result)
            self.pending.append(batch)
            if len(self.pending) > MOST_PENDING:
                self._record_batch(self.pending.popleft(), _NAN, None)

    def finished(self, result: object, tokens_out: int | None) -> None:
        """Record the batch that ``result`` belongs to, which the engine has just processed."""
        end = perf_counter()
        wanted = id(result)
        for batch in reversed(self.pending):
            if batch.result == wanted:
                break
        else:
            self._result_at = end
            return
        while True:
            oldest = self.pending.popleft()
            if oldest is batch:
                break
            self._record_batch(oldest, _NAN, None)
        self._record_batch(batch, end, tokens_out)
        self._result_at = end

    def abandon(self, batch: Batch) -> None:
        """Record the forwards of a batch that raised."""
        self._record_batch(batch, _NAN, None)

    def _record_batch(self, batch: Batch, end: float, tokens_out: int | None) -> None:
        frames, batch.frames = batch.frames, []
        main = next((one for one in reversed(frames) if one.runner == "target"), None)
        for frame in frames:
            if frame is main and frame.synchronous:
                self._record(frame, batch.start, batch.end, tokens_out, batch.queued)
            elif frame is main:
                begin = frame.start if isnan(end) else max(batch.start, self._result_at)
                self._record(frame, begin, end, tokens_out, batch.queued)
            else:
                self._record(frame, frame.start, frame.end if frame.synchronous else _NAN, None)

    def _record(
        self,
        frame: Frame,
        begin: float,
        end: float,
        tokens_out: int | None,
        queued: int | None = None,
    ) -> None:
        channel = self._channel(frame.runner)
        if channel is None:
            return
        outcome = None
        if not frame.replayed:
            outcome = "fallback" if frame.expects else "eager"
        if tokens_out is None and frame.what.phase == "decode" and frame.runner == "target":
            tokens_out = frame.num_reqs
        preempted = self.retracted
        if preempted:
            self.retracted = 0
        channel.record(
            requested=frame.requested,
            bucket=frame.bucket,
            artifact=frame.artifact,
            mode=frame.mode,
            outcome=outcome,
            reason=frame.reason,
            clock=(begin, end),
            phase=frame.what.phase,
            axis=frame.what.axis,
            kind=frame.kind,
            num_reqs=frame.num_reqs,
            num_tokens=NULL if frame.num_tokens is None else frame.num_tokens,
            kv_tokens=NULL if frame.kv_tokens is None else frame.kv_tokens,
            query_len=NULL if frame.query_len is None else frame.query_len,
            loras=NULL if frame.loras is None else frame.loras,
            tokens_out=NULL if tokens_out is None else tokens_out,
            replays=frame.replays,
            dispatch_ns=int(frame.dispatch * 1e9),
            host_ns=int((frame.end - frame.start) * 1e9),
            graph_launch_ns=int(frame.launch * 1e9) if frame.replayed else NULL,
            queued=NULL if queued is None else queued,
            preempted=preempted or NULL,
        )

    def _channel(self, runner: str) -> Channel | None:
        recorder = session.current()
        if recorder is not self._recorder:
            self._recorder = recorder
            self._channels = {}
        if recorder is None:
            return None
        channel = self._channels.get(runner)
        if channel is None:
            channel = self._channels[runner] = recorder.channel(runner=runner)
        return channel


class _Threads(threading.local):
    """The tracker of each thread, made when it is first asked for."""

    def __init__(self) -> None:
        self.tracker = Tracker()


THREAD = _Threads()
"""``THREAD.tracker`` is the tracker of the thread that asks."""
