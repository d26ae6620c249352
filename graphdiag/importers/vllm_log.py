"""vLLM server logs, 0.9 to 0.32, as trace format 1.

With ``--cudagraph-metrics`` the log holds a table every ten seconds that counts all steps of the
interval by size and mode. What the log can and cannot tell is in ``docs/importing-logs.md``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from graphdiag.importers.log_run import Run
from graphdiag.importers.log_scan import Hits, Lines, Scanner
from graphdiag.importers.log_text import BLOCK_BYTES
from graphdiag.importers.log_time import MISSING, Stamps, YearClock
from graphdiag.importers.log_vllm_engine import Engine
from graphdiag.importers.log_vllm_steps import (
    STAMP,
    TABLE,
    HeadReader,
    line_ns,
    read_lines,
    replays,
    step_columns,
)
from graphdiag.importers.log_vllm_work import Captures, Compiles
from graphdiag.importers.log_walk import END, LogWalk, in_order, text_of
from graphdiag.importers.rows import batch
from graphdiag.importers.source import Source

NAME = "vllm-log"

_MARKS = re.compile(
    rb"Initializing a V\d LLM engine \(v|vLLM API server version"
    rb"|(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+:\d+\] "
    rb"|\|\s*Unpadded Tokens\s*\|\s*Padded Tokens\s*\||Graph capturing finished in \d+ secs, took "
)
_RARE = (
    r"Initializing a V\d LLM engine \(v",
    "vLLM API server version",
    "non-default args",
    r"args: Namespace\(",
    "Chunked prefill is enabled",
    "- Mode: ",
    r"- Capture sizes: \[",
    "setting cudagraph_mode=",
    "Truncating max_cudagraph_capture_size to",
    "is overridden by config",
    "KV cache size: ",
    "Using V2 Model Runner",
    "[Cc]udagraph is disabled under eager mode",
    "disabling torch.compile and CUDA ?[Gg]raphs",
    "Capturing .*CUDA graph",
    "Graph capturing finished in",
    "Profiling CUDA graph memory: ",
    "Encoder CUDA graph capture complete",
    r"torch\.compile(?: and initial profiling/warmup run together)? (?:took|takes) ",
    "Dynamo bytecode transform time: ",
    "Compiling a graph for ",
    "Directly load (?:the compiled graph|AOT compilation)",
    "saved AOT compiled function to ",
    "Compiling model again due to a load failure",
)
_HEADER = re.compile(rb"- (Mode|Capture sizes): (.*)")
_PROCESS = re.compile(rb"\(([^()\s][^()]*?) pid=(\d{1,9})\)")


def recognises(head: bytes) -> bool:
    """Say whether a log that starts with ``head`` is vLLM's."""
    return _MARKS.search(head) is not None


