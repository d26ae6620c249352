"""Sums by key that add up: over the rows of a batch, and over the tables of many batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

_FOLD_ROWS = 100_000
"""Rows of partial sums that are kept before they are added up."""


class Total:
    """Adds up tables of sums that share their keys, in memory that depends on the keys alone.

    Columns called ``t_min`` and ``t_max`` keep the least and the greatest, all others are added.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._tables: list[pl.DataFrame] = []
        self._rows = 0

    def add(self, table: pl.DataFrame) -> None:
        """Add a table; all that are added have the same columns."""
        self._tables.append(table)
        self._rows += len(table)
        if self._rows > max(_FOLD_ROWS, 2 * len(self._tables[0])):
            self._fold()

    def table(self) -> pl.DataFrame:
        """Return the sums by key, sorted: equal totals are equal tables in whatever order added.

        At least one table, if an empty one, must have been added.
        """
        self._fold()
        return self._tables[0].sort(self._keys, nulls_last=True)

    def _fold(self) -> None:
        rows = pl.concat(self._tables)
        how = {"t_min": pl.Expr.min, "t_max": pl.Expr.max}
        sums = [
            how.get(name, pl.Expr.sum)(pl.col(name))
            for name in rows.columns
            if name not in self._keys
        ]
        self._tables = [rows.group_by(self._keys).agg(sums)]
        self._rows = len(self._tables[0])


def sum_by(rows: pl.DataFrame, keys: Sequence[str], sums: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Return ``sums`` of ``rows`` by ``keys``, text as String.

    Keys that are the same on every row are left out of the grouping and put back after it, which
    is cheaper.
    """
    same = {key: rows[key][0] for key in keys if len(rows) and _is_same(rows[key])}
    varying = [key for key in keys if key not in same]
    table = rows.group_by(varying).agg(**sums) if varying else rows.select(**sums)
    columns = []
    for key in keys:
        dtype = rows.schema[key]
        if dtype == pl.Categorical:
            dtype = pl.String()
        columns.append(
            pl.lit(same[key], dtype).alias(key) if key in same else pl.col(key).cast(dtype)
        )
    return table.select(*columns, *sums)


def sum_of(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Expression: the sum of a measure, in 64 bits; free where it is null throughout."""
    if is_null(rows[name]):
        return pl.lit(0, pl.Int64)
    return pl.col(name).cast(pl.Int64).sum()


def weight_of(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Expression: the sum of the weights of the rows that have a measure."""
    weight = pl.col("weight")
    if is_null(rows[name]):
        return pl.lit(0, pl.Int64)
    # A product is cheaper than a filter inside an aggregation.
    has = pl.col(name).is_not_null()
    return (weight * has).sum() if rows[name].null_count() else weight.sum()


def is_null(column: pl.Series) -> bool:
    """Say whether ``column`` holds no value."""
    return column.null_count() == len(column)


def _is_same(column: pl.Series) -> bool:
    if column.null_count():
        return is_null(column)
    codes = column.to_physical()
    return bool(codes.dtype.is_integer() and codes.min() == codes.max())
