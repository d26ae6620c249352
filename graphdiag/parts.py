"""A part of a trace: a Parquet file, or rows in memory; checked, brought to format 1, and read.

A part is read in two ways: lazily, for look-ups that touch few rows, and batch by batch, for sums
over all of them. Batches come with dictionary-encoded text, so that grouping by it costs no more
than grouping by integers, and memory does not grow with the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from graphdiag.errors import SourceError
from graphdiag.paths import printable
from graphdiag.places import Place
from graphdiag.timerange import TimeRange
from graphdiag_collectors.schema import FORMAT, FORMAT_KEY, arrow_schema
from graphdiag_collectors.tails import TailDamaged, whole_batches

BATCH_ROWS = 1 << 18
"""Rows of a batch; smaller ones are joined, larger ones cut."""

_ARROW: pa.Schema = arrow_schema()
# Said by hand: what pyarrow and polars offer for it imports pandas where that is installed.
_POLARS = {
    pa.string(): pl.String,
    pa.int32(): pl.Int32,
    pa.int64(): pl.Int64,
    pa.float64(): pl.Float64,
    pa.bool_(): pl.Boolean,
}
_SCHEMA: pl.Schema = pl.Schema({field.name: _POLARS[field.type] for field in _ARROW})
_TEXT = tuple(name for name, dtype in _SCHEMA.items() if dtype == pl.String)
_NOTHING: Mapping[str, int | str | None] = {}
_Frame = TypeVar("_Frame", pl.LazyFrame, pl.DataFrame)


class Part(Protocol):
    """Rows of format 1 that can be had lazily and by batch."""

    def frame(self) -> pl.LazyFrame:
        """Every column of the format in order, lazily."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield all rows, ``columns`` alone, text as Categorical."""
        ...

    def within(self, time: TimeRange) -> Part:
        """Return the rows that began in ``time`` alone."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows in memory, of the schema of format 1.

    ``becomes`` is the path of the part that a live tail's rows become, none for other rows.
    """

    name: str
    rows: pl.DataFrame
    becomes: str | None = None

    def frame(self) -> pl.LazyFrame:
        """Every column of the format in order, lazily."""
        return self.rows.lazy()

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield all rows, ``columns`` alone, text as Categorical."""
        for piece in self.rows.select(columns).iter_slices(BATCH_ROWS):
            yield _conformed(piece, columns, pl.Categorical)

    def within(self, time: TimeRange) -> Part:
        """Return the rows that began in ``time`` alone."""
        return replace(self, rows=self.rows.filter(time.holds()))


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file of format 1, on this machine or in a store.

    ``time`` leaves out what did not begin in it, by whole row groups where their statistics tell.
    """

    place: Place
    time: TimeRange | None = None

    def footer(self) -> pq.FileMetaData:
        """Return its footer, which tells the schema and the number of rows.

        Raises
        ------
        SourceError
            When the file cannot be read, or is empty or no Parquet.
        """
        with reading(self.place.name), self.place.open() as file:
            if file.read(1):
                return pq.read_metadata(file)
        raise SourceError(
            f"{self.place.name}: the file is empty; if a recording was cut short, give the folder "
            "it was recorded into."
        )

    def frame(self) -> pl.LazyFrame:
        """Every column of the format in order, lazily."""
        with reading(self.place.name):
            rows = _conformed(self._scan(), _SCHEMA.names(), pl.String)
        return rows if self.time is None else rows.filter(self.time.holds())

    def within(self, time: TimeRange) -> Part:
        """Return the rows that began in ``time`` alone."""
        return replace(self, time=time)

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield all rows, ``columns`` alone, text as Categorical."""
        with reading(self.place.name), self.place.open() as file:
            footer = pq.read_metadata(file)
            where = {name: index for index, name in enumerate(footer.schema.names)}
            wanted = ("event", *columns) if self.time is None else ("event", "t_ns", *columns)
            present = {name: where[name] for name in wanted if name in where}
            text = [name for name in present if name in _TEXT]
            parquet = pq.ParquetFile(file, metadata=footer, read_dictionary=text)
            for group in range(parquet.num_row_groups):
                if not self._may_hold(footer.row_group(group), where.get("t_ns")):
                    continue
                same = _same(footer.row_group(group), present)
                # One column at least tells how many rows there are.
                read = [name for name in present if name not in same] or ["event"]
                for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=read):
                    batch.validate(full=True)  # a damaged page must not reach native code
                    frame = pl.from_arrow(batch)
                    assert isinstance(frame, pl.DataFrame)
                    if self.time is not None:
                        timed = list(dict.fromkeys(("t_ns", *columns)))
                        frame = _conformed(frame, timed, pl.Categorical, same)
                        frame = frame.filter(self.time.holds())
                    yield _conformed(frame, columns, pl.Categorical, same)

    def _may_hold(self, group: pq.RowGroupMetaData, place: int | None) -> bool:
        """Say whether a row group may hold rows of :attr:`time`; ``place`` is that of ``t_ns``."""
        if self.time is None:
            return True
        told = None if place is None else group.column(place).statistics
        if told is None or not told.has_min_max:
            return True
        return self.time.meets(told.min, told.max)

    def _scan(self) -> pl.LazyFrame:
        if self.place.is_local:
            if printable(self.place.path) != self.place.path:  # polars takes no such path
                with Path(self.place.path).open("rb") as file:
                    return pl.scan_parquet(file)
            return pl.scan_parquet(self.place.path, glob=False)
        import pyarrow.dataset  # slow to import, and seldom needed

        dataset = pyarrow.dataset.dataset(
            self.place.path, filesystem=self.place.filesystem, format="parquet"
        )
        return pl.scan_pyarrow_dataset(dataset)


def read_tail(name: str, file: BinaryIO) -> tuple[Rows, str | None]:
    """Return the whole record batches of a live tail, and a note where rows after them are lost.

    A torn last batch was being written, and is worth no note.

    Raises
    ------
    SourceError
        When the tail is no trace, or of a newer format.
    """
    batches: list[pa.RecordBatch] = []
    note = None
    try:
        for batch in whole_batches(file):
            batches.append(batch)
    except TailDamaged as damage:
        note = f"{name} is {damage}."
    schema = batches[0].schema if batches else _ARROW
    with reading(name):
        check_schema(name, schema)
        frame = pl.from_arrow(pa.Table.from_batches(batches, schema=schema))
        assert isinstance(frame, pl.DataFrame)
        return Rows(name, _conformed(frame, _SCHEMA.names(), pl.String)), note


def check_schema(name: str, schema: pa.Schema) -> None:
    """Raise SourceError when ``schema`` is not of a format that this version reads."""
    found = (schema.metadata or {}).get(FORMAT_KEY)
    if found is None or "event" not in schema.names:
        raise SourceError(
            f"{name}: a Parquet file, but no graphdiag trace (its metadata lacks "
            f"{FORMAT_KEY.decode()}); record or import one first."
        )
    told = found[:20].decode(errors="replace")
    if not told.isdecimal() or not int(told):
        raise SourceError(
            f"{name}: {told!r} is no trace format; this graphdiag reads format {FORMAT}, so write "
            "the trace again."
        )
    if int(told) > FORMAT:
        raise SourceError(
            f"{name}: trace format {told} is newer than format {FORMAT}, which this graphdiag "
            "reads; upgrade graphdiag."
        )
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise SourceError(f"{name}: column {twice[0]} is there twice; write it once.")
    for field in _ARROW:
        where = schema.get_field_index(field.name)
        if where >= 0 and not _fits(schema.field(where).type, field.type):
            raise SourceError(
                f"{name}: column {field.name} holds {schema.field(where).type} and not "
                f"{field.type}; write it as `graphdiag schema` says."
            )


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn what goes wrong while ``name`` is read into a SourceError that says so."""
    try:
        yield
    except PermissionError as error:
        raise SourceError(f"{name}: you may not read it; check its permissions.") from error
    except FileNotFoundError as error:
        raise SourceError(f"{name}: no such file; check the path.") from error
    except (
        OSError,
        UnicodeDecodeError,
        pa.ArrowException,
        pl.exceptions.ComputeError,
        pl.exceptions.InvalidOperationError,
        pl.exceptions.PanicException,
    ) as error:
        raise SourceError(
            f"{name}: damaged, it cannot be read ({_first_line(error)}); copy it again, or leave "
            "it out."
        ) from error


