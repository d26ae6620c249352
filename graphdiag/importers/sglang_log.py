"""SGLang server logs, 0.4.6 to 0.5.23, as trace format 1.

A decode line shows one step in ``decode_log_interval``; a prefill line shows a prefill; with
``SGLANG_LOG_DECODE_GRAPH_KEY=1`` every replay has a line. What each can and cannot tell is in
``docs/importing-logs.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from graphdiag.importers import log_columns as cols
from graphdiag.importers import log_values as values
from graphdiag.importers.log_run import Run
from graphdiag.importers.log_scan import Hits, Lines, Scanner
from graphdiag.importers.log_sglang_engine import Engine
from graphdiag.importers.log_sglang_lines import KINDS, Labels, read_lines
from graphdiag.importers.log_sglang_steps import Waits, decode_rows, key_rows, prefill_rows
from graphdiag.importers.log_text import BLOCK_BYTES
from graphdiag.importers.log_time import MISSING, Stamps, iso_ns
from graphdiag.importers.log_walk import END, LogWalk, in_order, text_of
from graphdiag.importers.rows import batch
from graphdiag.importers.source import Source

NAME = "sglang-log"

_MARKS = re.compile(
    rb"server_args=(?:ServerArgs\(|\{)|Capture [\w -]*graph (?:begin|end)\."
    rb"|Decode graph replay: worker=|(?:Decode|Prefill) batch(?: \[\d+\])?[.,] ?#"
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: (?:DP|PP|TP|EP)\d+)+\] "
)
_RARE = (
    r"server_args=(?:ServerArgs\(|\{)",
    "max_total_num_tokens=",
    r"Capture .*(?:begin|end|graph bs \[)",
    r"Capturing (?:batches|num tokens|prefill shape) \(",
    r"captured \d+ (?:CUDA graphs, deduped|rows \()",
    "#retracted_reqs: ",
    "Engine startup timings",
    "Disable (?:prefill|decode) (?:CUDA|cuda) graph because",
    "(?:CUDA|Cuda) graph is disabled because",
    "Breakable CUDA graph is incompatible",
)
_LABEL = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: [A-Z_]+\d+)*)\]")
_DEDUP = re.compile(rb"captured (\d{1,9}) CUDA graphs, deduped to (\d{1,9}) execs")
_ROWS = re.compile(
    rb"(?:\] )?([^\]]*?): captured (\d{1,9}) rows \((\d{1,9}) segments\) "
    rb"in (\d{1,9}(?:\.\d+)?) s, (-?\d{1,9}(?:\.\d+)?) GiB"
)
_TIMING = re.compile(rb"(\w+)=(\d{1,9}(?:\.\d+)?)")
_RETRACTED = re.compile(rb"#retracted_reqs: (\d{1,6})")
_DISABLED = re.compile(
    rb"(?:Disable (?:prefill|decode) (?:CUDA|cuda) graph because"
    rb"|(?:CUDA|Cuda) graph is disabled because|Breakable CUDA graph is incompatible).*"
)
_REPLAY = re.compile(rb"Decode batch[^\n]* graph: True|Decode graph replay:")


def recognises(head: bytes) -> bool:
    """Say whether a log that starts with ``head`` is SGLang's."""
    return _MARKS.search(head) is not None


