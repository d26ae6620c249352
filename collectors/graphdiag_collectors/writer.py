"""The writer's thread: rows from the lanes to the live tail, every half second.

The files, and what a reader may rely on, are in :mod:`graphdiag_collectors.files`. What cannot be
written is dropped and counted, the engine never waits, and the count is written as a mark of kind
``schema.DROPPED`` as soon as writing works again, at the latest when the recorder is closed.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from graphdiag_collectors.blocks import Fields
from graphdiag_collectors.channel import Channel
from graphdiag_collectors.columns import (
    IMPOSSIBLE,
    Clock,
    Process,
    event_batch,
    impossible,
    keep,
    step_batch,
)
from graphdiag_collectors.events import clean_event
from graphdiag_collectors.files import Tail
from graphdiag_collectors.labels import Words
from graphdiag_collectors.schema import DROPPED
from graphdiag_collectors.sealer import Sealer

FLUSH_SECONDS = 0.5
PART_ROWS = 1_000_000
PART_SECONDS = 600.0
BATCH_ROWS = 1 << 16
"""Rows turned into Arrow at a time, which bounds the memory that takes."""
MOST_EVENTS = 20_000
"""Single events that may wait to be written; what comes on top is dropped and counted."""


class Status(NamedTuple):
    """What a recorder has done so far in this process.

    Attributes
    ----------
    rows
        Rows in the tail and the parts.
    dropped
        Rows that were not written: no block free, no room on disk, or bad arguments.
    bytes
        Bytes written to tails (parts are smaller).
    error
        The last reason for a drop, or None.
    """

    rows: int
    dropped: int
    bytes: int
    error: str | None


class Observer(Protocol):
    """Something that is shown what is written, in the thread that writes it."""

    def see(self, batch: pa.RecordBatch) -> None:
        """Look at a batch of the trace's schema that was just written."""

    def close(self) -> None:
        """Stop: the writer closed, or :meth:`see` raised and is not called again."""

    def abandon(self) -> None:
        """Let go of what is the parent's, in a child just forked."""


class Drops:
    """Rows that are lost and not told yet, by reason."""

    def __init__(self) -> None:
        self.total = 0
        self.last: str | None = None
        self._lock = threading.Lock()
        self._since = 0
        self._rows = 0

    def add(self, rows: int, why: str) -> None:
        """Count ``rows`` as dropped."""
        if rows:
            with self._lock:
                self._since = self._since or time.time_ns()
                self._rows += rows
                self.total += rows
                self.last = why

    def tell(self) -> dict[str, Any] | None:
        """Return the mark that tells of the drops since the last one, if there were any."""
        with self._lock:
            if not self._rows:
                return None
            now = time.time_ns()
            mark = clean_event(
                "mark",
                {
                    "kind": DROPPED,
                    "weight": self._rows,
                    "t_ns": self._since,
                    "dur_ns": max(now - self._since, 0),
                    "config": {"why": self.last},
                },
            )
            self._rows = self._since = 0
            return mark

    def untell(self, mark: Mapping[str, Any]) -> None:
        """Take a mark back that could not be written."""
        with self._lock:
            self._rows += mark["weight"]
            self._since = mark["t_ns"]


@dataclass
class _Progress:
    """How far the writer is with a channel: rows seen, and rows known as dropped."""

    steps: int = 0
    dropped: int = 0


