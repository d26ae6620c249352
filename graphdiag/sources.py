"""Whatever a person has, as a trace: opened where it is one, imported on the fly where not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.importers.registry import Importer, recognise, title
from graphdiag.importers.source import Source
from graphdiag.paths import printable, unwritable
from graphdiag.places import Place, resolve
from graphdiag.streams import spooled
from graphdiag.trace import Trace, looks_like_trace, open_trace
from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import arrow_schema

_IN_MEMORY_ROWS = 100_000
"""Imported rows kept in memory; more are spooled to a temporary Parquet file."""


@contextmanager
def open_source(paths: Sequence[str], copies: Mapping[str, Place] | None = None) -> Iterator[Trace]:
    """Yield a trace for ``paths``: a trace in any of its forms, or files an importer reads.

    Several files are parts of one trace, or one log that was rotated; ``-`` is standard input.
    ``copies`` are those of paths that can be read only once, where they were made already.
    Imported rows live only inside the ``with``.

    Raises
    ------
    SourceError
        When a file is missing, damaged, of no known format or given twice, or the formats differ.
    """
    with _places(paths, copies) as places:
        yield from _opened(places, ", ".join(map(printable, paths)))


def import_source(paths: Sequence[str], out: str) -> int:
    """Import ``paths`` into the Parquet file ``out`` and return the number of rows written.

    The file appears whole or not at all.

    Raises
    ------
    SourceError
        As :func:`open_source`; or when ``paths`` is a trace already, or ``out`` cannot be written.
    """
    target, shown = Path(out), printable(out)
    if not target.name or target.is_dir():
        raise SourceError(f"{shown}: is a folder; name the file to write in it.")
    with _places(paths) as places:
        if all(map(looks_like_trace, places)):
            open_trace(places)  # which says so where it is none after all
            raise SourceError(
                f"{_names(places)}: already a graphdiag trace; report on it as it is."
            )
        try:
            return write_part(target, _imported(places))
        except OSError as error:
            raise SourceError(unwritable(shown, error)) from error


@contextmanager
def _places(
    paths: Sequence[str], copies: Mapping[str, Place] | None = None
) -> Iterator[list[Place]]:
    """Yield the files and folders that ``paths`` name, what cannot be read twice spooled."""
    with spooled(paths) if copies is None else nullcontext(copies) as streams:
        places = [
            place
            for path in paths
            for place in ([streams[path]] if path in streams else resolve(path))
        ]
        seen: set[str] = set()
        for place in places:
            real = os.path.realpath(place.path) if place.is_local else place.name
            if real in seen:
                raise SourceError(f"{place.name}: given twice; name each source once.")
            seen.add(real)
        yield places


def _opened(places: list[Place], name: str) -> Iterator[Trace]:
    """Yield one trace, and remove what it needed when asked for another."""
    if all(map(looks_like_trace, places)):
        yield replace(open_trace(places), source=name)
        return
    batches = _imported(places)
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
                f"{folder}: what was read of {_names(places)} cannot be kept there "
                f"({error.strerror or error}); set TMPDIR to a folder with room."
            ) from error
        opened = open_trace(spool)
        yield Trace(name, opened.frame, opened.notes, opened.parts)


def _names(places: list[Place]) -> str:
    return ", ".join(place.name for place in places)


def _imported(places: list[Place]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the importer of ``places`` reads; what goes wrong is a SourceError."""
    importer, sources = _importer(places)
    try:
        yield from importer.read(sources)
    except (OSError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SourceError(
            f"{_names(places)}: reading it stopped ({why}); copy it again and retry."
        ) from error


def _importer(places: list[Place]) -> tuple[Importer, list[Source]]:
    for place in places:
        if looks_like_trace(place):
            raise SourceError(
                f"{place.name}: a trace among files to import; give either traces or sources, "
                "not both."
            )
    sources = [Source(place.name, place) for place in places]
    importers = [recognise(source) for source in sources]
    for source, importer in zip(sources, importers, strict=True):
        if importer.NAME != importers[0].NAME:
            raise SourceError(
                f"{source.path}: {title(importer)}, but {sources[0].path} is "
                f"{title(importers[0])}; report on them one at a time."
            )
    return importers[0], sources


def _emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield and forget ``batches`` one by one, so that their memory can go."""
    while batches:
        yield batches.pop(0)
