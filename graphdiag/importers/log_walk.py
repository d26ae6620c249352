"""The walk through a server log that both engines share: blocks, rare lines, steps in between."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.importers.log_run import Run
from graphdiag.importers.log_scan import Hits, Lines, Scanner
from graphdiag.importers.log_text import blocks, cleaned
from graphdiag.importers.log_time import MISSING, Stamps
from graphdiag.importers.rows import RowBuilder
from graphdiag.importers.source import Source

END = int(np.iinfo(np.int64).max)
"""A position after every line of a block."""

_OPENING_BYTES = 4096
"""How much of a log's start is looked for in the others: no two logs share that by chance."""

_OPENING_LINES = 3
"""Fewest whole lines that tell one log from another."""


@dataclass(frozen=True)
class Log:
    """One file of a log that was rotated, and its first bytes."""

    source: Source
    head: bytes

    @cached_property
    def opening(self) -> bytes:
        """The first whole lines, as :func:`blocks` yields them; empty where there are too few."""
        whole = self.head[: self.head.rfind(b"\n", 0, _OPENING_BYTES) + 1]
        text = cleaned(whole) if whole else b""
        return text if _tells(text) else b""


def in_order(sources: Sequence[Source], start_ns: Callable[[Source, bytes], int]) -> list[Log]:
    """Return the files of one log in the order of their first times.

    They keep the order given where one has no time.

    Parameters
    ----------
    sources
        The files.
    start_ns
        Returns the first time in a file's first bytes, or MISSING.

    Raises
    ------
    SourceError
        When a file cannot be read at all.
    """
    logs = [Log(source, source.head()) for source in sources]
    starts = [start_ns(log.source, log.head) for log in logs]
    if MISSING in starts:
        return logs
    return [logs[at] for at in sorted(range(len(logs)), key=starts.__getitem__)]


class LogWalk(ABC):
    """Walks through a log, one engine start after another, and turns it into rows.

    What a rare line tells holds for the steps after it, so the numerous lines before it are
    turned into rows first.

    Parameters
    ----------
    scanner
        Finds the lines.
    start_ns
        Time of the log's first line, or MISSING.
    """

    run: Run

    def __init__(self, scanner: Scanner, start_ns: int) -> None:
        self.clock = start_ns
        self.rows = RowBuilder()
        self._scanner = scanner

    def walk(self, logs: Sequence[Log], block_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``logs``, which are one log in this order.

        Raises
        ------
        SourceError
            When one of them repeats what another holds: its steps would count twice.
        """
        for log in logs:
            troubles: list[str] = []
            others = [other for other in logs if other is not log and other.opening]
            before = b""
            for block in blocks(log.source, troubles, block_bytes):
                for other in others:
                    opening = other.opening
                    if opening in block or opening in before + block[: len(opening)]:
                        raise _repeated(log, other)
                if others:
                    before = (before + block[-_OPENING_BYTES:])[-_OPENING_BYTES:]
                yield from self._read(block)
            for other in others:
                if _goes_on_in(before, other.opening):
                    raise _repeated(log, other)
            for trouble in troubles:
                self.run.damaged(trouble)
        yield from self.release()
        self.close()
        yield from self.events()

    @abstractmethod
    def columns(self, hits: dict[str, Hits], others: Stamps) -> dict[str, Lines]:
        """Return the numerous lines of a block by column; ``others`` times the rare ones."""

    @abstractmethod
    def time_of(self, line: bytes) -> int:
        """Return the time of a rare line in ns, or MISSING."""

    @abstractmethod
    def is_passing(self, line: bytes) -> bool:
        """Say whether a rare line changes nothing for the steps after it, not even the time."""

    @abstractmethod
    def pass_by(self, position: int, line: bytes) -> None:
        """Take in a passing line."""

    @abstractmethod
    def learn(self, line: bytes) -> Iterator[pa.RecordBatch]:
        """Take in a line that tells something about the engine; yield rows that it ends."""

    @abstractmethod
    def flush(self, lines: dict[str, Lines], first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the steps at positions ``first`` to before ``last``."""

    @abstractmethod
    def block_done(self) -> None:
        """Take note that positions start anew."""

    @abstractmethod
    def release(self) -> Iterator[pa.RecordBatch]:
        """Yield steps held back until more of the log was seen."""

    @abstractmethod
    def close(self) -> None:
        """End the run: add what is left and say what its log lacks."""

    def mark(self, kind: str, weight: int, details: dict[str, Any]) -> None:
        """Add a mark at the present time."""
        self.rows.append(
            event="mark",
            run=self.run.id,
            t_ns=self.now(),
            kind=kind,
            weight=weight,
            config=json.dumps(details),
        )

    def events(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows collected since the last time, and what is new about the run."""
        news = self.run.news(self.clock)
        if news is not None:
            self.rows.append(**news)
        if len(self.rows):
            yield self.rows.take()

    def now(self) -> int | None:
        """Return the time of the last line in ns, or None where none was seen."""
        return None if self.clock == MISSING else int(self.clock)

    def _stamps(self, rare: list[tuple[int, bytes]]) -> tuple[np.ndarray, np.ndarray]:
        positions = np.array([position for position, _ in rare], np.int64)
        times = [MISSING if self.is_passing(line) else self.time_of(line) for _, line in rare]
        return positions, np.array(times, np.int64)

    def _read(self, block: bytes) -> Iterator[pa.RecordBatch]:
        hits, rare = self._scanner.scan(block)
        lines = self.columns(hits, lambda: self._stamps(rare))
        first = 0
        for position, line in rare:
            if self.is_passing(line):
                self.pass_by(position, line)
            else:
                yield from self.flush(lines, first, position)
                first = position
                yield from self.learn(line)
        yield from self.flush(lines, first, END)
        self.block_done()


def _tells(text: bytes) -> bool:
    """Say whether ``text`` has lines enough to be in two files for one reason only."""
    return sum(1 for line in text.splitlines() if line.strip()) >= _OPENING_LINES


def _goes_on_in(tail: bytes, opening: bytes) -> bool:
    """Say whether the last lines of one file are the first of another."""
    first = opening[: opening.find(b"\n") + 1]
    at = tail.find(first)
    while at >= 0 and not opening.startswith(tail[at:]):
        at = tail.find(first, at + 1)
    return at >= 0 and _tells(tail[at:])


def _repeated(log: Log, other: Log) -> SourceError:
    return SourceError(
        f"{other.source.path}: its first lines are in {log.source.path} as well, so their steps "
        "would count twice; give only one of them, or parts that do not overlap."
    )


def text_of(line: bytes) -> str:
    """Return ``line`` as text without its line end; what is no UTF-8 is replaced."""
    return line.decode("utf-8", "replace").strip()
