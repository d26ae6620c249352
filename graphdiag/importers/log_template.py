"""Read many lines that one format string printed, without matching each of them.

An engine prints a kind of line from one format string, so all lines of a kind have the same fields
in the same order. The first line is matched with the kind's expression; where the others have the
same fields, their groups stand in the same places and are cut out by column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SEPARATOR = ", "
_CONSTANT = re.compile(r"[^\d\[]+")
_DECIMAL = re.compile(r"\d+\.\d+")
_LONGEST = 9
"""Digits of a number that surely fits; a longer one is left to the expression."""


@dataclass(frozen=True)
class _Field:
    """What stands between two separators: text that recurs, and a group or none."""

    before: str
    after: str
    group: int | None


def read_alike(pattern: re.Pattern[bytes], texts: pa.BinaryArray) -> list[pa.Array] | None:
    """Return the groups of ``pattern`` in each of ``texts``, by column.

    A group that does not take part is empty in all texts.

    Returns
    -------
    list of pyarrow.StringArray, or None
        None where the texts differ in more than their values: then each has to be matched.
    """
    match = pattern.match(texts[0].as_py()) if len(texts) else None
    fields = _fields(match) if match else None
    if match is None or fields is None:
        return None
    try:
        lines = texts.cast(pa.string())
    except pa.ArrowInvalid:  # some text is no UTF-8
        return None
    split = pc.split_pattern(lines, _SEPARATOR)
    if pc.min_max(pc.list_value_length(split)).as_py() != {"min": len(fields), "max": len(fields)}:
        return None
    flat = split.flatten()
    places = pa.array(range(0, len(flat), len(fields)))
    groups = [pa.repeat("", len(lines))] * pattern.groups
    for number, field in enumerate(fields):
        column = flat.take(pc.add(places, number))
        if not _all(pc.starts_with(column, field.before)):
            return None
        if field.group is None:
            continue
        if not _all(pc.ends_with(column, field.after)):
            return None
        end = -len(field.after) if field.after else None
        values = pc.utf8_slice_codeunits(column, len(field.before), end)
        if not _are_like(values, match, field.group):
            return None
        groups[field.group - 1] = values
    return groups


def _fields(match: re.Match[bytes]) -> list[_Field] | None:
    """Return the fields of a matched line, or None where a group is not alone within one."""
    try:
        line = match.string.decode("ascii")
    except UnicodeDecodeError:
        return None
    left = {group for group in range(1, match.re.groups + 1) if match.start(group) >= 0}
    fields = []
    start = 0
    for text in line.split(_SEPARATOR):
        end = start + len(text)
        inside = [g for g in left if start <= match.start(g) and match.end(g) <= end]
        if len(inside) > 1:
            return None
        if inside:
            low, high = match.span(inside[0])
            fields.append(_Field(line[start:low], line[high:end], inside[0]))
            left.discard(inside[0])
        else:
            constant = _CONSTANT.match(text)
            if constant is None:
                return None  # nothing tells this field from another
            fields.append(_Field(constant[0], "", None))
        start = end + len(_SEPARATOR)
    return None if left else fields


def _are_like(values: pa.StringArray, match: re.Match[bytes], group: int) -> bool:
    """Say whether the pattern would have taken each of ``values`` for the group as well."""
    own = match[group].decode()
    if own.isdigit() or _DECIMAL.fullmatch(own):
        longest = pc.max(pc.binary_length(values)).as_py()
        if not own.isdigit():
            values = pc.replace_substring(values, ".", "0", max_replacements=1)
        return bool(longest <= _LONGEST) and _all(pc.ascii_is_decimal(values))
    low, high = match.span(group)
    return all(
        _takes(match, group, match.string[:low] + value.encode() + match.string[high:])
        for value in pc.unique(values).to_pylist()
    )


def _takes(match: re.Match[bytes], group: int, text: bytes) -> bool:
    again = match.re.match(text)
    grown = len(text) - len(match.string)
    return again is not None and again.span(group) == (match.start(group), match.end(group) + grown)


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask).as_py())