def read(sources: Sequence[Source], block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the events of a vLLM log; rotated files are put in the order of their first times.

    Raises
    ------
    SourceError
        When a file cannot be read at all, or repeats what another one holds.
    """
    logs = in_order(sources, lambda source, head: _first_ns(head, _clock_of(source)))
    clock = _clock_of(logs[0].source) if logs else YearClock(time.time_ns())
    start = _first_ns(logs[0].head, clock) if logs else MISSING
    yield from _Walk(clock, start).walk(logs, block_bytes)


def _clock_of(source: Source) -> YearClock:
    return YearClock(source.modified_ns() or time.time_ns())


def _first_ns(head: bytes, clock: YearClock) -> int:
    match = STAMP.search(head)
    return line_ns(head, clock) if match is None else clock.ns(match[1])


class _Walk(LogWalk):
    """Walks through a vLLM log."""

    def __init__(self, clock: YearClock, start_ns: int) -> None:
        super().__init__(Scanner((TABLE,), _RARE, HeadReader(clock)), start_ns)
        self._years = clock
        self._runs = 0
        self._held: Lines | None = None
        self._start()

    def _start(self) -> None:
        self._runs += 1
        self.run = Run("vllm", self._runs, self.clock, NAME)
        self.engine = Engine(self.run)
        self._captures, self._compiles = Captures(), Compiles()
        self._header: dict[bytes, bytes] = {}
        self._steps = 0

    def columns(self, hits: dict[str, Hits], others: Stamps) -> dict[str, Lines]:
        return {name: read_lines(found, self.clock, others) for name, found in hits.items()}

    def time_of(self, line: bytes) -> int:
        return line_ns(line, self._years)

    def is_passing(self, line: bytes) -> bool:
        # Every table repeats its header; only a change says something.
        match = _HEADER.search(line)
        if match:
            return self._header.get(match[1]) == match[2]
        # A bar may share its line with a log line, which then has the last word.
        return b"Capturing " in line and not STAMP.search(line)

    def pass_by(self, position: int, line: bytes) -> None:
        self._captures.bars(text_of(line))

    def learn(self, line: bytes) -> Iterator[pa.RecordBatch]:
        yield from self.release()
        if header := _HEADER.search(line):
            self._header[header[1]] = header[2]
        t_ns = self.time_of(line)
        self.clock = self.clock if t_ns == MISSING else t_ns
        text = text_of(line)
        self._captures.bars(text)
        process = _PROCESS.search(line)
        name = text_of(process[1]) if process else ""
        pid = int(process[2]) if process else None
        if self._is_new_start(text, name, pid):
            self.close()
            yield from self.events()
            self._start()
            self.engine.cores[name] = str(pid)
        if not self._is_work(text, f"{name} {pid}" if process else "", pid):
            self.engine.read(text)

    def _is_work(self, text: str, process: str, pid: int | None) -> bool:
        """Take in a line about a capture or a compilation; say whether it is one."""
        for work in (self._captures, self._compiles):
            found = work.read(text, process, self.now())
            if found is None:
                continue
            self.engine.progressed = True
            rows, notes = found
            for row in rows:
                self.rows.append(run=self.run.id, pid=pid, **row)
                self.run.set("graph_bytes", row.get("pool_bytes"))
            for note in notes:
                self.run.note(note)
            return True
        return False

    def flush(self, lines: dict[str, Lines], first: int, last: int) -> Iterator[pa.RecordBatch]:
        part = lines[TABLE.name].between(first, last)
        if not len(part):
            return
        if self._held is not None:
            part, self._held = self._held.joined(part), None
        self.clock = int(part["t"][-1])
        if last == END and self.engine.off() and not replays(part).any():
            # The table may go on in the next block, and a replay there would say graphs are on.
            ended = part["t"] != part["t"][-1]
            self._held, part = part.where(~ended), part.where(ended)
        yield from self._emit(part)

    def release(self) -> Iterator[pa.RecordBatch]:
        part, self._held = self._held, None
        if part is not None:
            yield from self._emit(part)

    def block_done(self) -> None:
        """Nothing here is kept by position."""

    def close(self) -> None:
        run = self.run
        for row in self._compiles.unfinished():
            self.rows.append(run=run.id, **row)
        run.note(
            "The log has neither year nor time zone: the year is taken from the file's "
            "modification, the zone as UTC."
        )
        if self._steps:
            run.set("sampled", False)
            run.note(
                "The tables count every step of their interval, but no step times; the steps after "
                "the last table are not in the log."
            )
        else:
            run.note(
                "The log has no CUDA graph table, so nothing is known of its steps; "
                "start vLLM with --cudagraph-metrics, and without --disable-log-stats."
            )
        if run.get("max_num_seqs") is None:
            run.note("The log does not tell the largest batch (max_num_seqs).")

    def _emit(self, part: Lines) -> Iterator[pa.RecordBatch]:
        if len(part):
            columns = step_columns(part, self.engine)
            self._steps += len(part)
            yield from self.events()
            yield batch(columns, len(part))

    def _is_new_start(self, text: str, name: str, pid: int | None) -> bool:
        """Say whether ``text`` starts another engine, rather than another process of this one."""
        if "LLM engine (v" in text:
            before = self.engine.cores.get(name)
            if before is None or before == str(pid):
                self.engine.cores[name] = str(pid)
                return self.engine.progressed and not name
            return True
        started = "vLLM API server version" in text or "non-default args" in text
        return started and self.engine.progressed
