"""Rows of trace format 1, built by column or by row; columns not given are null.

The arrays are laid out here and not by ``pa.array``, which imports pandas wherever it is installed:
a fifth of a second and 40 MB, as much as the rest of a small report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from graphdiag_collectors.schema import arrow_schema

SCHEMA = arrow_schema()
_NAMES = frozenset(SCHEMA.names)
_NUMPY: dict[pa.DataType, type[np.generic]] = {
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.bool_(): np.bool_,
}

Column: TypeAlias = "Sequence[Any] | np.ndarray | pa.Array"
"""Values of a column; None in a sequence, and what a numpy masked array masks, is null."""


def batch(columns: Mapping[str, Column], n: int) -> pa.RecordBatch:
    """Return ``n`` rows in the schema of trace format 1.

    Parameters
    ----------
    columns
        Values by column name, each of length ``n``, in the column's own unit. A column that is
        left out is null in every row.
    n
        Number of rows.

    Raises
    ------
    KeyError
        When a name is no column of the format.
    ValueError
        When a column is not ``n`` long, or a value does not fit its type.
    """
    unknown = columns.keys() - _NAMES
    if unknown:
        raise KeyError(f"no such column in trace format 1: {', '.join(sorted(unknown))}")
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(n, field.type))
            continue
        if len(values) != n:
            raise ValueError(f"column {field.name} holds {len(values)} values, not {n}")
        arrays.append(_array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class RowBuilder:
    """Collects rows one at a time, for sources that are read line by line."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, **values: Any) -> None:
        """Add one row; a column that is not named is null.

        Raises
        ------
        KeyError
            When a name is no column of the format.
        """
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                if name not in _NAMES:
                    raise KeyError(f"no such column in trace format 1: {name}")
                column = self._columns[name] = []
            # A column is only as long as its last value: the gap up to this row is null.
            column.extend([None] * (self._rows - len(column)))
            column.append(value)
        self._rows += 1

    def take(self) -> pa.RecordBatch:
        """Return the rows collected so far and start anew."""
        columns, rows = self._columns, self._rows
        self._columns, self._rows = {}, 0
        for column in columns.values():
            column.extend([None] * (rows - len(column)))
        return batch(columns, rows)


def _array(values: Column, wanted: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == wanted else values.cast(wanted)
    if pa.types.is_string(wanted):
        return _text_array(values)
    if isinstance(values, np.ndarray) and values.dtype != np.object_:
        valid = ~np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
        return _plain_array(np.ma.getdata(values), valid, wanted)
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    filled = np.array([0 if value is None else value for value in values])
    return _plain_array(filled, None if present.all() else present, wanted)


def _plain_array(values: np.ndarray, valid: np.ndarray | None, wanted: pa.DataType) -> pa.Array:
    """Lay out numbers or booleans; ``valid`` is False where null."""
    data = values.astype(_NUMPY[wanted])
    same = data == values
    if not (same if valid is None else same | ~valid).all():
        raise ValueError(f"a value does not fit {wanted}")
    buffers = [None if valid is None else _bits(valid)]
    buffers.append(_bits(data) if pa.types.is_boolean(wanted) else pa.py_buffer(data))
    return pa.Array.from_buffers(wanted, len(data), buffers)


def _text_array(values: Sequence[str | None] | np.ndarray) -> pa.Array:
    texts = [None if value is None else str(value).encode() for value in values]
    sizes = np.fromiter((len(text or b"") for text in texts), np.int64, len(texts))
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    valid = np.fromiter((text is not None for text in texts), np.bool_, len(texts))
    data = pa.py_buffer(b"".join(text for text in texts if text))
    buffers = [None if valid.all() else _bits(valid), pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
