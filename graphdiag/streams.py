"""Sources that can be read only once: standard input and named pipes, copied to a file first.

Importers look at the start of a file and then read it from there, and Parquet is read from its
end, so a pipe has to be kept somewhere.
"""

from __future__ import annotations

import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fsspec.implementations.local import LocalFileSystem

from graphdiag.errors import SourceError
from graphdiag.paths import printable, unreadable
from graphdiag.places import Place

STANDARD_INPUT = "-"
"""The path that names standard input."""
STANDARD_INPUT_NAME = "standard input"


@contextmanager
def spooled(paths: Sequence[str]) -> Iterator[dict[str, Place]]:
    """Yield a copy for each of ``paths`` that can be read only once, as long as the ``with`` lasts.

    Raises
    ------
    SourceError
        When one cannot be read, or there is no room for the copy.
    """
    streams = [path for path in dict.fromkeys(paths) if _is_stream(path)]
    if not streams:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="graphdiag-") as folder:
        copies = {}
        for number, path in enumerate(streams):
            name = STANDARD_INPUT_NAME if path == STANDARD_INPUT else printable(path)
            copy = Path(folder) / str(number)
            _spool(path, name, copy)
            copies[path] = Place(LocalFileSystem(), str(copy), name)
        yield copies


def _is_stream(path: str) -> bool:
    if path == STANDARD_INPUT:
        return True
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _spool(path: str, name: str, copy: Path) -> None:
    try:
        stream = _open(path, name)
    except OSError as error:
        raise SourceError(unreadable(name, error)) from error
    try:
        with stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        raise SourceError(
            f"{name}: cannot be kept in {copy.parent} while it is read "
            f"({error.strerror or error}); set TMPDIR to a folder with room."
        ) from error


def _open(path: str, name: str) -> BinaryIO:
    if path != STANDARD_INPUT:
        return Path(path).open("rb")
    if sys.stdin is None:
        raise SourceError(f"{name}: is closed; pipe a log into it, or name a file.")
    if sys.stdin.isatty():
        raise SourceError(f"{name}: is a terminal; pipe a log into it, or name a file.")
    return open(sys.stdin.fileno(), "rb", closefd=False)
