"""The files of a trace's folder: live tails, and the parts they are sealed into.

Tail ``_tail-ID-N.arrow`` is an Arrow IPC stream that holds exactly the rows of what will be
``part-ID-N.parquet``. A part is written beside, as ``_part-ID-N.parquet.tmp``, fsynced, renamed,
the folder fsynced, and only then is its tail removed. So a reader that sees both takes the part,
one that finds a tail gone looks for the part, and names that start with ``_`` are no sealed rows.
A tail may end in a torn batch, of a process that was killed while it wrote: whole batches count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from graphdiag_collectors.columns import SCHEMA
from graphdiag_collectors.tails import whole_batches

ROW_GROUP = 1 << 18
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_DELTA = (
    *("t_ns", "dur_ns", "step", "num_tokens", "kv_tokens", "dispatch_ns", "host_ns", "blocked_ns"),
    *("graph_launch_ns", "gpu_ns", "gap_ns", "gpu_span_ns", "compile_ns"),
    *("mem_before", "mem_after", "pool_bytes"),
    *("requested", "num_reqs", "tokens_out"),
)
"""Columns whose differences from row to row are smaller than a place in a dictionary."""


def part_of(tail: Path) -> Path:
    """Return the part that ``tail`` becomes."""
    return tail.with_name(f"part-{tail.stem.removeprefix('_tail-')}.parquet")


def parts_and_tails(folder: Path) -> list[Path]:
    """Return the files that hold a folder's rows, each row once, in order of their names."""
    parts = {path.stem.removeprefix("part-"): path for path in folder.glob("part-*.parquet")}
    tails = {path.stem.removeprefix("_tail-"): path for path in folder.glob("_tail-*.arrow")}
    return [path for _, path in sorted((tails | parts).items())]


class Tail:
    """A live tail, open for appending.

    Every batch is made in memory and written whole; when that fails half-way the file is cut back
    to the batch before, so that it stays readable and can go on when there is room again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0
        try:
            self._write(_HEADER)
        except OSError:
            self.close()
            path.unlink()
            raise

    def append(self, batch: pa.RecordBatch) -> int:
        """Write ``batch`` and return its bytes on disk.

        Raises
        ------
        OSError
            When it could not be written whole; then none of it is in the file.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA, options=_OPTIONS) as writer:
            writer.write_batch(batch)
        written = self._write(memoryview(sink.getvalue())[len(_HEADER) : -_END_OF_STREAM])
        self.rows += batch.num_rows
        return written

    def is_gone(self) -> bool:
        """Say whether somebody removed the file, so that what is written to it is lost."""
        return os.fstat(self._file).st_nlink == 0

    def close(self) -> None:
        """Close the file; its rows stay."""
        os.close(self._file)

    def _write(self, data: bytes | memoryview) -> int:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        return len(data)


def read_tail(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the whole batches of a tail; a torn one after them was being written.

    Raises
    ------
    FileNotFoundError
        When it has become a part meanwhile.
    TailDamaged
        After the last batch that can be read, when rows after it are lost.
    """
    with path.open("rb") as file:
        yield from whole_batches(file)


def write_part(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write ``batches`` as one Parquet file that appears at ``path`` whole or not at all.

    Returns the number of rows.

    Raises
    ------
    OSError
        When the disk does not take it; nothing is left behind.
    """
    import pyarrow.parquet as pq

    beside = path.with_name(f"_{path.name}.tmp")
    text = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
    numbers = [field.name for field in SCHEMA if not pa.types.is_string(field.type)]
    rows = 0
    try:
        # An open file and not its name: Arrow takes no path that is not UTF-8.
        with (
            beside.open("wb") as file,
            pq.ParquetWriter(
                file,
                SCHEMA,
                compression="zstd",
                compression_level=6,
                use_dictionary=[*text, *(name for name in numbers if name not in _DELTA)],
                column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
                store_schema=False,
            ) as writer,
        ):
            writer.add_key_value_metadata(SCHEMA.metadata)
            for table in _row_groups(batches):
                writer.write_table(table, row_group_size=ROW_GROUP)
                rows += table.num_rows
        _sync(beside)
        beside.replace(path)
        _sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    return rows


def seal(tail: Path) -> None:
    """Turn a tail that is complete into its part, and remove it.

    Raises
    ------
    OSError
        When the part could not be written; the tail stays, and nothing is lost.
    TailDamaged
        When the tail cannot be read to its end; it stays as well.
    """
    write_part(part_of(tail), read_tail(tail))
    tail.unlink()
    pa.default_memory_pool().release_unused()


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches to tables of about a row group."""
    waiting: list[list[pa.Array | None]] = []
    lengths: list[int] = []
    for batch in batches:
        # An empty column's memory is let go at once: most of the schema's columns are empty.
        waiting.append([None if a.null_count == len(a) else a for a in batch.columns])
        lengths.append(batch.num_rows)
        if sum(lengths) >= ROW_GROUP:
            yield _join(waiting, lengths)
            waiting, lengths = [], []
    if waiting:
        yield _join(waiting, lengths)


def _join(batches: list[list[pa.Array | None]], lengths: list[int]) -> pa.Table:
    nulls = {kind: pa.nulls(max(lengths), kind) for kind in SCHEMA.types}
    columns = [
        pa.chunked_array(
            [
                nulls[field.type][:length] if batch[i] is None else batch[i]
                for batch, length in zip(batches, lengths, strict=True)
            ],
            field.type,
        )
        for i, field in enumerate(SCHEMA)
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _empty_stream() -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, SCHEMA, options=_OPTIONS).close()
    return bytes(sink.getvalue())


_END_OF_STREAM = 8
_HEADER = _empty_stream()[:-_END_OF_STREAM]