class Writer:
    """One process's files in a trace's folder, and the thread that writes them.

    Attributes
    ----------
    wake
        An item in it makes the thread write now.
    channels
        Channels whose lanes are drained; any thread appends.
    graphs_off
        Phases whose graphs are off by configuration, or True for all.
    run_event
        The latest run event; written again when somebody removed the files that held it.
    observers
        Shown each batch that was written; one that raises is closed and dropped.
    """

    def __init__(self, folder: Path, run: str, rank: int | None) -> None:
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.channels: list[Channel] = []
        self.graphs_off: frozenset[str] | bool = frozenset()
        self.run_event: dict[str, Any] | None = None
        self.observers: list[Observer] = []
        self._run_lost = False
        self.drops = Drops()
        self._events: deque[dict[str, Any]] = deque()
        self._folder = folder
        host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:40] or "host"
        self._name = f"{host}-{os.getpid()}-{time.time_ns()}"
        self._process = Process(run, rank, os.getpid())
        self._clock = Clock()
        self._sequence = 0
        self._tail: Tail | None = None
        self._tail_since = 0.0
        self._sealer = Sealer()
        self._rows = 0
        self._bytes = 0
        self._progress: dict[Channel, _Progress] = {}
        self._turn = threading.Lock()
        self._stopping = False
        if os.environ.get("GRAPHDIAG_METRICS"):
            from graphdiag_collectors import metrics_endpoint

            metrics_endpoint.serve_from_environment(self, rank)
        self._thread = threading.Thread(target=self._work, name="graphdiag-writer", daemon=True)
        self._thread.start()

    def put(self, event: dict[str, Any]) -> None:
        """Queue a single event, or drop it when too many wait."""
        if self._stopping:
            self.drops.add(1, "the recorder was closed")
            return
        if len(self._events) >= MOST_EVENTS:
            self.drops.add(1, "the writer fell behind: too many single events")
            return
        if event["event"] == "run":
            self.run_event = event
        self._events.append(event)

    def status(self) -> Status:
        """Return what was written and dropped so far, rows that wait left out."""
        untold = 0
        for channel in tuple(self.channels):
            progress = self._progress.get(channel)
            untold += channel.dropped() - (progress.dropped if progress else 0)
        error = self.drops.last or self._sealer.error
        return Status(self._rows, self.drops.total + untold, self._bytes, error)

    def write(self) -> None:
        """Bring every row that waits to the tail, in the caller's thread; never raises."""
        with self._turn:
            try:
                self._write()
            except Exception as error:  # a fault of ours: the thread must live on
                self.drops.add(1, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Stop the thread, write what waits and seal it; a tail that cannot be sealed stays."""
        self._stopping = True
        self.wake.put(None)
        self._thread.join()
        for channel in self.channels:
            channel.stop()
        self.write()
        self._rotate()
        for observer in tuple(self.observers):
            observer.close()
        self._sealer.close()
        mark = self.drops.tell()
        if mark is not None:  # the trace could not be told
            what = f"{mark['weight']:,} rows could not be recorded in {self._folder}"
            with suppress(Exception):
                sys.stderr.write(f"graphdiag: {what} ({self.drops.last})\n")

    def abandon(self) -> None:
        """Let go of the files in a forked child: they are the parent's."""
        if self._tail is not None:
            self._tail.close()
        for observer in self.observers:
            observer.abandon()

    def _work(self) -> None:
        while not self._stopping:
            try:
                self.wake.get(timeout=FLUSH_SECONDS)
                while True:
                    self.wake.get_nowait()
            except Empty:
                pass
            self.write()

    def _write(self) -> None:
        self._write_events()
        for channel in tuple(self.channels):
            self._write_steps(channel)
        self._tell_losses()
        tail = self._tail
        if tail is not None and (
            tail.rows >= PART_ROWS or time.monotonic() - self._tail_since >= PART_SECONDS
        ):
            self._rotate()

    def _write_events(self) -> None:
        events = [self._events.popleft() for _ in range(len(self._events))]
        if events and not self._append(len(events), lambda: event_batch(events, self._process)):
            self._run_lost |= any(event["event"] == "run" for event in events)

    def _write_steps(self, channel: Channel) -> None:
        """Write a channel's new rows; a dropped step counts in the index of those after it."""
        progress = self._progress.setdefault(channel, _Progress())
        dropped = channel.dropped()
        lost, progress.dropped = dropped - progress.dropped, dropped
        self.drops.add(lost, "the writer fell behind: no block was free")
        progress.steps += lost
        fields = channel.take()
        if fields is None:
            return
        rows = len(fields["label"])
        distance = self._clock.distance_ns()
        for begin in range(0, rows, BATCH_ROWS):
            batch = {name: column[begin : begin + BATCH_ROWS] for name, column in fields.items()}
            self._write_batch(batch, progress.steps + begin, channel.labels.words, distance)
        progress.steps += rows

    def _write_batch(
        self, batch: Fields, first: int, words: Sequence[Words], distance_ns: int
    ) -> None:
        """Write rows of one lane, those with impossible sizes left out and counted."""
        bad = impossible(batch, words)
        lost = int(np.count_nonzero(bad))
        if lost:
            self.drops.add(lost, IMPOSSIBLE)
            batch = keep(batch, ~bad, first)
        rows = len(batch["label"])
        if rows:
            make = partial(
                step_batch, batch, first, words, self._process, distance_ns, self.graphs_off
            )
            self._append(rows, make)

    def _tell_losses(self) -> None:
        """Write what a reader must know in spite of losses: the run's configuration, the count."""
        run = self.run_event
        if self._run_lost and run is not None:
            self._run_lost = not self._append(0, lambda: event_batch([run], self._process))
        mark = self.drops.tell()
        if mark is not None and not self._append(0, lambda: event_batch([mark], self._process)):
            self.drops.untell(mark)

    def _append(self, rows: int, make: Callable[[], pa.RecordBatch]) -> bool:
        """Append the batch that ``make`` returns; when that fails, count ``rows`` as dropped."""
        try:
            batch = make()
            self._bytes += self._open_tail().append(batch)
            self._rows += batch.num_rows
        except Exception as error:  # a full disk, or a fault of ours: the engine goes on
            self.drops.add(rows, f"{type(error).__name__}: {error}")
            return False
        for observer in tuple(self.observers):
            self._show(observer, batch)
        return True

    def _show(self, observer: Observer, batch: pa.RecordBatch) -> None:
        """Show a written batch to an observer; one that raises is closed and dropped."""
        try:
            observer.see(batch)
        except Exception as error:
            with suppress(ValueError):
                self.observers.remove(observer)
            with suppress(Exception):
                observer.close()
                what = f"{type(observer).__name__} was dropped ({type(error).__name__}: {error})"
                sys.stderr.write(f"graphdiag: {what}; recording goes on\n")

    def _open_tail(self) -> Tail:
        tail = self._tail
        if tail is not None and tail.is_gone():
            self._tail = None
            tail.close()
            self._rows -= tail.rows
            self.drops.add(tail.rows, f"{tail.path.name} was removed while it was written")
            self._run_lost = True
            tail = None
        if tail is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"_tail-{self._name}-{self._sequence:06d}.arrow"
            tail = Tail(path)
            self._sequence += 1
            self._tail = tail
            self._tail_since = time.monotonic()
        return tail

    def _rotate(self) -> None:
        """Hand the tail to the sealer; the next row begins a new one."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()
            self._sealer.put(tail.path)
