"""A histogram of requested sizes from a CSV or JSON file, as a person would write it.

CSV has a size and a number on each line, with a header or without; JSON is an object, a list of
objects or a list of pairs. A size may be a range such as ``5-8``, whose number is spread evenly
over its sizes; the numbers are counts, or shares that sum to one, or percentages that sum to 100.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from graphdiag.errors import SourceError
from graphdiag.importers.source import Source
from graphdiag.paths import printable
from graphdiag.places import Place
from graphdiag.wording import count, figure

LARGEST_SIZE = 2**31 - 1
MOST_RANGED = 1_000_000
"""Most sizes that all ranges of a file may have together."""
MOST_BYTES = 64 << 20
_MOST_TOTAL = float(2**53)
_TOLERANCE = 0.01
"""How far shares may be from one in sum."""

_SIZE_NAMES = ("requested", "size", "batch_size")
_COUNT_NAMES = ("count", "steps")
_SHARE_NAMES = ("share", "percent")
_ARRIVAL_NAMES = ("timestamp", "contexttokens", "generatedtokens", "arrival")
_FORMS = 'lines such as "8,120" or "5-8,31%" under a header "requested,count"'

_RANGE = re.compile(r"(\S+?)\s*[-\u2013]\s*(\S+)", re.ASCII)
_WHOLE = re.compile(r"\d{1,12}(?:\.0*)?|\d{1,3}(?:,\d{3}){1,4}", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?\s*%?", re.ASCII
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\ufffd]")
_JSON_PAIRS = re.compile(r"\[\s*\[\s*(?:\d|\"\s*\d)")
_JSON_OBJECT = re.compile(r"\{\s*\"\s*\d[^\"]{0,40}\"\s*:")
_JSON_ROWS = re.compile(r"\[\s*(\{[^{}\[\]]*\})")
_JSON_EMPTY = re.compile(r"\{\s*\}\s*|\[\s*\]\s*")


@dataclass(frozen=True)
class SizeTable:
    """How often each size was requested.

    Attributes
    ----------
    sizes, weights
        Sizes, ascending and each once, and their counts or shares; none is zero.
    total
        Sum of the weights as the file has them: steps, or 1 where they are shares.
    is_share
        Whether the weights are shares of an unknown number of steps.
    spread
        The ranges that were spread evenly over their sizes, as written.
    """

    sizes: NDArray[np.int64]
    weights: NDArray[np.float64]
    total: float
    is_share: bool
    spread: tuple[str, ...]


class _Entry(NamedTuple):
    """A size and its number as written, and where (``line 3``)."""

    place: str
    size: str
    number: str


class _Row(NamedTuple):
    """An entry that has been read; ``unit`` is ``count``, ``percent`` or, by its column, share."""

    first: int
    last: int
    value: float
    unit: str
    written: str


def is_size_table(path: str, place: Place | None = None) -> bool:
    """Say whether the file at ``path`` is a histogram of sizes, by what it holds.

    ``place`` is where it lies, if that is not what ``path`` says. Standard input and pipes that
    were copied nowhere are not looked at, since that would use them up.

    Raises
    ------
    SourceError
        When it is a CSV of requests, which no other reader of ours takes either.
    """
    try:
        if place is None and (path == "-" or ("://" not in path and not Path(path).is_file())):
            return False
        head = Source(path, place).head()
    except (SourceError, ValueError):
        return False  # who opens it next says what is wrong
    if b"\x00" in head[:4096] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    text = _decoded(head)
    names = _cells(_first_line(text)[1])
    if _is_arrivals(names):
        _fail(f"{_name(path, place)}, line {_first_line(text)[0]}", _arrivals_sentence(names))
    return _is_table(text)


def read_size_table(path: str, place: Place | None = None) -> SizeTable:
    """Read the histogram at ``path``, a local path or an fsspec URL, plain or gzip.

    ``place`` is as for :func:`is_size_table`.

    Raises
    ------
    SourceError
        When it cannot be read or is no histogram; the sentence names the line.
    """
    name = _name(path, place)
    try:
        with Source(path, place).open() as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise SourceError(f"{name}: reading it stopped ({error}); copy it again.") from error
    if len(data) > MOST_BYTES:
        _fail(name, "longer than 64 MiB, which no histogram of sizes is; count each size once")
    return parse_size_table(_decoded(data), name)


def parse_size_table(text: str, name: str) -> SizeTable:
    """Read the histogram in ``text``; sentences call it ``name``.

    Raises
    ------
    SourceError
        When it is no histogram; the sentence names the line.
    """
    text = text.removeprefix("\ufeff")
    if _CONTROL.search(text):
        _fail(name, f"holds bytes that are no text; give {_FORMS}")
    if not text.strip():
        _fail(name, f"is empty; give {_FORMS}")
    if text.lstrip()[0] in "{[":
        entries, column = _json_entries(text, name)
    else:
        entries, column = _csv_entries(text, name)
    rows = [_row(entry, column, name) for entry in entries]
    if not rows:
        _fail(name, f"has no sizes; give {_FORMS}")
    return _table(rows, name)


def _table(rows: Sequence[_Row], name: str) -> SizeTable:
    is_share = _is_share(rows, name)
    ranged = sum(row.last - row.first + 1 for row in rows if row.last > row.first)
    if ranged > MOST_RANGED:
        _fail(name, f"its ranges have {count(ranged)} sizes; give narrower ones")
    total = math.fsum(row.value for row in rows)
    if not 0 < total <= _MOST_TOTAL:
        why = "all counts are zero" if total == 0 else "the counts sum to more than 2**53"
        _fail(name, f"{why}; count the steps of each size")
    widths = np.array([row.last - row.first + 1 for row in rows], dtype=np.int64)
    firsts = np.array([row.first for row in rows], dtype=np.int64)
    values = np.array([row.value for row in rows], dtype=np.float64) / widths
    starts = np.repeat(np.cumsum(widths) - widths, widths)
    every = np.repeat(firsts, widths) + (np.arange(int(widths.sum())) - starts)
    sizes, slot = np.unique(every, return_inverse=True)
    weights = np.bincount(slot, weights=np.repeat(values, widths)).astype(np.float64)
    if is_share:
        weights, total = weights / total, 1.0
    seen = weights > 0
    return SizeTable(
        sizes=sizes[seen].astype(np.int64),
        weights=weights[seen],
        total=total,
        is_share=is_share,
        spread=tuple(dict.fromkeys(row.written for row in rows if row.last > row.first)),
    )


def _is_share(rows: Sequence[_Row], name: str) -> bool:
    units = {row.unit for row in rows}
    if len(units) > 1:
        _fail(name, "has percentages and other numbers; give all counts or all percentages")
    if "count" in units:
        return False
    total = math.fsum(row.value for row in rows)
    whole = 1.0 if "share" in units and total < 50 else 100.0
    if abs(total - whole) > _TOLERANCE * whole + 1e-9:
        sums = f"{figure(total)} %" if whole == 100 else f"{figure(total * 100)} %"
        _fail(name, f"its shares sum to {sums}, not to 100 %; give the share of every size")
    return True


def _row(entry: _Entry, column: str, name: str) -> _Row:
    where = f"{name}, {entry.place}"
    written = entry.size.strip()
    bounds = _RANGE.fullmatch(written)
    if bounds:
        first, last = _size(bounds[1], where), _size(bounds[2], where)
        if last < first:
            _fail(where, f"the range {written!r} runs backwards; write {last}-{first}")
        if last - first >= MOST_RANGED:
            _fail(where, f"the range {written!r} has more than {count(MOST_RANGED)} sizes")
    else:
        first = last = _size(written, where)
    text = entry.number.strip()
    if not _NUMBER.fullmatch(text):
        _fail(where, f"{_short(text)} is no number; write a count such as 120, or 31%")
    value = float(text.rstrip("% \t").replace(",", ""))
    if value < 0:
        _fail(where, f"the number {_short(text)} is negative; give how often the size came")
    if not value <= _MOST_TOTAL:
        _fail(where, f"the number {_short(text)} is larger than 2**53; give a count of steps")
    unit = "percent" if text.endswith("%") else column
    return _Row(first, last, value, unit, written)


def _size(text: str, where: str) -> int:
    if not _WHOLE.fullmatch(text):
        _fail(where, f"the size {_short(text)} is no positive whole number; write 8, or 5-8")
    size = int(text.partition(".")[0].replace(",", ""))
    if not 1 <= size <= LARGEST_SIZE:
        _fail(where, f"the size {_short(text)} is not between 1 and 2**31 - 1; leave it out")
    return size


def _csv_entries(text: str, name: str) -> tuple[list[_Entry], str]:
    """Return the entries of a CSV, and the unit that its header gives the second column."""
    entries: list[_Entry] = []
    column = "count"
    separator = _separator(_first_line(text)[1])
    for number, line in _lines(text):
        cells = _cells(line, separator)
        where = f"line {number}"
        if not entries and _is_header(cells):
            column = "share" if cells[1].lower() in _SHARE_NAMES else "count"
            continue
        if not entries and _is_arrivals(cells):
            _fail(f"{name}, {where}", _arrivals_sentence(cells))
        if len(cells) != 2:
            columns = count(len(cells), "column")
            _fail(f"{name}, {where}", f"has {columns}, not a size and its count; give {_FORMS}")
        entries.append(_Entry(where, cells[0], cells[1]))
    return entries, column


def _json_entries(text: str, name: str) -> tuple[list[_Entry], str]:
    """Return the entries of a JSON document, and the unit that its keys give the numbers."""
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{name}, line {error.lineno}: no JSON ({error.msg}); mend it."
        ) from error
    except (RecursionError, ValueError) as error:
        raise SourceError(f'{name}: no histogram; give {{"8": 120, "5-8": 40}}.') from error
    if isinstance(found, _Pairs):
        return [_Entry(f"entry {_short(key)}", key, _text(value)) for key, value in found], "count"
    entries: list[_Entry] = []
    columns: set[str] = set()
    for number, item in enumerate(found if isinstance(found, list) else [found], 1):
        where = f"entry {number}"
        if isinstance(item, _Pairs):
            names = {key.strip().lower(): value for key, value in item}
            size, column = (
                _first_of(names, _SIZE_NAMES),
                _first_of(names, _COUNT_NAMES + _SHARE_NAMES),
            )
            if size is None or column is None or len(item) != 2:
                _fail(
                    f"{name}, {where}",
                    'is not a size and its count; give {"requested": 8, "count": 120}',
                )
            columns.add("share" if column in _SHARE_NAMES else "count")
            entries.append(_Entry(where, _text(names[size]), _text(names[column])))
        elif isinstance(item, list) and len(item) == 2:
            columns.add("count")
            entries.append(_Entry(where, _text(item[0]), _text(item[1])))
        else:
            _fail(f"{name}, {where}", "is no pair of a size and its count; give [8, 120]")
    if len(columns) > 1:
        _fail(name, "has counts and shares; give either all counts or all shares")
    return entries, columns.pop() if columns else "count"


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its pairs, since a size may come twice."""


