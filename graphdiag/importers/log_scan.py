"""Find the lines that matter in a block of log text, fast, and read the numerous kinds by column.

Most lines of a server log say nothing about graphs: linear-time expressions (Arrow's RE2) pass over
the block and drop them. A line of a numerous kind is cut in two at its needle, and because
time has a resolution and batches recur, each distinct head and tail is read once. What remains is
rare and is left to be read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphdiag.importers.log_template import read_alike
from graphdiag.importers.log_time import MISSING, iso_ns

_PROBED = 1000
"""Tails looked at to see whether they recur."""


@dataclass(frozen=True)
class Kind:
    """A numerous kind of line.

    Attributes
    ----------
    name
        What the lines are called.
    sign
        RE2 expression that every such line matches; what is before it is the head, the rest the
        tail.
    needle
        Text that the match begins with, which is found faster; empty where it is not fixed.
    tail
        Reads a tail. It must take all the rest of its line, so that it matches a line at most once.
    """

    name: str
    sign: str
    needle: str
    tail: re.Pattern[bytes]


HeadReader = Callable[[pa.BinaryArray], tuple[dict[str, np.ndarray], pa.DictionaryArray]]
"""Reads heads into columns, among them the time ``t`` in ns, MISSING where a head has none; also
returns what of each head is not the engine's own prefix."""


@dataclass(frozen=True)
class Hits:
    """The lines of one kind in a block.

    Attributes
    ----------
    at
        Number of each line in the block, ascending.
    head
        What the heads say, by column.
    groups, tail
        The groups of the distinct tails, by column, and which tail each line has.
    """

    at: np.ndarray
    head: dict[str, np.ndarray]
    groups: Sequence[pa.StringArray]
    tail: np.ndarray

    def __len__(self) -> int:
        return len(self.at)

    def whole(self, group: int) -> np.ndarray:
        """Return a group as int64; -1 where it is empty."""
        return np.asarray(_numbers(self.groups[group], pa.int64(), -1)[self.tail])

    def decimal(self, group: int) -> np.ndarray:
        """Return a group as float64; NaN where it is empty."""
        return np.asarray(_numbers(self.groups[group], pa.float64(), np.nan)[self.tail])

    def coded(self, group: int, vocabulary: dict[str, int]) -> np.ndarray:
        """Return the code of each line's group; -1 for a text that has none."""
        texts = self.groups[group].dictionary_encode()
        found = [vocabulary.get(text, -1) for text in texts.dictionary.to_pylist()]
        return np.asarray(np.array(found, np.int64)[codes_of(texts)][self.tail])


@dataclass(frozen=True)
class Lines:
    """Lines of one kind by column: arrays of equal length."""

    at: np.ndarray
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def last_at(self) -> int:
        """Return the position of the last line."""
        return int(self.at[-1])

    def between(self, first: int, last: int) -> Lines:
        """Return the lines at positions ``first`` to before ``last``."""
        low, high = np.searchsorted(self.at, (first, last))
        cut = slice(int(low), int(high))
        return Lines(self.at[cut], {name: values[cut] for name, values in self.columns.items()})

    def joined(self, after: Lines) -> Lines:
        """Return these lines and those of a later block; positions lose their meaning."""
        columns = {
            name: np.concatenate([values, after[name]]) for name, values in self.columns.items()
        }
        return Lines(np.concatenate([self.at, after.at]), columns)

    def where(self, mask: np.ndarray) -> Lines:
        """Return only the lines that ``mask`` chooses."""
        return Lines(self.at[mask], {name: values[mask] for name, values in self.columns.items()})


class Scanner:
    """Reads blocks for numerous kinds of line and for rare ones.

    Parameters
    ----------
    kinds
        The numerous kinds.
    rare
        RE2 expressions; a line that matches one is returned whole, also where a line of a numerous
        kind follows on the same line, as happens after a progress bar.
    read_heads
        Reads the heads of numerous lines.
    """

    def __init__(self, kinds: Sequence[Kind], rare: Sequence[str], read_heads: HeadReader) -> None:
        self._read_heads = read_heads
        self._kinds = kinds
        self._rare = "|".join(rare)

    def scan(self, block: bytes) -> tuple[dict[str, Hits], list[tuple[int, bytes]]]:
        """Return the numerous lines of ``block`` by kind, and the rare ones with their positions.

        The last byte of ``block`` must end a line.
        """
        lines = split_lines(block)
        left = np.arange(len(lines))
        hits, rare = {}, []
        for kind in self._kinds:
            texts = _chosen(lines, left)
            mine = as_numpy(pc.match_substring_regex(texts, kind.sign))
            at, left = left[mine], left[~mine]
            hits[kind.name], also_rare = self._read(kind, at, _chosen(texts, np.flatnonzero(mine)))
            rare.append(at[also_rare])
        rare.append(left[self._is_rare(_chosen(lines, left))])
        positions = np.sort(np.concatenate(rare))
        texts = lines.take(pa.array(positions)).to_pylist()
        return hits, list(zip(positions.tolist(), texts, strict=True))

    def _read(self, kind: Kind, at: np.ndarray, texts: pa.BinaryArray) -> tuple[Hits, np.ndarray]:
        """Return the lines of ``kind``, which are at ``at``, and which of them are rare too."""
        if not len(at):
            nothing = [pa.array([], pa.string())] * kind.tail.groups
            return Hits(at, {}, nothing, at), np.zeros(0, bool)
        if kind.needle:
            places = as_numpy(pc.find_substring(texts, kind.needle))
        else:
            places = as_numpy(pc.find_substring_regex(texts, kind.sign))
        head, foreign = self._read_heads(fronts(texts, places))
        for row in np.flatnonzero(head["t"] == MISSING).tolist():
            head["t"][row] = iso_ns(texts[row].as_py())
        rare = self._is_rare(foreign.dictionary)[codes_of(foreign)]
        groups, tail, kept = _groups(kind.tail, tails(texts, places))
        if not kept.all():  # some line has the needle but is cut or foreign
            at, head = at[kept], {name: values[kept] for name, values in head.items()}
        return Hits(at, head, groups, tail), rare

    def _is_rare(self, texts: pa.BinaryArray) -> np.ndarray:
        return as_numpy(pc.match_substring_regex(texts, self._rare))


