"""Leave out of a window the events that cannot matter, before anything is decoded.

Nine events in ten are Python frames, operators and flow arrows. In the layout of Kineto's own
writer, and of a trace saved again with its keys in order, the first bytes of an event tell: it
opens with ``{"ph": "X", "cat": "python_function"``. We look at the opening braces of a window only,
all at once, and drop what lies between an unwanted opening and the next one.

Why nothing that matters is dropped: an event's brace follows ``,`` or ``[``, never ``:``, and JSON
escapes quotes, so ``{"ph"`` is an opening wherever it stands. An event is dropped only if every
other brace before the next opening follows a colon (its ``args``); any other is odd, and keeps its
event. The first and the last event of a window are always kept, so that decoding proves both ends.
What is wrongly taken for an opening cuts an event that is kept, and then decoding fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FRONT, SLACK = 8, 128
"""Bytes that must lie before and behind a window, so that looking around a brace is legal."""

_BRACE, _COLON = ord("{"), ord(":")
_WORD = 8
_LONGEST_HEAD = 64
"""Bytes; with the longest call it stays within the slack."""
_HEAD = re.compile(rb'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"')


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text[:_WORD], "little"))


_UNWANTED = [
    _word(category)
    for category in (
        b"python_function",
        b'cpu_op",',
        b"gpu_user_annotation",
        b"overhead",
        b"cuda_sync",
        b"cuda_profiler_range",
    )
]
"""First bytes of categories that never matter; none that matters begins like one of them."""

_CALL = _word(b"cuda_runtime")
_POLLS = (b"cudaEventQuery", b"hipEventQuery")
"""Calls that launch nothing and wait for nothing: of a trace with NCCL's watchdog, most of all."""


@dataclass(frozen=True)
class Layout:
    """How the events of a file are written.

    Attributes
    ----------
    separator
        From the closing brace of an event to the opening one of the next.
    head
        From the opening brace of an event to the value of its category.
    """

    separator: bytes
    head: bytes

    @property
    def before(self) -> int:
        """How many bytes of the separator stand in the word that marks an opening."""
        return min(3, len(self.separator) - 1)


def learn_layout(text: bytes, starts: Sequence[int], separator: bytes) -> Layout | None:
    """Return the layout of the events that begin at ``starts``, None where it does not help."""
    for start in starts:
        found = _HEAD.match(text, start)
        if found and len(found[0]) <= _LONGEST_HEAD:
            return Layout(separator, found[0])
    return None


def skim(data: bytearray, start: int, end: int, layout: Layout) -> tuple[bytes, int]:
    """Return a JSON array of the events in ``data[start:end]`` that may matter.

    Returns
    -------
    tuple
        The array, and the number of events left out. If the bytes are no whole events, the array is
        no JSON.
    """
    text = np.frombuffer(data, np.uint8)
    words = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    brace = np.flatnonzero(text[start:end] == _BRACE) + start
    around = layout.separator[-1 - layout.before : -1] + layout.head
    is_opening = words[brace - layout.before] == _word(around)
    is_value = (text[brace - 1] == _COLON) | (text[brace - 2] == _COLON)
    opening = brace[is_opening]
    drop = _is_unwanted(words, opening, layout)
    # Every odd brace keeps the event it stands in: the one of the last opening before it.
    odd = np.searchsorted(opening, brace[~(is_opening | is_value)], side="right") - 1
    drop[odd[odd >= 0]] = False
    if len(drop):
        drop[-1] = False
    gap = len(layout.separator) - 2  # from one past a closing brace to the next opening one
    bounds = np.concatenate([[start], opening, [end + gap]])
    kept = np.concatenate([[False, True], ~drop, [False]])
    turns = np.flatnonzero(kept[1:] != kept[:-1])
    pairs = zip(bounds[turns[::2]].tolist(), (bounds[turns[1::2]] - gap).tolist(), strict=True)
    runs = [data[first:last] for first, last in pairs if last > first]
    return b"[" + b",".join(runs) + b"]", int(drop.sum())


def _is_unwanted(words: np.ndarray, opening: np.ndarray, layout: Layout) -> np.ndarray:
    """Mask of the openings of unwanted categories, of polling calls and of flow arrows."""
    head = layout.head
    is_complete = _reads(words, opening, head)
    category = words[opening + len(head)]
    unwanted = np.zeros(len(opening), np.bool_)
    for each in _UNWANTED:
        unwanted |= category == each
    calls = np.flatnonzero(category == _CALL)
    to_name = head[head.index(b"X") + 1 :].replace(b"cat", b"name")
    for poll in _POLLS:
        literal = b"cuda_runtime" + to_name + poll + b'"'
        unwanted[calls] |= _reads(words, opening[calls] + len(head), literal)
    unwanted &= is_complete
    others = np.flatnonzero(~is_complete)
    phase = head.index(b"X")
    ending = words[opening[others] + phase - _WORD + 1]
    start, finish = (_word(head[:phase][1 - _WORD :] + kind) for kind in (b"s", b"f"))
    unwanted[others] = (ending == start) | (ending == finish)
    return unwanted


def _reads(words: np.ndarray, at: np.ndarray, literal: bytes) -> np.ndarray:
    """Mask of the offsets at which ``literal``, no shorter than a word, stands."""
    found: np.ndarray = words[at + len(literal) - _WORD] == _word(literal[-_WORD:])
    for offset in range(0, len(literal) - _WORD, _WORD):
        if not found.any():
            break
        found &= words[at + offset] == _word(literal[offset:])
    return found
