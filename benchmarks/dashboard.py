"""What a dashboard waits for on a trace of 10⁷ steps: new rows, and a range that is selected.

The trace is the one of ``summary``, cut into parts as the recorder seals them, of which the last
are added while it is watched, with as many rows in a live tail as a busy engine writes in a
second. Times go from the change to the page's models: of the numbers on top, of the findings below
them (verdict, intervals, ledger, bucket list), and of the pictures. What the browser does is left
out; so is the first page.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row
from graphdiag.dashboard.stages import State
from graphdiag.dashboard.views import TraceView
from graphdiag.dashboard.watching import Watched
from graphdiag.timerange import TimeRange
from summary import STEPS, trace_file

_PART = 1 << 18
_TAIL = 1000
"""Rows that are new in each refresh: those of an engine at a thousand steps a second."""
_REFRESHES = 5
_RESTED_S = 4.0
"""Seconds in between: a page that has just computed rests for a while."""
_TIMES = 3
"""How often each range is selected."""


class Waited(NamedTuple):
    """ms from a change until the page's models showed its numbers, findings and pictures."""

    numbers: float
    findings: float
    pictures: float


def rows() -> list[Row]:
    """Measure wall clock and memory."""
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    told = {
        "new rows to new numbers": found["grown"],
        "half of it selected": found["half"],
        "a tenth of it selected": found["tenth"],
        "the whole trace again": found["whole"],
    }
    waited = {what: Waited(*values) for what, values in told.items()}
    return [
        *(
            Row(
                f"dashboard, 10⁷ steps, {what}",
                one.numbers,
                "ms",
                "< 300",
                f"findings {one.findings:.0f} ms, pictures {one.pictures:.0f} ms",
            )
            for what, one in waited.items()
        ),
        Row(
            "dashboard, peak memory",
            found["mib"],
            "MiB",
            "< 1024",
            f"the first look, which reads all: {found['first']:.1f} s",
        ),
    ]


def main() -> None:
    """Print the rows; with ``--measure``, be the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="print one measurement as JSON")
    if parser.parse_args().measure:
        print(json.dumps(_measured()))
        return
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit}, to reach {row.reach}; {row.yardstick}")


def _measured() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        return _measure(Path(scratch), opened)


def _measure(folder: Path, opened: ExitStack) -> dict[str, object]:
    """Return ms of each change (s for the first read) and MiB."""
    new = _parts(trace_file(STEPS), folder)
    source = Watched(str(folder), opened)
    start = time.perf_counter()
    source.refresh()
    first = time.perf_counter() - start
    page = _Page(source)
    with pa.OSFile(str(folder / "_tail-bench-9999.arrow"), "wb") as file:
        writer = pa.ipc.new_stream(file, new[0].schema)
        grown = []
        for batch in new:
            time.sleep(_RESTED_S)
            grown.append(page.shows(lambda batch=batch: _write(writer, batch, file)))
    assert source.sums is not None
    begin, end = source.sums.span or (0, 1)
    found: dict[str, object] = {"grown": _middle(grown)}
    chosen: dict[str, list[Waited]] = {"half": [], "whole": [], "tenth": []}
    for _ in range(_TIMES):
        for name, share in (("half", 0.5), ("whole", None), ("tenth", 0.1), ("whole", None)):
            chosen[name].append(page.shows(lambda share=share: page.select(begin, end, share)))
    found |= {name: _middle(waited) for name, waited in chosen.items()}
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "first": first, "mib": mib}


class _Page:
    """A page without a browser, up to date with ``source``."""

    def __init__(self, source: Watched) -> None:
        self._source, self._woken = source, threading.Event()
        self._view = TraceView(source, self._woken.set)
        self._root = self._view.view.get_root()
        self.shows(lambda: None)

    def shows(self, change: Callable[[], object]) -> Waited:
        """Make a change; return how long the page took to show it."""
        stages = self._view.stages
        start = time.perf_counter()
        change()
        self._source.refresh()
        ends: dict[str, float] = {}
        while len(ends) < len(stages):
            self._view.update(dark=False)
            for name, stage in stages.items():
                if name not in ends and stage.shown == self._wanted(name):
                    ends[name] = 1e3 * (time.perf_counter() - start)
            self._woken.wait(0.005)
            self._woken.clear()
        pictures = [end for name, end in ends.items() if name not in ("numbers", "findings")]
        return Waited(ends["numbers"], ends["findings"], max(pictures))

    def select(self, begin: int, end: int, share: float | None) -> None:
        """Select the whole trace, or a share of its time around the middle."""
        window = None
        if share is not None:
            start = begin + int((1 - share) / 2 * (end - begin))
            window = TimeRange(start, start + int(share * (end - begin)))
        self._view.choice.window = window

    def _wanted(self, name: str) -> State:
        chosen = self._view.choice.selection()
        is_picture = name not in ("numbers", "findings")
        return State(self._source.version, (chosen, False) if is_picture else chosen)


def _write(writer: Any, batch: pa.RecordBatch, file: Any) -> None:
    writer.write_batch(batch)
    file.flush()


def _middle(waited: list[Waited]) -> Waited:
    return Waited(*(median(times) for times in zip(*waited, strict=True)))


def _parts(trace: Path, folder: Path) -> list[pa.RecordBatch]:
    """Write all but the last rows as parts; return those, to be appended to a tail."""
    file = pq.ParquetFile(trace)
    last = file.num_row_groups - 1
    for group in range(last + 1):
        table = file.read_row_group(group)
        if group == last:
            rest = table.slice(max(0, len(table) - _REFRESHES * _TAIL))
            table = table.slice(0, len(table) - len(rest))
        if len(table):
            pq.write_table(table, folder / f"part-bench-{group:04}.parquet", row_group_size=_PART)
    return [
        rest.slice(at * _TAIL, _TAIL).combine_chunks().to_batches()[0] for at in range(_REFRESHES)
    ]


if __name__ == "__main__":
    main()
