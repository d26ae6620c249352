"""Requests as a production service saw them: a CSV of ``TIMESTAMP,ContextTokens,GeneratedTokens``.

This is the form of the Azure Public Dataset's LLM inference traces.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from graphdiag.errors import SourceError
from graphdiag.paths import printable, unreadable

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOST_TOKENS = 10_000_000
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_WHOLE = re.compile(r"\d{1,12}", re.ASCII)


@dataclass(frozen=True)
class Arrival:
    """One row: when it came, in seconds after the first, and its tokens in and out."""

    at: float
    context: int
    generated: int


def read_arrivals(path: str) -> list[Arrival]:
    """Read all rows of ``path``, in order of time.

    Raises
    ------
    SourceError
        When the file cannot be read, or a row is none; the sentence names its line.
    """
    shown = printable(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as lines:
            found = list(_rows(lines, shown))
    except OSError as error:
        raise SourceError(unreadable(shown, error)) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{shown}: is no text; name a CSV of {','.join(COLUMNS)}.") from error
    if not found:
        raise SourceError(f"{shown}: holds no request; name a CSV of {','.join(COLUMNS)}.")
    found.sort(key=lambda one: one.at)
    first = found[0].at
    return [Arrival(one.at - first, one.context, one.generated) for one in found]


def _rows(lines: Iterator[str], shown: str) -> Iterator[Arrival]:
    reader = csv.reader(lines, strict=True)
    order: list[int] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"{shown}, line {reader.line_num}"
            if order is None:
                order = _order(cells, place)
                continue
            yield _row(cells, order, place)
    except csv.Error as error:
        raise SourceError(f"{shown}, line {reader.line_num}: is no CSV ({error}).") from error


def _order(cells: list[str], place: str) -> list[int]:
    """Return where the header has each of the three columns."""
    names = [cell.strip().lower() for cell in cells]
    missing = [name for name in COLUMNS if name.lower() not in names]
    if missing:
        _fail(place, f"the header has no column {missing[0]}; it must name {', '.join(COLUMNS)}")
    return [names.index(name.lower()) for name in COLUMNS]


def _row(cells: list[str], order: list[int], place: str) -> Arrival:
    if len(cells) <= max(order):
        _fail(place, f"has {len(cells)} values, where the header has more; mend or drop the line")
    time, context, generated = (cells[index].strip() for index in order)
    return Arrival(
        _time(time, place),
        _tokens(context, COLUMNS[1], place),
        _tokens(generated, COLUMNS[2], place),
    )


def _tokens(text: str, column: str, place: str) -> int:
    if not _WHOLE.fullmatch(text) or not 0 < int(text) <= _MOST_TOKENS:
        _fail(
            place,
            f"{column} is {text[:40]!r}, which is no number of tokens from 1 to {_MOST_TOKENS:,}; "
            "mend or drop the line",
        )
    return int(text)


def _time(text: str, place: str) -> float:
    """Return seconds, of an instant or of a number that is seconds already."""
    if _SECONDS.fullmatch(text):
        return float(text)
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        day, clock, fraction, zone = found.groups()
        told = f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}"
        return datetime.fromisoformat(told).timestamp() + float(fraction or 0)
    except ValueError:
        _fail(
            place,
            f"TIMESTAMP is {text[:40]!r}, which is no time such as 2023-11-16 18:15:46.68; "
            "mend or drop the line",
        )


def _fail(place: str, why: str) -> NoReturn:
    raise SourceError(f"{place}: {why}.")
