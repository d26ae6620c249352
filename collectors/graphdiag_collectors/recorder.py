"""The recorder: what an engine opens once and calls at every step."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from graphdiag_collectors.blocks import Lane
from graphdiag_collectors.channel import Channel
from graphdiag_collectors.events import clean_event
from graphdiag_collectors.labels import Words, check_words
from graphdiag_collectors.writer import Status, Writer

AnyChannel = TypeVar("AnyChannel", bound=Channel)

TRACE_VARIABLE = "GRAPHDIAG_TRACE"
RUN_VARIABLE = "GRAPHDIAG_RUN"


class Recorder(Channel):
    """Record what an engine does into the folder ``path``; its own steps are the first channel.

    Parameters
    ----------
    path
        The folder of the trace, such as ``trace.parquet``; made if it is not there. Several
        processes may record into one.
    config
        What is known of the run, by the keys of ``schema.RUN_CONFIG``; others are kept.
    axis, phase, runner
        Of every step that does not say otherwise; words of the schema.
    rank
        Global rank of this process.
    run
        Identifier of the engine start; by default the one in ``GRAPHDIAG_RUN``, else a new one,
        left there for child processes.

    Raises
    ------
    OSError
        When the folder cannot be made.
    ValueError
        When ``axis``, ``phase`` or ``runner`` is no word of the schema.

    Notes
    -----
    After that nothing raises: a row with bad arguments, or one that cannot be written, is dropped
    and counted, in :meth:`status` and in the trace.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: Mapping[str, Any] | None = None,
        *,
        axis: str = "requests",
        phase: str | None = None,
        runner: str = "target",
        rank: int | None = None,
        run: str | None = None,
    ) -> None:
        self._words = check_words(Words(runner=runner, phase=phase, axis=axis))
        self._path = Path(path).absolute()
        self._path.mkdir(parents=True, exist_ok=True)
        self._run = run or os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex[:16])
        self._rank = rank
        self._config: dict[str, Any] = {"axis": axis}
        self._lock = threading.Lock()
        self._asleep = False
        self._closed = False
        self._writer = Writer(self._path, self._run, rank)
        super().__init__(self._writer.wake, self._words, self.refuse, self._start)
        self._writer.channels.append(self)
        self.run(config or {})
        self._writer.write()
        _RECORDERS.add(self)
        atexit.register(self._end)
        self._close_with_child()

    @classmethod
    def from_environment(
        cls, config: Mapping[str, Any] | None = None, **options: Any
    ) -> Recorder | None:
        """Return a recorder into ``GRAPHDIAG_TRACE``, or None where that is not set.

        ``options`` are those of :class:`Recorder`, which also says what it raises.
        """
        path = os.environ.get(TRACE_VARIABLE)
        return cls(path, config, **options) if path else None

    def channel(
        self, *, runner: str | None = None, phase: str | None = None, axis: str | None = None
    ) -> Channel:
        """Return a channel with rows of its own, for another runner or another thread.

        A channel belongs to one thread. What is not given is the recorder's own.

        Raises
        ------
        ValueError
            When a word is none of the schema's.
        """
        return self.channel_of(Channel, runner=runner, phase=phase, axis=axis)

    def channel_of(
        self,
        kind: type[AnyChannel],
        *,
        runner: str | None = None,
        phase: str | None = None,
        axis: str | None = None,
    ) -> AnyChannel:
        """Return :meth:`channel` of a subclass, which has a layout of its own.

        Raises
        ------
        ValueError
            When a word is none of the schema's.
        """
        words = Words(runner=runner, phase=phase, axis=axis).over(self._words)
        channel = kind(self._writer.wake, words, self.refuse, self._start)
        self._writer.channels.append(channel)
        return channel

    def event(self, event: str, **columns: Any) -> None:
        """Record a single event with any of its columns; mappings are written as JSON.

        ``t_ns`` is its start, by default ``dur_ns`` ago. Not for steps, and not for the hot path.
        """
        try:
            self._revive()
            row = clean_event(event, columns)
            if columns.get("t_ns") is None:
                row["t_ns"] -= row.get("dur_ns", 0)
            self._writer.put(row)
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}")

    def capture(
        self,
        *,
        artifact: str | None = None,
        size: int | None = None,
        kind: str | None = None,
        mode: str | None = None,
        dur_ns: int | None = None,
        t_ns: int | None = None,
        mem_before: int | None = None,
        mem_after: int | None = None,
        pool_bytes: int | None = None,
        key: Mapping[str, Any] | None = None,
        identity: Mapping[str, Any] | None = None,
        signature: str | None = None,
        exec_group: str | None = None,
        cache: str | None = None,
        weight: int = 1,
        **more: Any,
    ) -> None:
        """Record that a graph was captured; columns as in the schema."""
        columns = {name: value for name, value in locals().items() if name not in _NO_COLUMNS}
        self.event("capture", **columns, **more)

    def compile(
        self,
        *,
        artifact: str | None = None,
        dur_ns: int | None = None,
        t_ns: int | None = None,
        kind: str | None = None,
        key: Mapping[str, Any] | None = None,
        identity: Mapping[str, Any] | None = None,
        cache: str | None = None,
        reason: str | None = None,
        weight: int = 1,
        **more: Any,
    ) -> None:
        """Record that a region was compiled; ``reason`` is the compiler's, where it recompiled."""
        columns = {name: value for name, value in locals().items() if name not in _NO_COLUMNS}
        self.event("compile", **columns, **more)

    def request(
        self,
        *,
        arrival_ns: int,
        first_token_ns: int | None = None,
        end_ns: int | None = None,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
        scheduled_ns: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Record a request that has ended; not for the hot path of a step.

        One process of an engine records its requests: further ranks would record them again.

        Parameters
        ----------
        arrival_ns, scheduled_ns, first_token_ns, end_ns
            Wall clock in ns: when it arrived, first ran, had its first token (None where it never
            had one) and ended (by default now).
        prompt_tokens, output_tokens
            Its tokens.
        reason
            Why it ended, in the engine's words.
        """
        try:
            ended = time.time_ns() if end_ns is None else end_ns
            times = [t for t in (arrival_ns, scheduled_ns, first_token_ns, ended) if t is not None]
            if times != sorted(times):
                raise ValueError("the times of a request run backwards")
            columns = {
                "t_ns": arrival_ns,
                "dur_ns": ended - arrival_ns,
                "queued_ns": None if scheduled_ns is None else scheduled_ns - arrival_ns,
                "ttft_ns": None if first_token_ns is None else first_token_ns - arrival_ns,
                "tokens_in": prompt_tokens,
                "tokens_out": output_tokens,
                "reason": reason,
            }
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}")
            return
        self.event("request", **columns)

    def memory(
        self,
        *,
        mem_before: int | None = None,
        mem_after: int | None = None,
        pool_bytes: int | None = None,
        **more: Any,
    ) -> None:
        """Record device memory, in bytes."""
        self.event(
            "memory", mem_before=mem_before, mem_after=mem_after, pool_bytes=pool_bytes, **more
        )

    def mark(self, name: str, details: Mapping[str, Any] | None = None, **numbers: Any) -> None:
        """Record that something called ``name`` happened; ``numbers`` are columns of a mark."""
        self.event("mark", kind=name, config=details, **numbers)

    def run(self, config: Mapping[str, Any]) -> None:
        """Record the run's configuration, or what became known of it later; written at once."""
        try:
            self._revive()
            self._config.update(config)
            off = self._config.get("graphs_off")
            self._writer.graphs_off = off if isinstance(off, bool) else frozenset(off or ())
            given = {"axis": self._config["axis"], **config}
            self._writer.put(clean_event("run", {"config": given}))
            self._writer.wake.put(None)
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}")

    def refuse(self, why: str) -> None:
        """Count a row that cannot be recorded."""
        self._revive()
        self._writer.drops.add(1, why)

    def flush(self) -> None:
        """Write what was recorded so far, in the caller's thread."""
        if not self._asleep and not self._closed:
            self._writer.write()

    def write_soon(self) -> None:
        """Have the writer's thread write what was recorded so far, without waiting for it."""
        self._writer.wake.put(None)

    def status(self) -> Status:
        """Return rows, dropped rows, bytes and the last error of this process."""
        return self._writer.status()

    def close(self) -> None:
        """Write and seal everything; later steps are dropped. Called at exit if you do not."""
        with self._lock:
            if self._closed or self._asleep:
                return
            self._closed = True
        atexit.unregister(self._end)
        self._writer.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _end(self) -> None:
        """Close at exit, by way of whatever holds rows back and has taken ``close`` over."""
        self.close()

    def _sleep(self) -> None:
        """Let go of everything that is the parent's, in a child just forked."""
        self._writer.abandon()
        self._lock = threading.Lock()
        if not self._closed:
            self._asleep = True
            for channel in self._writer.channels:
                channel.sleep()

    def _start(self, lane: Lane) -> None:
        """Give a lane its blocks, when its first row comes."""
        self._revive()
        if not self._closed:
            lane.start(self._writer.wake)

    def _revive(self) -> None:
        """Begin this process's own files, if it was forked and has none yet."""
        if self._asleep:
            with self._lock:
                if self._asleep:
                    self._begin()

    def _begin(self) -> None:
        parent = self._writer
        self._writer = Writer(self._path, self._run, self._rank)
        self._writer.graphs_off = parent.graphs_off
        self._writer.channels.extend(parent.channels)
        if parent.run_event is not None:
            self._writer.put(parent.run_event)
        self._asleep = False
        self._close_with_child()

    def _close_with_child(self) -> None:
        """Close at the end of a child of multiprocessing: forked ones leave without atexit."""
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(None, self._end, exitpriority=0)


_NO_COLUMNS = ("self", "more")
_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _sleep_all() -> None:
    for recorder in tuple(_RECORDERS):
        recorder._sleep()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_sleep_all)
