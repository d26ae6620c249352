"""Read a live tail: its whole batches, and whether what follows them is torn or damaged.

A process that is killed, or is just writing, leaves the start of a batch at the file's end. That
is torn, and normal. Anything else that cannot be read has lost rows that once were there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

_BEGIN = b"\xff\xff\xff\xff"
"""What each message of an Arrow stream begins with; its length in four bytes follows."""
_HEAD = 8
_MOST_METADATA = 1 << 16
"""Bytes; what comes before a batch's values takes a few thousand."""


class TailDamaged(ValueError):
    """A tail has bytes that cannot be read behind ``rows`` rows that can."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        super().__init__(f"damaged after {rows:,} rows; the rows after that are missing")


def whole_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield the whole batches of a tail, none where not even its schema is whole.

    Raises
    ------
    TailDamaged
        After the last batch that can be read, where the file does not just end there.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    stream = pa.PythonFile(file, mode="r")
    messages = pa.ipc.MessageReader.open_stream(stream)
    schema: pa.Schema | None = None
    head, rows = _BEGIN, 0
    while True:
        begin = stream.tell()
        try:
            message = messages.read_next_message()
        except StopIteration:  # the end of the file, or an end mark
            if stream.tell() < size:
                raise TailDamaged(rows) from None
            return
        except (pa.ArrowException, OSError) as error:
            if stream.tell() >= size and _is_start(_bytes(file, begin, size), head):
                return
            raise TailDamaged(rows) from error
        try:
            if schema is None:
                schema = pa.ipc.read_schema(message)
                continue
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise TailDamaged(rows) from error
        if head == _BEGIN:
            after = stream.tell()
            head = _bytes(file, begin, begin + _HEAD)
            file.seek(after)
        rows += batch.num_rows
        yield batch


def _is_start(rest: bytes, head: bytes) -> bool:
    """Say whether ``rest`` is the start of one message and no more.

    ``head`` begins every batch of the tail, as all of its batches have the same columns; before
    the first batch it is :data:`_BEGIN`.
    """
    if not head.startswith(rest[: len(head)]):
        return False
    if len(head) < _HEAD:
        return int.from_bytes(rest[len(head) : _HEAD], "little") <= _MOST_METADATA
    return head not in rest[1:]


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)