def read(sources: Sequence[Source], block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the events of an SGLang log; rotated files are put in the order of their first times.

    Raises
    ------
    SourceError
        When a file cannot be read at all, or repeats what another one holds.
    """
    logs = in_order(sources, lambda _, head: iso_ns(head))
    yield from _Walk(logs[0].head if logs else b"").walk(logs, block_bytes)


class _Walk(LogWalk):
    """Walks through an SGLang log."""

    def __init__(self, head: bytes) -> None:
        self._labels = Labels()
        super().__init__(Scanner(KINDS, _RARE, self._labels.read_heads), iso_ns(head))
        self._runs = 0
        self._retracted: list[tuple[int, int]] = []
        self._disabled: list[str] = []
        self._start()
        if _REPLAY.search(head):
            # The log begins amid serving: a replay further on says that graphs are on here too.
            self.engine.decode.on = True

    def _start(self) -> None:
        self._runs += 1
        self._steps = 0
        self.run = Run("sglang", self._runs, self.clock, NAME)
        self.engine = Engine(self.run)
        self._waits = Waits(fresh=False)

    def columns(self, hits: dict[str, Hits], others: Stamps) -> dict[str, Lines]:
        return read_lines(hits, self.clock, others)

    def time_of(self, line: bytes) -> int:
        return iso_ns(line)

    def is_passing(self, line: bytes) -> bool:
        # A bar may share its line with a log line, which then has the last word.
        return b"#retracted_reqs" in line or (b"Capturing " in line and not _LABEL.search(line))

    def pass_by(self, position: int, line: bytes) -> None:
        match = _RETRACTED.search(line)
        if match:
            self._retracted.append((position, int(match[1])))
        self.engine.captures.bars(line)

    def learn(self, line: bytes) -> Iterator[pa.RecordBatch]:
        self.engine.captures.bars(line)
        t_ns = self.time_of(line)
        self.clock = self.clock if t_ns == MISSING else t_ns
        label = _LABEL.search(line)
        at = line.find(b"server_args=")
        if at >= 0:
            if self.engine.settled:
                self.close()
                yield from self.events()
                self._start()
            self.engine.read_arguments(text_of(line[at:]))
            for reason in self._disabled:
                self.engine.read_disabled(reason)
            self._disabled = []
        elif b"max_total_num_tokens=" in line:
            self.engine.read_limits(text_of(line))
        elif not self.engine.captures.listed(line):
            capture = self.engine.captures.edge(line, label[1] if label else b"")
            if capture is not None:
                self.engine.take_capture(capture)
                for row in capture.rows(self.now()):
                    self.rows.append(run=self.run.id, **row)
            else:
                self._learn_aside(line)
        if not self._steps:
            self._waits = Waits(fresh=True)

    def _learn_aside(self, line: bytes) -> None:
        """Take in a line that is about neither arguments nor a start-up capture."""
        run = self.run.id
        if match := _DISABLED.search(line):
            self._disabled.append(text_of(match[0]))
            if not self._steps:  # else it belongs to the start that follows
                self.engine.read_disabled(self._disabled.pop())
        elif match := _DEDUP.search(line):
            found = {"graphs": int(match[1]), "executables": int(match[2])}
            self.mark("dedup", 1, found)
        elif match := _ROWS.search(line):
            duration = round(float(match[4]) * 1e9)
            now = self.now()
            self.rows.append(
                event="capture",
                run=run,
                kind="row-bucket",
                t_ns=None if now is None else now - duration,
                dur_ns=duration,
                weight=1,
                size=int(match[2]),
                artifact=f"{text_of(match[1]).strip()}/{int(match[2])}",
                mode="breakable",
                pool_bytes=values.growth(match[5].decode()),
            )
        elif b"Engine startup timings" in line:
            seconds = {text_of(name): float(value) for name, value in _TIMING.findall(line)}
            self.mark("startup", 1, {"seconds": seconds})

    def flush(self, lines: dict[str, Lines], first: int, last: int) -> Iterator[pa.RecordBatch]:
        key, decode, prefill = (lines[kind.name].between(first, last) for kind in KINDS)
        if not (len(decode) or len(prefill) or len(key)):
            return
        engine = self.engine
        if not self._steps:
            engine.start_serving()
        parts = [
            self._decode(decode, prefill, key),
            (prefill.at, prefill_rows(prefill, engine, self._labels) if len(prefill) else {}),
            (key.at, key_rows(key, engine, self._labels) if len(key) else {}),
        ]
        latest = max((part for part in (decode, prefill, key) if len(part)), key=Lines.last_at)
        self.clock = int(latest["t"][-1])
        self._steps += len(decode) + len(prefill) + len(key)
        at = np.sort(np.concatenate([at for at, _ in parts]))
        if len(at):
            columns = cols.in_order(parts)
            columns["preempted"] = self._preempted(at)
            yield from self.events()
            yield batch(columns, len(at))

    def _decode(
        self, decode: Lines, prefill: Lines, key: Lines
    ) -> tuple[np.ndarray, dict[str, cols.Column]]:
        engine = self.engine
        waited = self._waits.find(decode, prefill)
        since = -1 if engine.keyed else int(key.at[0]) if len(key) else END
        keyed = decode.at > since
        if len(key):
            engine.keyed = True
        # Where every replay has a line of its own, a replayed decode line would count it twice.
        kept = ~(keyed & decode["graph"])
        if not kept.all():
            decode, waited, keyed = decode.where(kept), waited[kept], keyed[kept]
        self._tell_sampling(len(decode) > 0)
        if not len(decode):
            return decode.at, {}
        return decode.at, decode_rows(decode, engine, self._labels, waited, keyed)

    def _tell_sampling(self, sampled: bool) -> None:
        if sampled:
            self.run.set("sampled", self.engine.interval > 1)
            self.run.set("sample_every", self.engine.interval)
        elif self.engine.keyed and not self.run.get("sampled"):
            self.run.set("sampled", False)

    def block_done(self) -> None:
        """Put the retractions that no step followed yet before the next block."""
        self._retracted = [(-1, count) for _, count in self._retracted]

    def release(self) -> Iterator[pa.RecordBatch]:
        """Nothing is held back."""
        yield from ()

    def _preempted(self, at: np.ndarray) -> pa.Array:
        """Return the requests retracted before each step and after the step before it."""
        counts = np.zeros(len(at), np.int64)
        later = []
        for position, count in self._retracted:
            row = int(np.searchsorted(at, position))
            if row < len(at):
                counts[row] += count
            else:
                later.append((position, count))
        self._retracted = later
        return cols.known(counts, counts > 0)

    def close(self) -> None:
        run = self.run
        left = sum(count for _, count in self._retracted)
        self._retracted = []
        if left:
            self.mark("retraction", left, {"retracted": left})
        if not self._steps:
            run.note(
                "The log has no decode, prefill or replay line, so nothing is known of its steps; "
                "SGLang prints them at log level info, decode lines every --decode-log-interval "
                "steps, and each replay with SGLANG_LOG_DECODE_GRAPH_KEY=1."
            )
        if every := run.get("sample_every"):
            run.note(
                f"A decode line shows one step in {every} (--decode-log-interval); its time is the "
                "mean over that interval, prefill in between included."
            )
        if self.engine.keyed:
            run.note(
                "Every replay has a line of its own; replayed decode lines are the same steps and "
                "are left out, and an eager decode line stands for all steps of its interval."
            )
        elif run.get("sample_every"):
            run.note(
                "The replayed size of a decode step is inferred from the captured sizes; "
                "SGLANG_LOG_DECODE_GRAPH_KEY=1 (0.5.16 and newer) logs it for every step."
            )
        if self.engine.decode.on is None and self._steps:
            run.note(
                "The log shows neither the start of the engine nor a replay, so it is not known "
                "whether graphs are on; give the part of the log with the start as well."
            )
        if self.engine.dp_attention:
            run.note(
                "Under DP attention the largest rank decides the replayed size, which a decode "
                "line does not show; exact and padded steps are not told apart."
            )
