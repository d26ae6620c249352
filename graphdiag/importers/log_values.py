"""Values inside a configuration line: Python's repr, JSON, or a mixture printed without quotes."""

from __future__ import annotations

import re

_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "'\""
_LONGEST = 20_000
_INTEGER = re.compile(r"(?<![\w.])-?\d{1,9}(?![\w.])")


def field(text: str, name: str) -> str | None:
    """Return the raw text of the value that ``name=`` or ``'name':`` has in ``text``, or None.

    The value ends at the first comma, bracket or end of text that is not inside quotes or
    brackets of its own.
    """
    match = re.search(rf"(?<![\w.]){re.escape(name)}['\"]?\s*[=:]\s*", text)
    if match is None:
        return None
    depth, quote = 0, ""
    start = match.end()
    for at in range(start, min(len(text), start + _LONGEST)):
        char = text[at]
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in _QUOTES:
            quote = char
        elif char in _OPEN:
            depth += 1
        elif (char in _CLOSE or char == ",") and depth == 0:
            return text[start:at].strip()
        elif char in _CLOSE:
            depth -= 1
    return text[start : start + _LONGEST].strip()


def integer(value: str | None) -> int | None:
    """Return ``value`` where it is a whole number, else None."""
    return int(value) if value and re.fullmatch(r"-?\d{1,9}", value) else None


def boolean(value: str | None) -> bool | None:
    """Return ``value`` where it is Python's or JSON's true or false, else None."""
    return {"True": True, "true": True, "False": False, "false": False}.get(value or "")


def word(value: str | None) -> str | None:
    """Return ``value`` without its quotes; None where it is None, null or empty."""
    bare = (value or "").strip("'\"")
    return None if bare in ("", "None", "null") else bare


def sizes(value: str | None) -> list[int] | None:
    """Return the positive integers of a list, ascending, each once; None where it is no list."""
    if not value or value[0] not in "[(":
        return None
    return sorted({size for number in _INTEGER.findall(value) if (size := int(number)) > 0})


def gibibytes(value: str) -> int:
    """Return the bytes of a figure in GiB, which SGLang prints as GB."""
    return round(float(value) * (1 << 30))


def growth(value: str) -> int | None:
    """Return the bytes that a pool grew by, in GiB in the log.

    A negative figure is no size of a pool: something else freed memory meanwhile. It is None.
    """
    grown = gibibytes(value)
    return grown if grown >= 0 else None
