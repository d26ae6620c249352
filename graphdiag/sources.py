"""Whatever a person has, as a trace: opened where it is one, imported on the fly where not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.importers.registry import Importer, recognise
from graphdiag.importers.source import Source
from graphdiag.places import Place, resolve
from graphdiag.trace import Trace, is_trace, open_trace
from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import arrow_schema

_IN_MEMORY_ROWS = 100_000
"""Imported rows kept in memory; more are spooled to a temporary Parquet file."""


@contextmanager
def open_source(paths: Sequence[str]) -> Iterator[Trace]:
    """Yield a trace for ``paths``: a trace in any of its forms, or files an importer reads.

    Several files are parts of one trace, or one log that was rotated. Imported rows live only
    inside the ``with``.

    Raises
    ------
    SourceError
        When a file is missing, damaged, of no known format, or the formats differ.
    """
    if all(is_trace(path) for path in paths):
        yield open_trace(paths)
        return
    name = ", ".join(paths)
    batches = _imported(paths)
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(piece.num_rows for piece in kept) > _IN_MEMORY_ROWS:
            break
    else:
        frame = pl.from_arrow(pa.Table.from_batches(kept, schema=arrow_schema()))
        assert isinstance(frame, pl.DataFrame)
        yield Trace(source=name, frame=frame.lazy())
        return
    with tempfile.TemporaryDirectory(prefix="graphdiag-") as folder:
        spool = Path(folder) / "imported.parquet"
        try:
            write_part(spool, chain(_emptied(kept), batches))
        except OSError as error:
            raise SourceError(
                f"{folder}: what was read of {name} cannot be kept there "
                f"({error.strerror or error}); set TMPDIR to a folder with room."
            ) from error
        opened = open_trace(spool)
        yield Trace(name, opened.frame, opened.notes, opened.parts)


def import_source(paths: Sequence[str], out: str) -> int:
    """Import ``paths`` into the Parquet file ``out`` and return the number of rows written.

    The file appears whole or not at all.

    Raises
    ------
    SourceError
        As :func:`open_source`; or when ``paths`` is a trace already, or ``out`` cannot be written.
    """
    if all(is_trace(path) for path in paths):
        raise SourceError(f"{', '.join(paths)}: already a graphdiag trace; report on it as it is.")
    target = Path(out)
    if not target.name or target.is_dir():
        raise SourceError(f"{out}: is a folder; name the file to write in it.")
    try:
        return write_part(target, _imported(paths))
    except OSError as error:
        raise SourceError(f"{out}: cannot be written ({error.strerror or error}).") from error


def _imported(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the importer of ``paths`` reads; whatever goes wrong is a SourceError."""
    places = [place for path in paths for place in resolve(path)]
    importer, sources = _importer(places)
    try:
        yield from importer.read(sources)
    except (OSError, EOFError) as error:
        raise SourceError(
            f"{', '.join(paths)}: reading it stopped ({error}); copy it again and retry."
        ) from error


def _importer(places: list[Place]) -> tuple[Importer, list[Source]]:
    for place in places:
        if is_trace(place.name):
            raise SourceError(
                f"{place.name}: a trace among files to import; give either traces or sources, "
                "not both."
            )
    sources = [Source(place.name) for place in places]
    importers = {source.path: recognise(source) for source in sources}
    first = importers[sources[0].path]
    for path, importer in importers.items():
        if importer.NAME != first.NAME:
            raise SourceError(
                f"{path}: a {importer.NAME}, but {sources[0].path} is a {first.NAME}; "
                "report on them one at a time."
            )
    return first, sources


def _emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield and forget ``batches`` one by one, so that their memory can go."""
    while batches:
        yield batches.pop(0)
