"""The step that is under way, and when it becomes a row.

``ModelRunner.forward`` enters a step, the hooks inside it fill it in, and it becomes one row when
the engine has its result. A forward of the scheduler's belongs to a batch, whose result comes
later, often after the next batch was launched; its time then runs from the result before it, or
from its own launch where the engine was idle, so that the times of all steps add up to the time
the engine was at work. Where a forward has its result when it returns, as on a CPU, the time is
that of its batch alone.
"""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter
from typing import Any

from graphdiag_collectors import profiler, session
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.sglang_lane import StepChannel
from graphdiag_collectors.sglang_rows import (
    NOT_KNOWN,
    USUAL,
    Fate,
    Row,
    Sort,
    write,
    write_usual,
)

NOTHING = (0, None, None, 0.0, 0.0, 0)
"""What is seen when a step begins."""

MOST_PENDING = 8
"""Batches whose result may be outstanding; an older one is recorded without its time."""

Batch = tuple[int, float, int, list[Row], "tuple[str | None, Any, float] | None"]
"""A batch that was run: identity of its result, when it was launched, requests that waited,
forwards; and what few batches have: kind, step of a profile window, when it had returned."""


Seen = list[Any]
"""What the hooks saw within a step, by the indices below. A list is made and read fastest."""

REQS, GRAPH, REASON, DISPATCH, LAUNCH, REPLAYS = range(6)
"""Requests of the step; the :class:`Graph` it replayed last, else None; why it could not, or why
its bucket is another than its own, a word of the schema; seconds it took to decide, and to launch
graphs; graph launches."""


Asked = tuple[Sort, int, int, int, int, int, "list[Any] | None"]
"""What a forward was asked for: sort, KV tokens, rows, requests, tokens, adapters, and
what was seen in the step that was under way already."""


