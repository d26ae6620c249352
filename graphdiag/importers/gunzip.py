"""Gzip as a stream that loses nothing: what stands before a cut is delivered before the error.

The readers of the standard library and of ``isal`` fill a whole request or raise, so a cut
costs them up to one request of good data.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from isal import igzip_lib

_READ_BYTES = 1 << 17


class Gunzip(io.RawIOBase):
    """The decompressed bytes of a gzip file, of one member or of several.

    Reading raises :class:`EOFError` where the file ends too early, after all bytes before that
    place were delivered, and :class:`OSError` where it is damaged.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._member = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)

    def readable(self) -> bool:
        """Say that the stream can be read."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill ``target`` as far as one step of decompression goes; 0 at the end."""
        view = memoryview(target).cast("B")
        while (data := self._input()) is not None:
            try:
                piece = self._member.decompress(data, len(view))
            except igzip_lib.IsalError as error:  # type: ignore[misc]
                raise OSError(f"damaged gzip: {error}") from error
            if piece:
                view[: len(piece)] = piece
                return len(piece)
        return 0

    def _input(self) -> bytes | None:
        """Return compressed bytes for the next step, or None when the last member has ended."""
        if self._member.eof:
            return self._next_member()
        if not self._member.needs_input:
            return b""
        data = self._raw.read(_READ_BYTES)
        if not data:
            raise EOFError("the gzip file ends before its end mark")
        return data

    def _next_member(self) -> bytes | None:
        # Zeros may pad the end of a member (tapes, block devices); they are no member.
        data = self._member.unused_data.lstrip(b"\0")
        while not data:
            data = self._raw.read(_READ_BYTES)
            if not data:
                return None
            data = data.lstrip(b"\0")
        self._member = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)
        return data
