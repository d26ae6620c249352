"""The hot path: what the engine's thread runs for every step.

A narrow step, whose size, bucket and artifact are all there is to say, is one call of
``struct.pack_into``; what is rarer takes a wider record in the same row. Everything that can go
wrong goes the slow way round, :meth:`Channel.place`, and nothing is raised into the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from types import TracebackType
from typing import Any

from graphdiag_collectors.blocks import (
    NARROW_ROW,
    NARROW_WIDTH,
    NULL,
    RARE,
    RARE_AT,
    WIDE,
    WIDE_ROW,
    WIDE_WIDTH,
    Fields,
    Lane,
    join,
    pack_narrow,
    pack_rare,
    pack_wide,
)
from graphdiag_collectors.labels import Labels, Words

_NAN = float("nan")
_TOLD = ("requested", "bucket", "artifact", "mode", "outcome", "reason", "clock")
_NOTHING = (NULL,) * len(RARE)

Refuse = Callable[[str], None]
Start = Callable[[Lane], None]


class Step:
    """One step of the engine, from ``with`` to the end of its block.

    What became of it is said by one of :meth:`replayed`, :meth:`fallback`, :meth:`eager` and
    :meth:`captured`; a step that says nothing is recorded with its time and sizes. The object is
    used again for the next step, so do not keep it.
    """

    __slots__ = (
        *("_bucket", "_channel", "_codes", "_label", "_lane", "_more", "_requested", "_start"),
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lane = channel.narrow
        self._codes = channel.labels.codes
        self._start: float | None = None
        self._requested: int | None = None
        self._bucket: int | None = NULL
        self._label: Any = None
        self._more: dict[str, Any] = {}

    def replayed(
        self,
        bucket: int | None,
        artifact: str | None = None,
        mode: str | None = None,
        replays: int | None = None,
    ) -> None:
        """Say that a captured graph of size ``bucket`` was replayed, in ``replays`` launches."""
        self._bucket = bucket
        if mode is None and replays is None:
            self._label = artifact
        else:
            self._label = (None, None, None, None, mode, None, None, artifact)
            if replays is not None:
                self._more["replays"] = replays

    def fallback(self, reason: str = "unknown", mode: str | None = None) -> None:
        """Say that graphs are on and the step ran without; reasons are ``schema.REASONS``."""
        self._bucket = NULL
        self._label = (None, None, None, None, mode, "fallback", reason, None)

    def eager(self, mode: str | None = None) -> None:
        """Say that graphs are off by configuration and the step ran without."""
        self._bucket = NULL
        self._label = (None, None, None, None, mode, "eager", None, None)

    def captured(
        self,
        bucket: int | None = None,
        artifact: str | None = None,
        mode: str | None = None,
        compile_ns: int | None = None,
    ) -> None:
        """Say that an artifact was captured or compiled inside the step, in ``compile_ns``."""
        self._bucket = bucket
        self._label = (None, None, None, None, mode, "capture", None, artifact)
        if compile_ns is not None:
            self._more["compile_ns"] = compile_ns

    def set(self, **columns: Any) -> None:
        """Add columns of the schema, such as ``tokens_out``; the latest value counts."""
        self._more.update(columns)

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = perf_counter()
        try:
            if self._more:
                self._widen(end)
            else:
                lane = self._lane
                offset = lane.offset
                pack_narrow(
                    lane.block,
                    offset,
                    self._start,
                    end,
                    self._requested,
                    self._bucket,
                    self._codes[self._label],
                )
                lane.offset = offset + NARROW_WIDTH
        except Exception:
            numbers = (self._start, end, self._requested, self._bucket)
            self._channel.place(self._label, numbers, None)
        self._start = None

    def _widen(self, end: float) -> None:
        label = self._label
        artifact, mode, outcome, reason = label, None, None, None
        if type(label) is tuple:
            mode, outcome, reason, artifact = label[4:]
        clock = (self._start, end)
        told = (self._requested, self._bucket, artifact, mode, outcome, reason, clock)
        record = self._channel.record
        try:
            record(*told, **self._more)
        except TypeError:  # a column given twice, where the last one counts, or one that is none
            try:
                record(**dict(zip(_TOLD, told, strict=True)) | self._more)
            except TypeError as error:
                self._channel.refuse(str(error))


class Channel:
    """Where one thread records the steps of one runner; made by ``Recorder.channel``.

    Attributes
    ----------
    narrow, wide
        Rows of steps that say little and of steps that say more; each lane starts when first used.
    labels
        The words that the rows' labels stand for.
    """

    def __init__(
        self, wake: SimpleQueue[None], defaults: Words, refuse: Refuse, start: Start
    ) -> None:
        self.narrow = Lane(NARROW_ROW, wake)
        self.wide = Lane(WIDE_ROW, wake)
        self.labels = Labels(defaults)
        self._codes = self.labels.codes
        self.refuse = refuse
        self._start_lane = start
        self._step = Step(self)

    def step(self, requested: int | None = None, **columns: Any) -> Step:
        """Return the step to run in a ``with`` block; it is timed from here to the block's end.

        Parameters
        ----------
        requested
            Rows the batch needs on the channel's axis; without it, or below 1, the row is dropped
            and counted.
        columns
            Any other column of the schema that a step may carry.
        """
        step = self._step
        if step._start is not None:  # a step within a step
            step = Step(self)
        step._requested = requested
        step._bucket = NULL
        step._label = None
        step._more = columns
        step._start = perf_counter()
        return step

    def record(
        self,
        requested: int | None = None,
        bucket: int | None = NULL,
        artifact: str | None = None,
        mode: str | None = None,
        outcome: str | None = None,
        reason: str | None = None,
        clock: tuple[float | None, float] | None = None,
        t_ns: int | None = NULL,
        dur_ns: int | None = NULL,
        phase: str | None = None,
        kind: str | None = None,
        num_reqs: int | None = NULL,
        num_tokens: int | None = NULL,
        kv_tokens: int | None = NULL,
        tokens_out: int | None = NULL,
        query_len: int | None = NULL,
        replays: int | None = NULL,
        step: int | None = NULL,
        weight: int | None = NULL,
        dispatch_ns: int | None = NULL,
        host_ns: int | None = NULL,
        blocked_ns: int | None = NULL,
        graph_launch_ns: int | None = NULL,
        gpu_ns: int | None = NULL,
        gap_ns: int | None = NULL,
        gpu_span_ns: int | None = NULL,
        compile_ns: int | None = NULL,
        loras: int | None = NULL,
        loras_replayed: int | None = NULL,
        launches: int | None = NULL,
        kernels: int | None = NULL,
        graph_kernels: int | None = NULL,
        preempted: int | None = NULL,
        recomputed: int | None = NULL,
        queued: int | None = NULL,
        runner: str | None = None,
        axis: str | None = None,
    ) -> None:
        """Record a step that was measured already; columns, units and words as in the schema.

        A column left out or None is null. Without ``outcome`` it follows from ``requested`` and
        ``bucket``. The time is ``t_ns`` and ``dur_ns``, or ``clock``, start and end in seconds of
        ``time.perf_counter``; without either the step ended now.
        """
        key = (runner, phase, axis, kind, mode, outcome, reason, artifact)
        start, end = None, _NAN
        if bucket is None:
            bucket = NULL
        try:
            start, end = clock or (perf_counter(), _NAN)
            lane = self.wide
            offset = lane.offset
            # fmt: off
            rare = (
                step, weight, blocked_ns, graph_launch_ns, gpu_ns, gap_ns, gpu_span_ns,
                compile_ns, loras, loras_replayed, launches, kernels, graph_kernels,
                preempted, recomputed, queued,
            )
            has_rare = rare != _NOTHING
            pack_wide(
                lane.block, offset,
                start, end, requested, bucket, self._codes[key], has_rare,
                t_ns, dur_ns, kv_tokens, dispatch_ns, host_ns,
                num_reqs, num_tokens, tokens_out, query_len, replays,
            )
            # fmt: on
            if has_rare:
                pack_rare(lane.block, offset + RARE_AT, *rare)
            lane.offset = offset + WIDE_WIDTH
        except Exception:
            given = locals()
            self.place(key, (start, end, requested, bucket), [given[name] for name in WIDE])

    def place(self, key: Any, narrow: tuple[Any, ...], wide: list[Any] | None) -> None:
        """Record a row the slow way: a new label, a new block, or values to mend or refuse."""
        try:
            label = self.labels.codes.get(key)
            if label is None:
                label = self.labels.add(key)
            start, end, requested, bucket = narrow
            if bucket is None:
                bucket = NULL
            lane = self.narrow if wide is None else self.wide
            width = NARROW_WIDTH if wide is None else WIDE_WIDTH
            if not lane.block:
                self._start_lane(lane)
            if lane.offset + width > len(lane.block):
                lane.swap()
            if wide is None:
                pack_narrow(lane.block, lane.offset, start, end, requested, bucket, label)
            else:
                numbers = [NULL if value is None else value for value in wide]
                common, rare = numbers[: -len(RARE)], numbers[-len(RARE) :]
                pack_wide(lane.block, lane.offset, start, end, requested, bucket, label, 1, *common)
                pack_rare(lane.block, lane.offset + RARE_AT, *rare)
            lane.offset += width
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}")

    def take(self) -> Fields | None:
        """Return the rows recorded since the last call; the writer's, as the rest below."""
        return join(self.narrow.take(), self.wide.take())

    def dropped(self) -> int:
        """Return how many rows were dropped because the writer fell behind."""
        return self.narrow.dropped() + self.wide.dropped()

    def stop(self) -> None:
        """Drop every later row."""
        self.narrow.stop()
        self.wide.stop()

    def sleep(self) -> None:
        """Forget every row, and ask to be started by the next one."""
        self.narrow.sleep()
        self.wide.sleep()