def joined(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the same rows in batches of at least half of :data:`BATCH_ROWS`, but for the last."""
    waiting: list[pl.DataFrame] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= BATCH_ROWS // 2:
            yield _one(waiting)
            waiting, rows = [], 0
    if rows:
        yield _one(waiting)


def _one(batches: list[pl.DataFrame]) -> pl.DataFrame:
    # In one piece: of columns in several, each query would make it again.
    return pl.concat(batches, rechunk=True) if len(batches) > 1 else batches[0]


def no_rows(columns: Sequence[str]) -> pl.DataFrame:
    """Return an empty batch."""
    return _conformed(pl.DataFrame(), columns, pl.Categorical).clear()


def _conformed(
    frame: _Frame,
    columns: Sequence[str],
    text: type[pl.DataType],
    same: Mapping[str, int | str | None] = _NOTHING,
) -> _Frame:
    """Bring a frame to ``columns`` of format 1: missing ones null, unknown ones left out.

    ``same`` are values of missing columns that are the same on every row.
    """
    present = frame.collect_schema()
    mended = []
    for name in columns:
        dtype = text if name in _TEXT else _SCHEMA[name]
        if name not in present:
            value = same.get(name)
            if isinstance(frame, pl.DataFrame):
                mended.append(pl.lit(_filled(value, dtype, len(frame))).alias(name))
            else:
                mended.append(pl.lit(value, dtype).alias(name))
        elif present[name] != dtype:
            mended.append(pl.col(name).cast(dtype))
    return frame.with_columns(mended).select(columns)


@lru_cache(maxsize=32)
def _filled(value: int | str | None, dtype: pl.DataType, rows: int) -> pl.Series:
    """Return a column with ``value`` on every row; batches share it, and every query on them."""
    return pl.Series([value], dtype=dtype).new_from_index(0, rows)


def _same(group: pq.RowGroupMetaData, columns: Mapping[str, int]) -> dict[str, int | str | None]:
    """Return the value of those of ``columns`` (by place) that have one alone in ``group``.

    The statistics tell it, so that such a column need not be read.
    """
    same: dict[str, int | str | None] = {}
    for name, place in columns.items():
        told = group.column(place).statistics
        if told is None or not told.has_null_count:
            continue
        if told.null_count == group.num_rows:
            same[name] = None
        elif not told.null_count and told.has_min_max and told.min == told.max:
            kind = str if name in _TEXT else int
            if isinstance(told.min, kind):  # not of floats, whose statistics leave out NaN
                same[name] = told.min
    return same


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether values of type ``found`` are the same values in the type ``wanted``."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_string(wanted):
        if pa.types.is_dictionary(found):
            found = found.value_type
        return bool(
            pa.types.is_string(found)
            or pa.types.is_large_string(found)
            or pa.types.is_string_view(found)
        )
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(found) or pa.types.is_integer(found))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    return bool(found == wanted)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
