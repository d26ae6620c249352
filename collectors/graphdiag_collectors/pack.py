"""A recording's folder as one Parquet file, to attach to a bug report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from graphdiag_collectors.columns import SCHEMA
from graphdiag_collectors.files import (
    part_of,
    parts_and_tails,
    read_tail,
    write_part,
)
from graphdiag_collectors.schema import FORMAT, FORMAT_KEY
from graphdiag_collectors.tails import TailDamaged

_BATCH_ROWS = 65_536
_WAY_OUT = "remove it from the folder to pack the rest."


def pack(folder: str | os.PathLike[str], file: str | os.PathLike[str]) -> int:
    """Write the rows of a folder's parts and tails into ``file``, and return how many.

    The folder may still be recorded into; it stays as it is. Rows come in the order of the parts'
    names, whole batches of live tails included. The file appears whole or not at all.

    Raises
    ------
    FileNotFoundError
        When there is no such folder, or no folder for ``file``.
    ValueError
        When the folder holds no rows, or a part is damaged or not of this format.
    OSError
        When the file cannot be written.
    """
    source, target = Path(folder), Path(file)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder; name the one the recorder was given.")
    if not source.is_dir():
        raise ValueError(f"{source}: not a folder; a trace that is one file needs no packing.")
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"{target}: its folder does not exist; make it first.")
    try:
        next(source.iterdir(), None)  # a glob would find nothing, and not say why
    except PermissionError as error:
        raise ValueError(f"{source}: you may not read it; check its permissions.") from error
    paths = parts_and_tails(source)
    rows = _rows(paths)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{source}: no rows to pack; is this the folder the recorder was given?")
    return write_part(target, chain([first], rows))


def _rows(paths: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from _batches(path)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".arrow":
        try:
            yield from read_tail(path)
            return
        except FileNotFoundError:
            path = part_of(path)  # sealed since the folder was listed
        except TailDamaged as damage:
            raise ValueError(
                f"{path}: {damage}; report on the folder itself, or {_WAY_OUT}"
            ) from damage
        except OSError as error:
            raise _unreadable(path, error) from error
    yield from _read_part(path)


def _unreadable(path: Path, error: OSError) -> ValueError:
    if isinstance(error, PermissionError):
        return ValueError(f"{path}: you may not read it; check its permissions.")
    return ValueError(f"{path}: cannot be read ({error.strerror or error}); {_WAY_OUT}")


def _read_part(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the part has zero bytes; {_WAY_OUT}")
    try:
        # An open file and not its name: Arrow takes no path that is not UTF-8.
        with path.open("rb") as file, pq.ParquetFile(file) as part:
            found = (part.schema_arrow.metadata or {}).get(FORMAT_KEY)
            if found is None:
                raise ValueError(f"{path}: a Parquet file, but no part of a trace; {_WAY_OUT}")
            if found != str(FORMAT).encode():
                raise ValueError(
                    f"{path}: trace format {found.decode(errors='replace')} is not format "
                    f"{FORMAT}, which this graphdiag packs; upgrade graphdiag."
                )
            for batch in part.iter_batches(_BATCH_ROWS):
                yield _conform(batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"{path}: damaged, it is no whole Parquet; {_WAY_OUT}") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bring a batch to the schema: missing columns null, unknown ones left out."""
    present = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in present
        else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
