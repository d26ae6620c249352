"""Small traces made by hand, for tests that know what must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from graphdiag.trace import Trace
from graphdiag_collectors.schema import arrow_schema

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000

Row = Mapping[str, Any]


def step(
    requested: int | None, bucket: int | None = None, at_ms: float = 0.0, **columns: Any
) -> dict[str, Any]:
    """A decode step of the target; its outcome follows from the bucket unless it is given."""
    replayed = "exact" if bucket == requested else "padded"
    outcome = "fallback" if bucket is None else replayed
    base = {
        "event": "step",
        "t_ns": START_NS + round(at_ms * MS),
        "run": "run-1",
        "rank": 0,
        "pid": 1,
        "weight": 1,
        "runner": "target",
        "phase": "decode",
        "axis": "requests",
        "requested": requested,
        "bucket": bucket,
        "outcome": outcome,
        "mode": "eager" if bucket is None else "full",
        "artifact": None if bucket is None else f"decode/{bucket}",
    }
    return {**base, **columns}


def event(kind_of_event: str, at_ms: float = 0.0, **columns: Any) -> dict[str, Any]:
    """A capture, compile, run, memory or mark row."""
    base = {
        "event": kind_of_event,
        "t_ns": START_NS + round(at_ms * MS),
        "run": "run-1",
        "rank": 0,
        "pid": 1,
    }
    if isinstance(columns.get("config"), dict):
        columns["config"] = json.dumps(columns["config"])
    return {**base, **columns}


def table(rows: Iterable[Row]) -> pa.Table:
    """The rows in trace format 1, missing columns null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema())


def trace(rows: Iterable[Row], source: str = "made by hand") -> Trace:
    """The rows as a trace in memory."""
    frame = pl.from_arrow(table(rows))
    assert isinstance(frame, pl.DataFrame)
    return Trace(source=source, frame=frame.lazy())


def write(rows: Iterable[Row], path: Path) -> Path:
    """The rows as a trace file."""
    pq.write_table(table(rows), path)
    return path
