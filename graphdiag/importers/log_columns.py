"""Columns of step rows: text groups to numbers, numbers to words, kinds of line into one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphdiag.importers.rows import SCHEMA
from graphdiag_collectors.schema import OUTCOMES

Column: TypeAlias = "np.ndarray | pa.Array"
NONE = -1
"""Code of "no word" in :func:`words`."""
_LARGEST = np.iinfo(np.int32).max
EXACT, PADDED, FALLBACK, EAGER = map(OUTCOMES.index, ("exact", "padded", "fallback", "eager"))


def known(values: np.ndarray, when: np.ndarray) -> pa.Array:
    """Return ``values`` as a column that is null except ``when``."""
    return pa.array(values, mask=~when)


def fitting(values: np.ndarray, when: np.ndarray) -> pa.Array:
    """Return ``values`` as a 32-bit column, null except ``when``, and where one does not fit."""
    fits = when & (np.abs(values) <= _LARGEST)
    return pa.array(np.where(fits, values, 0).astype(np.int32), mask=~fits)


def words(codes: np.ndarray, vocabulary: Sequence[str]) -> pa.Array:
    """Return the word of each code as a text column; :data:`NONE` is null."""
    choice = pa.array([*vocabulary, None], pa.string())
    return choice.take(pa.array(np.where(codes == NONE, len(vocabulary), codes)))


def same(value: str | int | bool, n: int) -> pa.Array:
    """Return a column of ``n`` times ``value``."""
    return pa.repeat(pa.scalar(value), n)


def named(prefix: str, sizes: np.ndarray, when: np.ndarray) -> pa.Array:
    """Return the artifact name ``prefix/size`` of each row, null except ``when``."""
    return joined([prefix], np.zeros_like(sizes), sizes, when)


def joined(
    prefixes: Sequence[str], codes: np.ndarray, sizes: np.ndarray, when: np.ndarray | None = None
) -> pa.Array:
    """Return ``prefix/size`` of each row, ``codes`` choosing among ``prefixes``.

    Where ``when`` is given, rows for which it is false are null.
    """
    keys = pa.array(sizes * len(prefixes) + codes).dictionary_encode()
    pairs = [divmod(key, len(prefixes)) for key in keys.dictionary.to_pylist()]
    names = pa.array([f"{prefixes[code]}/{size}" for size, code in pairs], pa.string())
    column = names.take(keys.indices)
    return column if when is None else pc.if_else(pa.array(when), column, None)


def fate(
    requested: np.ndarray, bucket: np.ndarray, outcome: np.ndarray, replayed: np.ndarray
) -> dict[str, Column]:
    """Return the columns that say what became of each step.

    Parameters
    ----------
    requested, bucket
        Rows; negative where not known or not replayed.
    outcome
        Index into :data:`~graphdiag_collectors.schema.OUTCOMES`, or :data:`NONE`.
    replayed
        Whether the source says that a graph served the step, even where it does not say which.
    """
    sized = (requested > 0) & (bucket >= requested)
    ratio = np.divide(bucket - requested, requested, out=np.zeros(len(bucket)), where=sized)
    return {
        "requested": known(requested, requested >= 0),
        "bucket": known(bucket, bucket >= 0),
        "outcome": words(outcome, OUTCOMES),
        "padding_ratio": known(ratio, sized),
        "fallback": known(outcome == FALLBACK, (outcome != NONE) | replayed),
    }


def in_order(parts: Sequence[tuple[np.ndarray, dict[str, Column]]]) -> dict[str, Column]:
    """Return the rows of several kinds of line as one set of columns, in the order of the log.

    Each part is the positions of its lines and its columns; a column that a part lacks is null
    there.
    """
    filled = [part for part in parts if len(part[0])]
    if len(filled) == 1:
        return filled[0][1]
    order = pa.array(np.argsort(np.concatenate([lines for lines, _ in filled]), kind="stable"))
    names = dict.fromkeys(name for _, columns in filled for name in columns)
    return {
        name: pa.concat_arrays(
            [_arrow(name, columns.get(name), len(lines)) for lines, columns in filled]
        ).take(order)
        for name in names
    }


def _arrow(name: str, column: Column | None, n: int) -> pa.Array:
    wanted = SCHEMA.field(name).type
    if column is None:
        return pa.nulls(n, wanted)
    return (pa.array(column) if isinstance(column, np.ndarray) else column).cast(wanted)
