"""Which importer reads a file: asked of its first bytes, never of its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Protocol, cast

import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.importers.source import Source


class Importer(Protocol):
    """What a module of :mod:`graphdiag.importers` offers to be an importer."""

    NAME: str
    """Name of the format, as ``--json`` and error sentences print it."""

    def recognises(self, head: bytes) -> bool:
        """Say whether a file that starts with ``head`` (decompressed) is of this format."""
        ...

    def read(self, sources: Sequence[Source]) -> Iterator[pa.RecordBatch]:
        """Yield format-1 record batches; several sources are one log, in the order given."""
        ...


IMPORTERS = ("kineto", "sglang_log", "vllm_log")
"""Modules of this package that implement :class:`Importer`, tried in this order."""


_TITLES = {
    "kineto": "a Kineto trace",
    "sglang-log": "an SGLang log",
    "vllm-log": "a vLLM log",
}


def title(importer: Importer) -> str:
    """Return what a sentence calls a file that ``importer`` reads, such as ``a vLLM log``."""
    return _TITLES.get(importer.NAME, f"a {importer.NAME}")


def load(name: str) -> Importer:
    """Return the importer module called ``name``."""
    return cast(Importer, import_module(f"graphdiag.importers.{name}"))


def recognise(source: Source) -> Importer:
    """Return the importer that reads ``source``.

    Raises
    ------
    SourceError
        When the file is empty, unreadable, or of no known format.
    """
    head = source.head()
    if not head.strip():
        raise SourceError(f"{source.path}: the file is empty; there is nothing to read.")
    for name in IMPORTERS:
        importer = load(name)
        if importer.recognises(head):
            return importer
    known = ", ".join(title(load(name)) for name in IMPORTERS)
    table = source.path.lower().endswith((".csv", ".tsv"))
    also = ", or to graphdiag buckets a CSV with the header requested,count" if table else ""
    raise SourceError(
        f"{source.path}: not a graphdiag trace and none of the sources known ({known}); "
        f"give a trace.parquet, a profiler's JSON or a server log{also}."
    )
