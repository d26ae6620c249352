"""A server log as blocks of whole lines, whatever coloured, wrapped or cut it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from graphdiag.importers.source import Source, read_some

BLOCK_BYTES = 4 << 20
"""How much is read at a time: enough for columns to pay, small enough for memory to stay flat."""

LINE_BYTES = 1 << 20
"""A longer line is no engine's; it is cut rather than held."""

_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


def blocks(source: Source, troubles: list[str], block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the text of ``source`` in order, in blocks that end with a line.

    Colour codes are removed. A carriage return ends a line too: progress bars redraw
    themselves with it, and Windows puts one before every line feed.

    Parameters
    ----------
    source
        The log, plain or gzip.
    troubles
        Receives a sentence when the file breaks off; what could be read is yielded.
    block_bytes
        Size of a block, give or take a line.

    Raises
    ------
    SourceError
        When the file cannot be opened.
    """
    rest = b""
    with source.open() as stream:
        for piece in _pieces(source, stream, troubles, block_bytes):
            text = rest + piece
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            if not end and len(text) > LINE_BYTES:
                end = len(text)
            rest = text[end:]
            if end:
                yield cleaned(text[:end])
    if rest and not troubles:  # where the file breaks off, so does its last line
        yield cleaned(rest + b"\n")


def _pieces(source: Source, stream: BinaryIO, troubles: list[str], size: int) -> Iterator[bytes]:
    buffer = memoryview(bytearray(size))
    filled, whole = 0, False
    while not whole:
        try:
            got = read_some(stream, buffer[filled:])
            whole, filled = not got, filled + got
        except EOFError:
            whole = True
            troubles.append(f"{source.path}: the gzip is cut short; what it holds is read.")
        except OSError as error:
            whole = True
            troubles.append(f"{source.path}: damaged ({error}); what comes before is read.")
        if filled and (whole or filled == size):
            yield bytes(buffer[:filled])
            filled = 0


def cleaned(text: bytes) -> bytes:
    """Return ``text`` without colour codes, every line ending in a line feed."""
    if b"\x1b" in text:
        text = _COLOUR.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r", b"\n")
    if not text.endswith(b"\n"):
        text += b"\n"
    return text