class Tracker:
    """What one thread of the engine is doing.

    Attributes
    ----------
    usual
        Where usual forwards are recorded: a batch of the scheduler's is under way and no forward
        within it, no profile window is open, nothing is being captured. Else None.
    seen
        Of the step under way, else None.
    rows
        Forwards of the scheduler's batch under way that are over; None between batches.
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
        *("_channels", "_recorder", "_result_at", "capturing", "pending", "refused"),
        *("replaying", "retracted", "rows", "seen", "usual"),
    )

    def __init__(self) -> None:
        self.usual: Recorder | None = None
        self.seen: Seen | None = None
        self.rows: list[Row] | None = None
        self.capturing = 0
        self.pending: deque[Batch] = deque()
        self.replaying = False
        self.refused: str | None = None
        self.retracted = 0
        self._result_at = 0.0
        self._recorder: Recorder | None = None
        self._channels: dict[str, StepChannel] = {}

    def enter(
        self, sort: Sort, kv: int, requested: int, reqs: int, tokens: int, loras: int
    ) -> Asked:
        """Begin a step; what is returned goes to :meth:`close` or :meth:`leave`."""
        outer = self.seen
        self.seen = [reqs, None, None, 0.0, 0.0, 0]
        return sort, kv, requested, reqs, tokens, loras, outer

    def leave(self, asked: Asked) -> None:
        """Go back to the step that was under way before this one, or to none."""
        self.seen = asked[6]

    def close(self, asked: Asked, start: float, fate: Fate, step: Any) -> None:
        """Take a forward that has returned: a row now, or with the result of its batch.

        ``fate`` is that of a forward without a graph, else None.
        """
        end = perf_counter()
        sort, kv, requested, reqs, tokens, loras, outer = asked
        _, graph, reason, dispatch, launch, replays = self.seen or NOTHING
        if fate is None:
            fate = graph
            if graph is not None and graph.in_tokens:
                sort = sort.counted_in_tokens()
                requested = tokens
            if reason is not None or sort.kind is not None or self.capturing:
                fate = (graph, True, reason, self.kind(sort))
        if graph is None:
            launch = NOT_KNOWN
        row: Row
        # fmt: off
        if loras == NULL and step is None and replays == (0 if graph is None else graph.launches):
            code = sort.codes.get(fate)
            if code is None:
                code = sort.code(fate)
            row = (sort, code, start, end, dispatch, launch, kv, requested, reqs, tokens)
        else:
            row = (
                sort, fate, start, end, dispatch, launch, kv, requested, reqs, tokens,
                sort.query, loras, replays, step,
            )
        # fmt: on
        self.seen = outer
        if self.rows is not None:
            self.rows.append(row)
        else:
            self.alone(row)

    def kind(self, sort: Sort) -> str | None:
        """Return the kind of a step, a word of the schema, or None for a real one."""
        return "capture" if self.capturing else sort.kind

    def alone(self, row: Row, kind: str | None = None) -> None:
        """Record a forward that is no batch's, or not its batch's last one of the target."""
        self._record(row, row[2], row[3] if row[0].synchronous else NOT_KNOWN, kind=kind)

    def between_batches(self) -> Recorder | None:
        """Return what :attr:`usual` would be for a forward that no scheduler runs."""
        if self.seen is not None or self.capturing or profiler.window is not None:
            return None
        return session.current()

    def finished(self, result: object) -> None:
        """Record the batch that ``result`` belongs to, which the engine has just processed."""
        end = perf_counter()
        pending = self.pending
        wanted = id(result)
        if pending:
            batch = pending[0]
            if batch[0] == wanted and (len(pending) == 1 or pending[1][0] != wanted):
                pending.popleft()
                _, begin, queued, rows, rest = batch
                row = rows[0]
                if (
                    len(row) == USUAL
                    and row[0].target
                    and rest is None
                    and len(rows) == 1
                    and not self.retracted
                    and profiler.window is None
                ):
                    if begin < self._result_at:
                        begin = self._result_at
                    write_usual(row, begin, end, queued, result)
                else:
                    self.record(batch, end, result)
            elif any(batch[0] == wanted for batch in pending):
                self._catch_up(wanted, end, result)
        self._result_at = end

    def _catch_up(self, wanted: int, end: float, result: object) -> None:
        """Record a batch, the last one of that result, and those before it, which got none."""
        last = max(n for n, batch in enumerate(self.pending) if batch[0] == wanted)
        for _ in range(last):
            self.record(self.pending.popleft())
        self.record(self.pending.popleft(), end, result)

    def record(self, batch: Batch, end: float = NOT_KNOWN, result: object = None) -> None:
        """Record the forwards of a batch; its time and tokens are those of the target's last."""
        _, launched, queued, rows, rest = batch
        kind, step, ended = rest or (None, None, 0.0)
        main: Row = next((row for row in reversed(rows) if row[0].target), ())
        for row in rows:
            if row is not main:
                self.alone(row, kind)
                continue
            begin = launched if launched > self._result_at else self._result_at
            if row[0].synchronous:
                begin, end = launched, ended or NOT_KNOWN
            elif end != end:
                begin = row[2]
            self._record(row, begin, end, queued, result, kind, step)

    def channel(self, recorder: Recorder, runner: str) -> StepChannel:
        """Return this thread's channel for ``runner``, a word of the schema."""
        if recorder is not self._recorder:
            self._recorder = recorder
            self._channels = {}
        channel = self._channels.get(runner)
        if channel is None:
            channel = self._channels[runner] = recorder.channel_of(StepChannel, runner=runner)
        return channel

    def _record(
        self,
        row: Row,
        begin: float,
        end: float,
        queued: int = NULL,
        result: object = None,
        kind: str | None = None,
        step: Any = None,
    ) -> None:
        if len(row) == USUAL:
            if kind is None and step is None and not self.retracted and profiler.window is None:
                write_usual(row, begin, end, queued, result)
                return
            row = row[0].whole(row)
        if kind is not None:
            row = _of_kind(row, kind)
        if step is not None:
            row = (*row[:-1], step)
        preempted = NULL
        if self.retracted:
            preempted, self.retracted = self.retracted, 0
        write(row, begin, end, queued, result, preempted)


def _of_kind(row: Row, kind: str) -> Row:
    """Return a row with a kind, unless it has one of its own."""
    fate = row[1]
    graph, expects, reason, own = fate if type(fate) is tuple else (fate, True, None, None)
    return (row[0], (graph, expects, reason, own or kind), *row[2:])


class _Threads(threading.local):
    """The tracker of each thread, made when it is first asked for."""

    def __init__(self) -> None:
        self.tracker = Tracker()


THREAD = _Threads()
"""``THREAD.tracker`` is the tracker of the thread that asks."""
