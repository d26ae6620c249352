"""What the tests of the server-log importers share: logs in, tables out."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa

from graphdiag.importers.source import Source
from graphdiag.runconfig import run_configs
from graphdiag_collectors.schema import arrow_schema

LOGS = Path(__file__).parents[1] / "data" / "logs"


def read(importer: ModuleType, *paths: Path, block_bytes: int | None = None) -> pl.DataFrame:
    """All rows that ``importer`` makes of the log in ``paths``."""
    sources = [Source(str(path)) for path in paths]
    extra = {} if block_bytes is None else {"block_bytes": block_bytes}
    batches = list(importer.read(sources, **extra))
    assert all(batch.schema.equals(arrow_schema(), check_metadata=True) for batch in batches)
    frame = pl.from_arrow(pa.Table.from_batches(batches, schema=arrow_schema()))
    assert isinstance(frame, pl.DataFrame)
    return frame


def rows(frame: pl.DataFrame, event: str, *columns: str) -> list[tuple[Any, ...]]:
    """The named columns of the rows of one event, in the order of the log."""
    return frame.filter(pl.col("event") == event).select(columns).rows()


def configs(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The configuration of each run, merged as the analyzer merges it."""
    return list(run_configs(frame).values())


def write(folder: Path, text: str | bytes, name: str = "server.log") -> Path:
    """A log file with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def counts(frame: pl.DataFrame) -> dict[str | None, int]:
    """Real target steps by outcome."""
    steps = frame.filter(
        (pl.col("event") == "step") & pl.col("kind").is_null() & (pl.col("runner") == "target")
    )
    return dict(steps.group_by("outcome").agg(pl.col("weight").sum()).iter_rows())
