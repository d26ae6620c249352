"""The rows of a trace in order of time, in batches of bounded size, however its parts lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from graphdiag.parts import Part, Rows, no_rows
from graphdiag.timerange import TimeRange
from graphdiag.trace import Trace

_BATCH_ROWS = 1 << 17
_STRIDE = 512
"""One time in so many is kept to choose where batches are cut."""


def in_time_order(trace: Trace, columns: Sequence[str]) -> Iterator[tuple[float, pl.DataFrame]]:
    """Yield batches of all rows that have a time, each with the share of the trace it ends at.

    ``columns`` must hold ``t_ns``; text is Categorical. Rows of one time keep the order of the
    parts. Batches are of some hundred thousand rows, more where times are equal.
    Each part is read once for its times, and those parts of it that a batch needs once more.

    Raises
    ------
    SourceError
        When a part turns out to be damaged or gone.
    """
    parts = trace.parts or (Rows(trace.source, trace.collect(trace.frame)),)
    spans = [(part, *span) for part in parts if (span := _span(part)) is not None]
    if not spans:
        return
    sample = np.sort(np.concatenate([times for _, _, _, times in spans]))
    cuts = np.unique(sample[_BATCH_ROWS // _STRIDE :: _BATCH_ROWS // _STRIDE])
    starts = [min(first for _, first, _, _ in spans), *cuts.tolist()]
    ends = [*cuts.tolist(), max(last for _, _, last, _ in spans) + 1]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        time = TimeRange(int(start), int(end))
        found = [
            batch
            for part, first, last, _ in spans
            if time.meets(first, last)
            for batch in part.within(time).batches(columns)
        ]
        rows = pl.concat([no_rows(columns), *found]).sort("t_ns", maintain_order=True)
        del found
        yield (number + 1) / len(starts), rows


def _span(part: Part) -> tuple[int, int, np.ndarray] | None:
    """Return the first and last time of a part and a sample of them; None where it has none."""
    first = last = None
    sample: list[np.ndarray] = []
    for batch in part.batches(["t_ns"]):
        times = np.sort(batch["t_ns"].drop_nulls().to_numpy())
        if len(times):
            first = int(times[0]) if first is None else min(first, int(times[0]))
            last = int(times[-1]) if last is None else max(last, int(times[-1]))
            sample.append(times[_STRIDE - 1 :: _STRIDE])
    if first is None or last is None:
        return None
    return first, last, np.concatenate(sample)
