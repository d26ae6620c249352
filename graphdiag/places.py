"""Where a trace may lie: a path of this machine, a glob, or an fsspec URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from graphdiag.errors import SourceError
from graphdiag.paths import printable

_WEB = ("http", "https")
"""Schemes without folders, in whose addresses ``?`` is no wildcard."""


@dataclass(frozen=True)
class Place:
    """A file or a folder in a file system.

    Attributes
    ----------
    filesystem
        An fsspec file system, the local one too.
    path
        Absolute, without the scheme.
    name
        What sentences call it: as it was given where it was given itself; printable.
    """

    filesystem: Any
    path: str
    name: str

    @property
    def is_local(self) -> bool:
        """Whether programs that know no fsspec can open ``path``."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def base(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def is_folder(self) -> bool:
        """Say whether it is a folder, or in an object store the start of names."""
        return bool(self.filesystem.isdir(self.path))

    def size(self) -> int:
        """Return the size in bytes; 0 where the store does not tell."""
        return int(self.filesystem.size(self.path) or 0)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Yield the file's bytes, seekable."""
        with self.filesystem.open(self.path, "rb") as file:
            yield file

    def children(self) -> list[Place]:
        """Return what the folder holds now, by name."""
        self.filesystem.invalidate_cache()
        paths = sorted(self.filesystem.ls(self.path, detail=False))
        return [Place(self.filesystem, path, self._named(path)) for path in paths]

    def matches(self) -> list[Place]:
        """Return what the pattern in ``path`` matches, by name."""
        paths = sorted(self.filesystem.glob(self.path))
        return [Place(self.filesystem, path, self._named(path)) for path in paths]

    def _named(self, path: str) -> str:
        return printable(path) if self.is_local else str(self.filesystem.unstrip_protocol(path))


def resolve(path: str) -> list[Place]:
    """Return what ``path`` (a path, a glob or an fsspec URL) names; a folder is one place.

    Raises
    ------
    SourceError
        When nothing is there, or the store cannot be reached.
    """
    name = printable(path)
    try:
        place = locate(path)
        if place.filesystem.exists(place.path):
            return [place]
        if not has_magic(place.path) or path.startswith(_WEB):
            raise SourceError(f"{name}: no such file; check the path.")
        found = place.matches()
    except SourceError:
        raise
    except ImportError as error:  # fsspec brings no store's own packages
        named = "pip install requests aiohttp" if path.startswith(_WEB) else str(error)
        raise SourceError(
            f"{name}: cannot be reached, packages that read such addresses are missing; {named}."
        ) from error
    except Exception as error:  # each store has errors of its own
        raise SourceError(
            f"{name}: cannot be reached ({error}); check the address and your access to it."
        ) from error
    if not found:
        raise SourceError(f"{name}: no file matches; check the pattern and the folder.")
    return found


def locate(path: str) -> Place:
    """Return the place called ``path`` (a path or an fsspec URL), whether anything is there or not.

    Raises
    ------
    ValueError, ImportError
        When it is the URL of a store that nothing here knows.
    """
    if "://" not in path:
        return Place(LocalFileSystem(), LocalFileSystem._strip_protocol(path), printable(path))
    filesystem, inner = fsspec.core.url_to_fs(path)
    return Place(filesystem, inner, printable(path))
