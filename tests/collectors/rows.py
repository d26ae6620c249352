"""How the recorder's tests read back what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from graphdiag_collectors.files import parts_and_tails, read_tail

Row = dict[str, Any]


def read(folder: Path, event: str | None = None) -> list[Row]:
    """Rows of a folder as a reader sees them: parts, and tails that have no part yet."""
    rows: list[Row] = []
    for path in parts_and_tails(folder):
        if path.suffix == ".arrow":
            for batch in read_tail(path):
                rows += batch.to_pylist()
        else:
            rows += pq.read_table(path).to_pylist()
    return [row for row in rows if event is None or row["event"] == event]


def steps(folder: Path) -> list[Row]:
    """Rows of event step."""
    return read(folder, "step")


def told(row: Row) -> Row:
    """The columns of a row that are not null."""
    return {name: value for name, value in row.items() if value is not None}