def _name(path: str, place: Place | None) -> str:
    return printable(path) if place is None else place.name


def _first_of(names: dict[str, Any], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return json.dumps(value)
    return str(value)


def _is_table(text: str) -> bool:
    start = text.lstrip()
    if start[:1] in ("{", "["):
        if _JSON_OBJECT.match(start) or _JSON_PAIRS.match(start) or _JSON_EMPTY.fullmatch(start):
            return True
        rows = _JSON_ROWS.match(start)
        try:
            names = {key.strip().lower() for key in json.loads(rows[1])} if rows else set()
        except ValueError:
            return False
        return (
            len(names) == 2
            and not names.isdisjoint(_SIZE_NAMES)
            and not names.isdisjoint(_COUNT_NAMES + _SHARE_NAMES)
        )
    cells = _cells(_first_line(text)[1])
    if _is_header(cells):
        return True
    if len(cells) != 2 or len(cells[1].split()) > 1:
        return False
    bounds = _RANGE.fullmatch(cells[0])
    return all(map(_WHOLE.fullmatch, bounds.groups() if bounds else (cells[0],)))


def _is_header(cells: Sequence[str]) -> bool:
    names = [cell.lower() for cell in cells]
    return len(names) == 2 and names[0] in _SIZE_NAMES and names[1] in _COUNT_NAMES + _SHARE_NAMES


def _is_arrivals(cells: Sequence[str]) -> bool:
    return bool(cells) and cells[0].lower() in _ARRIVAL_NAMES


def _arrivals_sentence(cells: Sequence[str]) -> str:
    return (
        f"a list of requests ({', '.join(map(_short, cells[:4]))}), not of batch sizes; give a "
        "trace, or how many steps each size had"
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, from 1, without their comments."""
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        told = line.partition("#")[0].strip()
        if told:
            yield number, told


def _first_line(text: str) -> tuple[int, str]:
    return next(_lines(text), (1, ""))


def _separator(line: str) -> str:
    return next((mark for mark in ("\t", ";") if mark in line), ",")


def _cells(line: str, separator: str | None = None) -> list[str]:
    delimiter = separator or _separator(line)
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a field longer than any number
        return [line]
    return [cell.strip() for cell in cells]


def _decoded(data: bytes) -> str:
    """Return the text of ``data``: UTF-8, or one of the others that spreadsheets write."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _fail(where: str, why: str) -> NoReturn:
    raise SourceError(f"{where}: {why}.")