def split_lines(block: bytes) -> pa.BinaryArray:
    """Return the lines of ``block`` as an array that points into it; each keeps its line feed."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return _strings(offsets, pa.py_buffer(block))


def join(texts: pa.BinaryArray) -> bytes:
    """Return the bytes of all ``texts``, one behind the other."""
    offsets = offsets_of(texts)
    return bytes(letters_of(texts)[offsets[0] : offsets[-1]])


def offsets_of(texts: pa.BinaryArray) -> np.ndarray:
    """Return where each text starts in its buffer of values, and where the last one ends."""
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]


def letters_of(texts: pa.BinaryArray) -> np.ndarray:
    """Return the bytes that :func:`offsets_of` counts in."""
    values = texts.buffers()[2]
    return np.frombuffer(values, np.uint8) if values else np.zeros(0, np.uint8)


def as_numpy(column: pa.Array) -> np.ndarray:
    """Return ``column`` as an array of its own type; a null among numbers becomes NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def codes_of(texts: pa.DictionaryArray) -> np.ndarray:
    """Return which entry of its dictionary each text is."""
    return as_numpy(texts.indices)


def fronts(texts: pa.BinaryArray, places: np.ndarray) -> pa.BinaryArray:
    """Return what each text has before its place, which counts from its start."""
    return _halves(texts, places).take(pa.array(np.arange(0, 2 * len(texts), 2)))


def tails(texts: pa.BinaryArray, places: np.ndarray) -> pa.BinaryArray:
    """Return what each text has from its place on, which counts from its start."""
    return _halves(texts, places).take(pa.array(np.arange(1, 2 * len(texts), 2)))


def _halves(texts: pa.BinaryArray, places: np.ndarray) -> pa.BinaryArray:
    """Return the two parts of each text, one after the other, without a copy."""
    offsets = offsets_of(texts)
    cuts = np.empty(2 * len(texts) + 1, np.int32)
    cuts[0::2] = offsets
    cuts[1::2] = offsets[:-1] + places
    return _strings(cuts, texts.buffers()[2] or pa.py_buffer(b""))


def _chosen(texts: pa.BinaryArray, at: np.ndarray) -> pa.BinaryArray:
    return texts if len(at) == len(texts) else texts.take(pa.array(at))


def _groups(
    pattern: re.Pattern[bytes], texts: pa.BinaryArray
) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
    """Read texts, each distinct one once.

    Returns
    -------
    tuple
        The groups of those that match, by column; which of them each matching text is; and which
        texts match.
    """
    distinct, codes = _distinct(texts)
    groups = read_alike(pattern, distinct)
    if groups is not None:
        return groups, codes, np.ones(len(texts), bool)
    found = pattern.findall(join(distinct))
    read = np.ones(len(distinct), bool)
    if len(found) != len(distinct):  # some text is cut or foreign: find out which
        matches = [pattern.search(text) for text in distinct.to_pylist()]
        read = np.array([match is not None for match in matches], bool)
        found = [match.groups(b"") for match in matches if match is not None]
    columns = ([row[group] for row in found] for group in range(pattern.groups))
    strings = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
    kept = read[codes]
    return strings, (np.cumsum(read) - 1)[codes[kept]], kept


def _distinct(texts: pa.BinaryArray) -> tuple[pa.BinaryArray, np.ndarray]:
    """Return texts to read and which of them each line has; all, where hardly any recurs."""
    probe = texts.slice(0, _PROBED).dictionary_encode()
    if 2 * len(probe.dictionary) > len(probe) or not len(texts):
        return texts, np.arange(len(texts))
    encoded = texts.dictionary_encode()
    return encoded.dictionary, codes_of(encoded)


def _numbers(texts: pa.StringArray, kind: pa.DataType, empty: float) -> np.ndarray:
    absent = pc.equal(texts, "")
    if pc.any(absent).as_py():
        texts = pc.if_else(absent, str(empty), texts)
    return as_numpy(texts.cast(kind))


def _strings(offsets: np.ndarray, values: pa.Buffer) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets), values]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
