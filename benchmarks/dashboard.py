"""What a dashboard waits for on a trace of 10⁷ steps: a refresh, and a range that is selected.

The trace is the one of ``summary``, cut into parts as the recorder seals them, of which the last
are added while it is watched, with as many rows in a live tail as a busy engine writes in a
second. Each measurement is in a process of its own; figures leave out the drawing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row
from graphdiag.live import LiveTrace
from graphdiag.selection import Selection, metrics_of, summary_of
from graphdiag.timerange import TimeRange
from graphdiag.trace import open_trace
from summary import STEPS, trace_file

_PART = 1 << 18
_TAIL = 1000
"""Rows that are new in each refresh: those of an engine at a thousand steps a second."""
_REFRESHES = 9


def rows() -> list[Row]:
    """Measure wall clock and memory."""
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    first = f"the first, which reads all: {found['first']:.1f} s"
    whole = f"with verdict, intervals and ledger: {found['report']:.0f} ms"
    return [
        Row(
            "dashboard, new rows to new figures, 10⁷ steps", found["refresh"], "ms", "< 300", first
        ),
        Row("dashboard, figures of the whole trace", found["whole"], "ms", "< 300", whole),
        Row("dashboard, a tenth of it selected", found["tenth"], "ms", "< 300"),
        Row("dashboard, half of it selected", found["half"], "ms", "< 300"),
        Row("dashboard, peak memory", found["mib"], "MiB", "< 1024"),
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


def _measured() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        return _measure(Path(scratch))


def _measure(folder: Path) -> dict[str, float]:
    """Return ms (s for the first read) and MiB."""
    new = _parts(trace_file(STEPS), folder)
    live = LiveTrace(lambda known: open_trace(folder, known))
    first = _seconds(live.refresh)
    refreshes = []
    with pa.OSFile(str(folder / "_tail-bench-9999.arrow"), "wb") as file:
        writer = pa.ipc.new_stream(file, new[0].schema)
        for number in range(_REFRESHES):
            writer.write_batch(new[number])
            file.flush()
            refreshes.append(_seconds(lambda: (live.refresh(), metrics_of(live, Selection()))))
    begin, end = live.span or (0, 1)
    figures = {
        name: 1e3
        * median(_seconds(lambda s=share: _figures(live, begin, end, s)) for _ in range(5))
        for name, share in (("whole", None), ("half", 0.5), ("tenth", 0.1))
    }
    report = 1e3 * _seconds(lambda: _report(live))
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {"first": first, "refresh": 1e3 * median(refreshes), "report": report, "mib": mib}
    return {**told, **figures}


def _figures(live: LiveTrace, begin: int, end: int, share: float | None) -> Any:
    """Return the metrics of the whole trace, or of a stretch from its middle on."""
    window = None
    if share is not None:
        start = begin + int((1 - share) / 2 * (end - begin))
        window = TimeRange(start, start + int(share * (end - begin)))
    return metrics_of(live, Selection(window=window))


def _report(live: LiveTrace) -> Any:
    from graphdiag.diagnosis import report_of

    return report_of(summary_of(live, Selection()), "benchmark")


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


def _seconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
