"""Frames at Dynamo's recompile limit: since when, until when, and the steps that ran meanwhile.

At the limit Dynamo compiles a frame no more: what its compiled versions do not fit runs eager, and
Dynamo says nothing further about it, until ``torch._dynamo.reset()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import polars as pl

from graphdiag_collectors.schema import DYNAMO_RESET, RECOMPILE_LIMIT

_PROCESS = ("run", "rank", "pid")
LIMIT_KEYS = (*_PROCESS, "frame", "since_ns")
_LIMITED = {
    "run": pl.String,
    "rank": pl.Int32,
    "pid": pl.Int32,
    "frame": pl.String,
    "since_ns": pl.Int64,
    "weight": pl.Int64,
}


@dataclass(frozen=True)
class Limit:
    """A frame at its recompile limit.

    Attributes
    ----------
    run, rank, pid
        The process that compiled it.
    frame
        Function, file and line.
    since_ns, until_ns
        When it reached the limit, and when Dynamo was reset (None where it was not), wall clock.
    effect
        What becomes of a call that no compiled version fits: ``eager``, or ``error``.
    setting
        The setting of ``torch._dynamo.config`` that was reached, where Dynamo named it.
    reason
        Why the last compilation was asked for, in Dynamo's words.
    """

    run: str | None
    rank: int | None
    pid: int | None
    frame: str
    since_ns: int
    until_ns: int | None
    effect: str
    setting: str | None
    reason: str | None


def find_limits(events: pl.DataFrame) -> tuple[Limit, ...]:
    """Return every frame that reached its limit; ``events`` are a trace's non-step rows by time."""
    found: list[Limit] = []
    open_: dict[tuple[Any, ...], int] = {}
    marks = events.filter(
        (pl.col("event") == "mark")
        & pl.col("kind").is_in([RECOMPILE_LIMIT, DYNAMO_RESET])
        & pl.col("t_ns").is_not_null()
    )
    columns = (*_PROCESS, "kind", "t_ns", "config")
    for run, rank, pid, kind, t_ns, text in marks.select(columns).iter_rows():
        process = (run, rank, pid)
        told = details(text)
        if kind == DYNAMO_RESET:
            # A reset forgets every frame of its process, named in the mark or not.
            for key in [key for key in open_ if key[:3] == process]:
                at = open_.pop(key)
                found[at] = replace(found[at], until_ns=t_ns)
            continue
        frame = str(told.get("frame") or "an unnamed frame")
        key = (*process, frame)
        if key not in open_:
            open_[key] = len(found)
            found.append(
                Limit(
                    run=run,
                    rank=rank,
                    pid=pid,
                    frame=frame,
                    since_ns=t_ns,
                    until_ns=None,
                    effect="error" if told.get("effect") == "error" else "eager",
                    setting=_text(told.get("limit")),
                    reason=_text(told.get("reason")),
                )
            )
    return tuple(found)


def steps_at(limits: Iterable[Limit], steps: pl.DataFrame) -> pl.DataFrame:
    """Return how many of the target's real steps began while each frame was at its limit.

    A row per limit, keyed by :data:`LIMIT_KEYS`, with ``weight``: steps of the limit's process.
    """
    rows = []
    by_process: dict[tuple[Any, ...], list[Limit]] = {}
    for limit in limits:
        by_process.setdefault((limit.run, limit.rank, limit.pid), []).append(limit)
    for process, frames in by_process.items():
        same = [
            pl.col(key).eq_missing(pl.lit(value))
            for key, value in zip(_PROCESS, process, strict=True)
        ]
        runner = pl.col("runner").is_null() | (pl.col("runner") == "target")
        real = pl.col("kind").is_null() & pl.col("t_ns").is_not_null()
        mine = steps.filter(*same, runner, real).sort("t_ns")
        times = mine["t_ns"].to_numpy()
        before = np.concatenate([[0], np.cumsum(mine["weight"].to_numpy())])
        for limit in frames:
            first = np.searchsorted(times, limit.since_ns)
            last = len(times)
            if limit.until_ns is not None:
                last = int(np.searchsorted(times, limit.until_ns))
            rows.append((*process, limit.frame, limit.since_ns, int(before[last] - before[first])))
    return pl.DataFrame(rows, schema=_LIMITED, orient="row")


def details(text: str | None) -> dict[str, Any]:
    """Return the details of a mark; none where they are no JSON object."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def short_frame(frame: str) -> str:
    """Return ``function file.py:line`` of a frame that is named with the whole path."""
    function, _, place = frame.partition(" ")
    return f"{function} {place.rpartition('/')[2]}".strip()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
