"""How numbers are written in sentences: with their unit, and as many digits as they need.

A null is written as "not identifiable", never as zero.
"""

from __future__ import annotations

import math
from decimal import Decimal

MISSING = "not identifiable"

_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def count(number: int, noun: str = "") -> str:
    """Return ``12,034`` or, with a noun, ``12,034 steps`` (the singular for one)."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def percent(fraction: float | None, missing: str = MISSING) -> str:
    """Return ``3.2 %`` for 0.032; only an exact 0 or 1 is written as ``0 %`` or ``100 %``."""
    if fraction is None or not math.isfinite(fraction):
        return missing
    return f"{points(fraction)} %"


def points(fraction: float) -> str:
    """Return a fraction in percent without the sign, with as many digits as it needs."""
    value = fraction * 100
    if value in (0, 100):
        return f"{value:.0f}"
    for digits in (1, 2, 3):
        text = f"{value:,.{digits}f}"
        if float(text.replace(",", "")) not in (0, 100):
            return text
    return "< 0.001" if value < 50 else "> 99.999" if value < 100 else "> 100"


def figure(value: float) -> str:
    """Return three significant digits, never in exponent form."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return format(Decimal(f"{value:.3g}"), "f")


def measure(value: float | None, unit: str, missing: str = MISSING) -> str:
    """Return ``0.24 ms`` for (0.24, ``"ms"``)."""
    if value is None or not math.isfinite(value):
        return missing
    return f"{figure(value)} {unit}"


def milliseconds(value: float) -> str:
    """Return ms a step without the unit; what is under a microsecond a step is said to be so."""
    if value == 0 or abs(value) >= 0.001:
        return figure(value)
    return "< 0.001" if value > 0 else "> -0.001"


def duration(seconds: float) -> str:
    """Return a span of time in the unit a person would choose."""
    if 0 < seconds < 1:
        return measure(seconds * 1000, "ms")
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return measure(seconds / size, unit)
    return measure(seconds, "s")


def size_in_bytes(size: int | None, missing: str = MISSING) -> str:
    """Return ``0.83 GiB`` for a number of bytes."""
    if size is None:
        return missing
    power = min(max(abs(size).bit_length() - 1, 0) // 10, len(_BYTE_UNITS) - 1)
    return f"{figure(size / 1024**power)} {_BYTE_UNITS[power]}"
