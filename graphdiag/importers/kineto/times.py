"""Times of a trace, microseconds as integers or decimal fractions, as exact integer nanoseconds.

A float64 tells every nanosecond apart only below 2**43 µs (its grain is 2**-10 µs there). Traces
with ``baseTimeNanoseconds`` stay below; older ones count from 1970, and there only integers and
the decimal text itself are exact.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

_FLOAT_LIMIT = float(1 << 43)
"""Microseconds from which on a float64 is too coarse."""

_INT_LIMIT = 1 << 62
"""Nanoseconds that surely fit an int64, also after an addition."""


class Coarse(Exception):
    """The times are floats too large to tell nanoseconds apart; their text must be read."""


def exact_ns(text: bytes) -> int:
    """Return the ns of a time in µs as it stands in the file, quoted or not.

    Raises
    ------
    ValueError, ArithmeticError
        When it is no number, or no time of this world.
    """
    number = text.strip(b'"').decode()
    try:
        nanoseconds = int(number) * 1000
    except ValueError:
        value = float(number)
        if abs(value) < _FLOAT_LIMIT:
            nanoseconds = round(value * 1000)
        else:
            nanoseconds = int((Decimal(number) * 1000).to_integral_value())
    if abs(nanoseconds) >= _INT_LIMIT:
        raise ValueError(f"{number} µs is out of range")
    return nanoseconds


def nanoseconds(microseconds: list[Any]) -> np.ndarray:
    """Return int64 ns of times in µs, decoded as int or float: :func:`exact_ns`, vectorised.

    Raises
    ------
    Coarse
        When floats are too large; :func:`exact_ns` then reads the text.
    ValueError
        When one is missing or out of range.
    """
    if not microseconds:
        return np.zeros(0, np.int64)
    values = np.array(microseconds)
    if values.dtype == np.int64:
        if np.abs(values).max() >= _INT_LIMIT // 1000:
            raise ValueError("a time is out of range")
        exact: np.ndarray = values * 1000
        return exact
    if values.dtype != np.float64:
        raise ValueError("a time is missing")
    if not (np.abs(values) < _FLOAT_LIMIT).all():
        raise Coarse
    rounded: np.ndarray = np.rint(values * 1000).astype(np.int64)
    return rounded
