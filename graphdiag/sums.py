"""Sums by key that add up: over the rows of a batch, and over the tables of many batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

_FOLD_ROWS = 250_000
"""Rows of partial sums that are kept before they are added up."""

_CODES = 1 << 62
"""Most numbers there are for combinations of keys."""
_HALF = 1 << 63
_DENSE = 1 << 32
"""Values of a key that lie farther apart are numbered as they come."""

_NO_TIME = np.iinfo(np.int64)
_ENDS = {"t_min": (_NO_TIME.max, np.minimum), "t_max": (_NO_TIME.min, np.maximum)}
"""What is kept of those that are not added, and what stands for none."""

Ints = NDArray[np.int64]


class Total:
    """Adds up tables of sums that share their keys, in memory that depends on the keys alone.

    Columns called ``t_min`` and ``t_max`` keep the least and the greatest, all others are added.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._tables: list[pl.DataFrame] = []
        self._rows = 0

    def add(self, table: pl.DataFrame) -> None:
        """Add a table; all that are added have the same columns, text as String or Categorical."""
        self._tables.append(table.with_columns(pl.col(pl.String).cast(pl.Categorical)))
        self._rows += len(table)
        if self._rows > max(_FOLD_ROWS, 2 * len(self._tables[0])):
            self._fold()

    def sums(self) -> pl.DataFrame:
        """Return the sums by key, text as Categorical; one table at least must have been added."""
        self._fold()
        return self._tables[0]

    def table(self) -> pl.DataFrame:
        """Return the sums by key, text as String, sorted by key, nulls last.

        Equal totals are equal tables in whatever order added. One table at least, if an empty one,
        must have been added.
        """
        return _sorted(self.sums(), self._keys)

    def _fold(self) -> None:
        rows = pl.concat(self._tables)
        sums = {name: pl.col(name) for name in rows.columns if name not in self._keys}
        self._tables = [sum_by(rows, self._keys, sums)]
        self._rows = len(self._tables[0])


def sum_by(
    rows: pl.DataFrame, keys: Sequence[str], measures: Mapping[str, pl.Expr]
) -> pl.DataFrame:
    """Return the sums of ``measures`` of ``rows`` by ``keys``, a row per combination.

    A measure is a number a row; null adds nothing, and sums of whole numbers are of 64 bits. Of
    those called ``t_min`` and ``t_max`` the least and the greatest are kept, null where there is
    none. Keys are whole numbers or text, which comes back as Categorical.

    Keys are made one number a row, and the groups found by that: finding them by several keys costs
    a multiple. What is the same on every row is counted, not added.
    """
    chosen = rows.select(keys)
    group, first = _groups(_codes(chosen.select(pl.all().to_physical()))[0])
    counts = np.bincount(group, minlength=len(first))
    values = rows.with_columns(**measures).select(*measures)
    missing = [one.name for one in values if 0 < one.null_count() < len(one)]
    values = values.with_columns(
        pl.col(name).fill_null(_ENDS[name][0] if name in _ENDS else 0) for name in missing
    )
    found = [(_end if one.name in _ENDS else _sum)(one, group, counts) for one in values]
    return chosen[first].hstack(found)


def sum_of(name: str) -> pl.Expr:
    """Expression: a measure, to be summed in 64 bits."""
    return pl.col(name).cast(pl.Int64)


def weight_of(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Expression: the weight of a row that has a measure."""
    weight = pl.col("weight")
    return weight * pl.col(name).is_not_null() if rows[name].null_count() else weight


def _sum(values: pl.Series, group: Ints, counts: Ints) -> pl.Series:
    dtype = np.float64 if values.dtype.is_float() else np.int64
    if values.null_count() == len(values):
        return pl.Series(values.name, np.zeros(len(counts), dtype))
    if values[0] == values[-1] and values.min() == values.max():
        return pl.Series(values.name, counts * values[0])
    total = np.zeros(len(counts), dtype)
    np.add.at(total, group, values.to_numpy().astype(dtype, copy=False))
    return pl.Series(values.name, total)


def _end(values: pl.Series, group: Ints, counts: Ints) -> pl.Series:
    none, keep = _ENDS[values.name]
    if values.null_count():
        return values.clear(len(counts))
    ends = np.full(len(counts), none)
    keep.at(ends, group, values.to_numpy())
    found = pl.Series(values.name, ends)
    empty = ends == none
    return found.set(pl.Series(empty), None) if empty.any() else found


def _codes(keys: pl.DataFrame) -> tuple[Ints, np.int64 | None]:
    """Return a number for each row, which rows share whose ``keys``, whole numbers, are the same.

    Counted from the second value on, modulo 2**64, the numbers are in the order of the keys, nulls
    last. It is None where the keys are too many or too far apart, and numbered as they come.
    """
    told, ranges, in_order = [], {}, True
    for values in keys:
        if values.null_count() == len(values):
            continue
        low, high = _range(values)
        if low == high and not values.null_count():
            continue
        if high - low > _DENSE or high > _CODES:
            values, in_order = _numbered(values), False
            low, high = _range(values)
        told.append(values)
        ranges[values.name] = (low, high)
    filled = pl.DataFrame(told).with_columns(
        pl.col(one.name).cast(pl.Int64).fill_null(ranges[one.name][1] + 1)
        for one in told
        if one.null_count()
    )
    codes, used, least = np.zeros(len(keys), np.int64), 1, 0
    for values in filled:
        low, high = ranges[values.name]
        size = high - low + 2  # one for null
        if used > _CODES // size:
            codes, used, in_order = _groups(codes)[0], len(codes), False
        codes *= size
        codes += values.to_numpy()
        used *= size
        least = (least * size + low + _HALF) % (2 * _HALF) - _HALF
    return codes, np.int64(least) if in_order else None


def _sorted(table: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return ``table`` sorted by ``keys``, nulls last, text as String.

    Sorting by one number takes a fraction of what sorting by several columns of text takes.
    """
    chosen = table.select(keys)
    codes, least = _codes(
        pl.DataFrame([_ranked(one) if one.dtype == pl.Categorical else one for one in chosen])
    )
    if least is None:
        return _as_text(table).sort(keys, nulls_last=True)
    return _as_text(table[np.argsort(codes - least, kind="stable")])


def _ranked(text: pl.Series) -> pl.Series:
    """Return the place of each text among all of them in order; null stays null."""
    known = text.unique().drop_nulls()
    order = known.cast(pl.String).arg_sort()
    places = pl.Series(range(len(known)), dtype=pl.Int64)
    return text.to_physical().replace_strict(
        known.to_physical()[order], places, default=None, return_dtype=pl.Int64
    )


def _as_text(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _groups(codes: Ints) -> tuple[Ints, Ints]:
    """Return the group of each row, numbered from 0 as they come, and each group's first row.

    ``codes`` are overwritten.
    """
    group = _numbered(pl.Series(codes)).to_numpy().astype(np.int64)
    # The first row of each is where the highest number rises.
    highest = np.maximum.accumulate(group, out=codes)
    rises = np.ones(len(group), dtype=bool)
    np.not_equal(highest[1:], highest[:-1], out=rises[1:])
    return group, np.flatnonzero(rises)


def _range(values: pl.Series) -> tuple[int, int]:
    return int(values.min()), int(values.max())  # type: ignore[arg-type]


def _numbered(values: pl.Series) -> pl.Series:
    """Return the values numbered from 0 as they come; null stays null."""
    return pl.Series(values.name, values.to_arrow().dictionary_encode().indices)
