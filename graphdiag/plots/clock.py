"""An axis of wall-clock time, and figures of a stretch of it in words."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import polars as pl
from numpy.typing import NDArray

_NS_PER_MS = 1e6
_MARGIN = 0.01

NO_CLOCK = (
    "The source does not say when each step ran, so that nothing can be shown over time: record "
    "the engine with graphdiag record."
)


def milliseconds(ns: pl.Series) -> NDArray[np.float64]:
    """Return wall-clock ns as Bokeh's axes take them: ms since 1970."""
    return ns.to_numpy().astype(np.float64) / _NS_PER_MS


def around(first_ns: int, last_ns: int) -> tuple[float, float]:
    """Return the range of an axis from ``first_ns`` to ``last_ns``, with a margin, in ms."""
    span = max(last_ns - first_ns, 1000) / _NS_PER_MS
    return first_ns / _NS_PER_MS - _MARGIN * span, last_ns / _NS_PER_MS + _MARGIN * span


def label(first_ns: int, last_ns: int) -> str:
    """Return the label of an axis of time: its unit, and the day or the days."""
    first, last = _moment(first_ns), _moment(last_ns)
    days = f"{first:%Y-%m-%d}"
    return f"time (UTC, {days})" if first.date() == last.date() else f"time (UTC, from {days})"


def stretch(first_ns: int, last_ns: int) -> str:
    """Return ``12:00:03.5 to 12:00:04.0``, with as many digits as tell the two apart."""
    digits = 0
    while digits < 6 and last_ns - first_ns < 10 ** (10 - digits):
        digits += 1
    return f"{_clock(first_ns, digits)} to {_clock(last_ns, digits)}"


def _clock(ns: int, digits: int) -> str:
    moment = _moment(ns)
    fraction = f"{ns % 10**9:09}"[:digits]
    return f"{moment:%H:%M:%S}.{fraction}" if fraction else f"{moment:%H:%M:%S}"


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, tz=timezone.utc)
