"""Where the elements of a JSON array begin and end, found with strings and escapes understood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_QUOTE, _BACKSLASH = ord('"'), ord("\\")

_NESTING = np.zeros(256, np.int8)
_NESTING[list(b"{[")] = 1
_NESTING[list(b"}]")] = -1


@dataclass(frozen=True)
class Elements:
    """Offsets of the whole elements in a piece of an array.

    Attributes
    ----------
    starts, ends
        First byte of each element, and one past its last; int64, ascending.
    closed
        One past the array's own closing bracket, or None where it lies further on.
    """

    starts: np.ndarray
    ends: np.ndarray
    closed: int | None


def elements(text: bytes | memoryview) -> Elements:
    """Find the objects and arrays that are elements of an array.

    Parameters
    ----------
    text
        A piece of the array that begins between two elements, outside any string, and may end
        anywhere. An element that it cuts is not reported.
    """
    data = np.frombuffer(text, np.uint8)
    change = _NESTING[data]
    at = np.flatnonzero(change)
    # An odd number of quotes before a bracket means that it stands inside a string.
    at = at[np.searchsorted(_string_quotes(data), at) % 2 == 0]
    change = change[at]
    depth = np.cumsum(change, dtype=np.int64)
    closed = None
    outside = np.flatnonzero(depth < 0)
    if len(outside):
        end = outside[0]
        closed = int(at[end]) + 1
        at, change, depth = at[:end], change[:end], depth[:end]
    ends = at[(change < 0) & (depth == 0)] + 1
    starts = at[(change > 0) & (depth == 1)][: len(ends)]
    return Elements(starts, ends, closed)


def _string_quotes(data: np.ndarray) -> np.ndarray:
    """Offsets of the quotes that open or close a string: those not escaped."""
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if not len(slashes):
        return quotes
    # A run of backslashes escapes what follows it where its length is odd.
    first = np.flatnonzero(np.diff(slashes, prepend=-2) > 1)
    last = np.append(first[1:], len(slashes)) - 1
    odd = (last - first) % 2 == 0
    return np.setdiff1d(quotes, slashes[last[odd]] + 1, assume_unique=True)
