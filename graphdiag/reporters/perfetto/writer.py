"""The file from its first byte to its last, written as it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
import polars as pl

from graphdiag import __version__
from graphdiag.reporters.perfetto.clock import base_of
from graphdiag.reporters.perfetto.lines import COLUMNS, lines
from graphdiag.reporters.perfetto.tracks import Tracks
from graphdiag.runconfig import last_config
from graphdiag.timeorder import in_time_order
from graphdiag.trace import Trace
from graphdiag.wording import count

_LINES = 1 << 15
"""Rows that are text at a time."""
_COMMA = ",\n"
_MOST_SHOWN = 1 << 30
"""Bytes of JSON that a browser opens without trouble."""


@dataclass(frozen=True)
class Written:
    """What became of a trace: how many events the file has, and what a reader must know."""

    events: int
    notes: tuple[str, ...]


def write(
    trace: Trace,
    file: BinaryIO,
    base_ns: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Written:
    """Write ``trace`` to ``file`` as Chrome trace-event JSON, in memory that does not grow with it.

    Parameters
    ----------
    base_ns
        Wall-clock ns that the file's times count from; by default as the torch profiler chooses it.
    progress
        Told the share that is written, now and then.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    OSError
        When the file cannot be written.
    """
    tracks, events, size, untimed, crowded = Tracks(), 0, 0, 0, 0
    base, begun = base_ns, False
    for share, batch in in_time_order(trace, COLUMNS):
        shown = batch.filter(pl.col("event") != "request")
        for rows in shown.iter_slices(_LINES):
            if base is None:
                base = base_of(int(rows["t_ns"][0]))
            if not begun:
                begun = True
                size += file.write(_head(base))
            placed = tracks.place(rows)
            text = [*tracks.named(placed), *lines(placed, base)["line"]]
            before = _COMMA if events else ""
            size += file.write(f"{before}{_COMMA.join(text)}".encode())
            events += len(text)
            loose = placed.filter((pl.col("event") == "step") & (pl.col("lane") < 0))
            untimed += loose["dur_ns"].null_count()
            crowded += len(loose) - loose["dur_ns"].null_count()
        progress(share)
    if not begun:
        size += file.write(_head(base or 0))
    notes = _notes(trace, untimed, crowded, size)
    told = {"graphdiag": __version__, "source": trace.source, "notes": notes}
    file.write(b'\n],"otherData":' + msgspec.json.encode(told) + b"}\n")
    return Written(events, tuple(notes))


def _head(base_ns: int) -> bytes:
    head = f'{{"displayTimeUnit":"ms","baseTimeNanoseconds":{base_ns},"traceEvents":[\n'
    return head.encode()


def _notes(trace: Trace, untimed: int, crowded: int, size: int) -> list[str]:
    notes = list(trace.notes)
    if last_config(trace.events()).get("sampled"):
        notes.append(
            "The source shows only some of the steps: a gap between two of them is no idle time."
        )
    if untimed:
        notes.append(
            f"Instants, not slices, since how long they took is not told: {count(untimed, 'step')}."
        )
    if crowded:
        notes.append(
            "Instants, not slices, since they stand for several steps or overlap too many others: "
            f"{count(crowded, 'row')}."
        )
    if size > _MOST_SHOWN:
        notes.append(
            f"The file holds {size / (1 << 30):.1f} GiB of JSON, more than a browser opens well: "
            "export a stretch of it with --window."
        )
    return notes
