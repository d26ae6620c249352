"""The walk through a server log that both engines share: blocks, rare lines, steps in between."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphdiag.importers.log_run import Run
from graphdiag.importers.log_scan import Hits, Lines, Scanner
from graphdiag.importers.log_text import blocks
from graphdiag.importers.log_time import MISSING, Stamps
from graphdiag.importers.rows import RowBuilder
from graphdiag.importers.source import Source

END = int(np.iinfo(np.int64).max)
"""A position after every line of a block."""


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

    def walk(self, sources: Sequence[Source], block_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``sources``, which are one log in this order."""
        for source in sources:
            troubles: list[str] = []
            for block in blocks(source, troubles, block_bytes):
                yield from self._read(block)
            for trouble in troubles:
                self.run.note(trouble)
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


def text_of(line: bytes) -> str:
    """Return ``line`` as text without its line end; what is no UTF-8 is replaced."""
    return line.decode("utf-8", "replace").strip()
