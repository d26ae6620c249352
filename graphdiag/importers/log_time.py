"""The times in a server log, as wall-clock nanoseconds.

Neither engine prints a time zone, and vLLM prints no year: times are taken as UTC, and the year
as the latest that does not put the log after the file's modification.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import numpy as np

MISSING = np.iinfo(np.int64).min
"""A line without a time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_HALF_YEAR_DAYS = 183
_DAY_NS = 86_400 * 10**9
_LAST_DAY = 84_000
"""A day in the year 2199: a time in ns up to there fits in 64 bits."""

_STAMP = np.frombuffer(b"2026-05-04 09:30:00", np.uint8)
_IS_DIGIT = (ord("0") <= _STAMP) & (ord("9") >= _STAMP)
# What each place of a stamp counts in a date spelled YYYYMMDD, and in the seconds of its day.
_DATE = np.array([10**7, 10**6, 10**5, 10**4, 0, 1000, 100, 0, 10, 1] + 9 * [0], np.int32)
_SECONDS = np.array(11 * [0] + [36_000, 3600, 0, 600, 60, 0, 10, 1], np.int32)


def iso_ns(text: bytes) -> int:
    """Return the first ``YYYY-MM-DD HH:MM:SS[.fraction]`` in ``text`` in ns, or MISSING."""
    match = _ISO.search(text)
    if match is None:
        return MISSING
    date, clock, fraction = match.groups(b"0")
    try:
        time = datetime.fromisoformat(f"{date.decode()} {clock.decode()}+00:00")
    except ValueError:
        return MISSING
    if not 1970 <= time.year <= 2200:  # ns must fit in 64 bits
        return MISSING
    seconds = (time - _EPOCH) // timedelta(seconds=1)
    return seconds * 10**9 + int(fraction.ljust(9, b"0"))


def stamp_column(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the times that stand at given places of a text, in ns; MISSING where none does.

    Parameters
    ----------
    text
        Bytes, as uint8.
    starts, ends
        Where each ``YYYY-MM-DD HH:MM:SS`` should start, and the end of what belongs to it.
    """
    fits = (starts >= 0) & (ends - starts >= len(_STAMP))
    if not fits.any():
        return np.full(len(starts), MISSING)
    places = np.where(fits, starts, starts[fits][0])[:, None] + np.arange(len(_STAMP))
    letters = text[places]
    digits = letters - ord("0")
    fits &= (digits[:, _IS_DIGIT] <= 9).all(axis=1)
    fits &= (letters[:, ~_IS_DIGIT] == _STAMP[~_IS_DIGIT]).all(axis=1)
    numbers = np.where(_IS_DIGIT, digits, 0).astype(np.int32)
    dates, seconds = numbers @ _DATE, numbers @ _SECONDS
    # A log is in order of time: a date is looked up once for each stretch of lines that bear it.
    new = np.flatnonzero(np.diff(dates, prepend=-1))
    days = np.repeat(
        [_day_number(date) for date in dates[new].tolist()], np.diff([*new, len(dates)])
    )
    return np.where(fits & (days >= 0), days * _DAY_NS + seconds.astype(np.int64) * 10**9, MISSING)


def _day_number(date: int) -> int:
    """Return the days from 1970 to ``date``, spelled YYYYMMDD, or -1 where there is no such day."""
    day = _day_of(date // 10_000, date // 100 % 100, date % 100)
    return -1 if day is None or not 0 <= day <= _LAST_DAY else day


class YearClock:
    """Reads ``MM-DD HH:MM:SS``, which has no year.

    The first date gets the latest year in which it is no later than ``latest_ns``; every later
    one the year that puts it nearest to the one before, so a log may pass New Year.

    Parameters
    ----------
    latest_ns
        No line was written after this, in wall-clock ns: the file's modification time.
    """

    def __init__(self, latest_ns: int) -> None:
        # A local time ahead of UTC may be up to 14 hours past the modification time.
        self._latest_day = (latest_ns + 14 * 3600 * 10**9) // _DAY_NS
        self._last_day: int | None = None
        self._last_date = b""

    def ns(self, text: bytes) -> int:
        """Return the time of ``text`` in ns, or MISSING where it is no date."""
        try:
            month, day = int(text[0:2]), int(text[3:5])
            hours, minutes, seconds = int(text[6:8]), int(text[9:11]), int(text[12:14])
        except ValueError:
            return int(MISSING)
        if text[:5] == self._last_date:
            number = self._last_day
        else:
            number = self._day(month, day)
            self._last_date = text[:5] if number is not None else b""
        if number is None or hours > 23 or minutes > 59 or seconds > 60:
            return int(MISSING)
        return number * _DAY_NS + ((hours * 60 + minutes) * 60 + seconds) * 10**9

    def _day(self, month: int, day: int) -> int | None:
        anchor = self._latest_day if self._last_day is None else self._last_day
        year = (_EPOCH + timedelta(days=anchor)).year
        days = [found for y in range(year - 8, year + 2) if (found := _day_of(y, month, day))]
        if self._last_day is None:
            days = [found for found in days if found <= anchor]
        else:
            days = [found for found in days if abs(found - anchor) <= _HALF_YEAR_DAYS]
        if not days:
            return None
        self._last_day = max(days)
        return self._last_day


def _day_of(year: int, month: int, day: int) -> int | None:
    try:
        return (datetime(year, month, day, tzinfo=timezone.utc) - _EPOCH).days
    except ValueError:
        return None


Stamps = Callable[[], tuple[np.ndarray, np.ndarray]]
"""Gives the positions and times (ns, MISSING where none) of lines that are read only if needed."""


def fill_forward(
    times: dict[str, np.ndarray], lines: dict[str, np.ndarray], before: int, others: Stamps
) -> dict[str, np.ndarray]:
    """Give every line without a time that of the last line before it that has one.

    Parameters
    ----------
    times
        Times in ns by kind of line, MISSING where a line has none.
    lines
        Positions of the same lines, ascending within a kind.
    before
        Time of the last line of the block before, or MISSING.
    others
        Lines of no kind, whose times count as well.
    """
    if all(not (values == MISSING).any() for values in times.values()):
        return times
    other_at, other_ns = others()
    at = np.concatenate([*(lines[kind] for kind in times), other_at])
    known = np.concatenate([*times.values(), other_ns])
    order = np.argsort(at, kind="stable")
    has = order[known[order] != MISSING]
    known_at = np.concatenate([[-1], at[has]])
    known_ns = np.concatenate([[before], known[has]])
    filled = {}
    for kind, values in times.items():
        last = known_ns[np.searchsorted(known_at, lines[kind], side="right") - 1]
        filled[kind] = np.where(values == MISSING, last, values)
    return filled
