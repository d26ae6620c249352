"""A stretch of a trace's time, as a person types it and as rows are chosen by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal

import polars as pl

_SECONDS = re.compile(r"-?\d{1,12}(\.\d{1,12})?s?", re.ASCII)
_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FAR = 1 << 62


@dataclass(frozen=True)
class TimeRange:
    """What began from ``start_ns`` on and before ``end_ns``, wall clock, ns."""

    start_ns: int
    end_ns: int

    def holds(self) -> pl.Expr:
        """Expression: a row that began in the range; one without a time did not."""
        time = pl.col("t_ns")
        return ((time >= self.start_ns) & (time < self.end_ns)).fill_null(False)

    def words(self) -> str:
        """Return the range as it is said after a verb: ``from … to …``, an open end left out."""
        start = "" if self.start_ns <= -_FAR else f"from {iso(self.start_ns)}"
        end = "" if self.end_ns >= _FAR else f"before {iso(self.end_ns)}"
        return " and ".join(filter(None, [start, end]))

    def meets(self, first_ns: int, last_ns: int) -> bool:
        """Say whether rows that began from ``first_ns`` to ``last_ns`` may be in the range."""
        return first_ns < self.end_ns and last_ns >= self.start_ns


@dataclass(frozen=True)
class Bound:
    """An end of a window: ns after the first event, or wall-clock ns."""

    ns: int
    is_wall_clock: bool

    def at(self, first_ns: int) -> int:
        """Return it as wall-clock ns, in a trace whose first event began at ``first_ns``."""
        return self.ns if self.is_wall_clock else first_ns + self.ns


@dataclass(frozen=True)
class WindowWish:
    """A window as it was asked for; an end that is None is the trace's own."""

    start: Bound | None
    end: Bound | None

    def over(self, first_ns: int) -> TimeRange:
        """Return the range in a trace whose first event began at ``first_ns``, wall-clock ns."""
        start = -_FAR if self.start is None else self.start.at(first_ns)
        end = _FAR if self.end is None else self.end.at(first_ns)
        return TimeRange(max(-_FAR, start), min(_FAR, end))


def parse_window(text: str) -> WindowWish:
    """Return the window that ``text`` asks for: ``START..END``, of which one may be left out.

    Each is seconds after the first event, or a time as ISO 8601 (UTC where it names no zone).

    Raises
    ------
    ValueError
        When it is no window; the sentence says how to write one.
    """
    first, dots, last = text.partition("..")
    if not dots or not (first.strip() or last.strip()):
        raise ValueError(
            f"{text!r} is no window; give START..END, seconds after the first event or ISO times, "
            "such as 10..20 or 2026-05-04T09:30:00..2026-05-04T09:31:00."
        )
    start, end = _bound(first.strip()), _bound(last.strip())
    alike = start is not None and end is not None and start.is_wall_clock == end.is_wall_clock
    if alike and start.ns >= end.ns:  # type: ignore[union-attr]
        if start.ns == end.ns:  # type: ignore[union-attr]
            raise ValueError(f"{text!r}: the window is empty, it ends where it starts.")
        raise ValueError(f"{text!r}: the window ends before it starts.")
    return WindowWish(start, end)


def iso(ns: int) -> str:
    """Return wall-clock ns as ISO 8601 in UTC, every digit kept; :func:`parse_window` reads it."""
    seconds, rest = divmod(ns, _NS)
    stamp = datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{stamp}{fraction}Z"


def _bound(text: str) -> Bound | None:
    if not text:
        return None
    if _SECONDS.fullmatch(text):
        return Bound(int(Decimal(text.rstrip("s")) * _NS), is_wall_clock=False)
    whole, fraction = text, 0
    if found := re.search(r"\.(\d{1,9})(?=\D|$)", text, re.ASCII):
        # Python's own reader keeps microseconds at most.
        whole = text[: found.start()] + text[found.end() :]
        fraction = int(found[1].ljust(9, "0"))
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", whole))
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; give seconds after the first event, such as 12.5, or a time "
            "such as 2026-05-04T09:30:00."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - _EPOCH
    return Bound((since.days * 86_400 + since.seconds) * _NS + fraction, is_wall_clock=True)
