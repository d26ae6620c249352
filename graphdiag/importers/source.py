"""One input file, plain or gzip, read as a stream of decompressed bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from graphdiag.errors import SourceError
from graphdiag.importers.gunzip import Gunzip
from graphdiag.paths import unreadable
from graphdiag.places import Place, locate

HEAD_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"


def read_some(stream: BinaryIO, target: memoryview) -> int:
    """Read what comes in one step into ``target``; return its size in bytes, 0 at the end.

    A plain ``read`` asks until it has all, so an error behind good bytes would take them along.
    """
    readinto = getattr(stream, "readinto1", None) or stream.readinto  # type: ignore[attr-defined]
    return int(readinto(target))


@dataclass(frozen=True)
class Source:
    """A file to import.

    Attributes
    ----------
    path
        A local path or an fsspec URL; what sentences call the file.
    place
        Where it lies, if that is not what ``path`` says.
    """

    path: str
    place: Place | None = None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Yield the decompressed stream; gzip is recognised by its magic bytes.

        Raises
        ------
        SourceError
            When the file does not exist or cannot be read.
        """
        try:
            place = self._place()
            raw = place.filesystem.open(place.path, "rb")
        except OSError as error:
            raise SourceError(unreadable(self.path, error)) from error
        except (ValueError, ImportError) as error:
            raise SourceError(f"{self.path}: cannot be opened ({error}).") from error
        with raw:
            if raw.read(2) == _GZIP_MAGIC:
                raw.seek(0)
                with io.BufferedReader(Gunzip(raw)) as stream:
                    yield stream
            else:
                raw.seek(0)
                yield raw

    def head(self) -> bytes:
        """Return the first :data:`HEAD_BYTES` decompressed bytes, fewer if the file is shorter.

        Raises
        ------
        SourceError
            When the file cannot be read, or is a gzip whose very start is damaged.
        """
        with self.open() as stream:
            buffer = memoryview(bytearray(HEAD_BYTES))
            filled = 0
            try:
                while filled < HEAD_BYTES and (size := read_some(stream, buffer[filled:])):
                    filled += size
            except EOFError:
                pass  # a cut gzip: what could be read is enough to recognise it
            except OSError as error:
                raise SourceError(unreadable(self.path, error)) from error
            return bytes(buffer[:filled])

    def modified_ns(self) -> int | None:
        """Return the modification time in wall-clock ns, or None where the store has none."""
        place = self._place()
        try:
            return int(place.filesystem.modified(place.path).timestamp() * 1e9)
        except (NotImplementedError, OSError):
            return None

    def _place(self) -> Place:
        return self.place or locate(self.path)
