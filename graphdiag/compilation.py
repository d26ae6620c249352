"""What torch.compile and CUDA graphs told: limits, recompilations, replays outside of steps.

One frame is often told by every rank of a run; ranks compile and step together, so that the
largest count is shown and not their sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

import polars as pl

from graphdiag.limits import LIMIT_KEYS, Limit, details, short_frame
from graphdiag.wording import count
from graphdiag_collectors.schema import GRAPH_REPLAYS

_GUARD = re.compile(r"^\d+/\d+: ")
"""Dynamo names the compiled version that failed before the guard that failed."""
_VALUES = re.compile(r"\b(expected|actual) \S+?(?=[,.;]?(?:\s|$))")
"""What differs between two failures of the same guard."""


@dataclass(frozen=True)
class Frame:
    """A frame at the recompile limit, over all processes.

    Attributes
    ----------
    name
        Function, file and line.
    limit
        The first of its limits.
    steps
        Steps that ran while it was at the limit, in the process with most.
    """

    name: str
    limit: Limit
    steps: int


@dataclass(frozen=True)
class Recompiled:
    """How often a frame was compiled again for one reason; ``reason`` is the last one's words."""

    frame: str
    reason: str
    times: int
    alike: bool


@dataclass(frozen=True)
class Replays:
    """Graph replays that no step's row accounts for.

    Attributes
    ----------
    outside
        How many.
    artifacts
        Replays by artifact in the seconds that had some outside steps, in steps or not.
    """

    outside: int
    artifacts: dict[str, int]


def frames_at_limit(limits: Iterable[Limit], limited: pl.DataFrame) -> list[Frame]:
    """Return the frames that reached their limit, those with most steps at it first.

    ``limited`` is the summary's table of steps.
    """
    counts = {tuple(key): ran for *key, ran in limited.select(*LIMIT_KEYS, "weight").iter_rows()}
    steps: dict[str, dict[tuple[str | None, int | None, int | None], int]] = {}
    first: dict[str, Limit] = {}
    for limit in limits:
        process = (limit.run, limit.rank, limit.pid)
        ran = counts.get((*process, limit.frame, limit.since_ns), 0)
        mine = steps.setdefault(limit.frame, {})
        mine[process] = mine.get(process, 0) + ran
        earliest = first.setdefault(limit.frame, limit)
        if limit.since_ns < earliest.since_ns:
            first[limit.frame] = limit
    frames = [
        Frame(short_frame(frame), first[frame], max(by_process.values()))
        for frame, by_process in steps.items()
    ]
    return sorted(frames, key=lambda frame: (-frame.steps, frame.limit.since_ns, frame.name))


def limit_sentence(frame: Frame, steps: int) -> str:
    """Say what became of a frame at its limit; ``steps`` are those of the whole trace."""
    limit = frame.limit
    since = _clock(limit.since_ns)
    setting = limit.setting or "recompile limit"
    what = "raises an error" if limit.effect == "error" else "runs eager"
    until = ""
    if limit.until_ns is not None:
        until = f", until Dynamo was reset at {_clock(limit.until_ns)}"
    if not steps:
        ran = "the trace has no steps to count"
    else:
        ran = f"{count(frame.steps, 'step')} ran meanwhile"
    return (
        f"{frame.name} reached torch's {setting} at {since} and was not compiled any more: what "
        f"its compiled versions do not fit {what}{until}; {ran}."
    )


def limit_advice(frames: list[Frame]) -> str:
    """Say how to stay below the limit."""
    settings = sorted({frame.limit.setting or "recompile_limit" for frame in frames})
    return (
        "Let one compiled version serve many sizes (torch.compile(dynamic=True), or "
        "torch._dynamo.mark_dynamic on the dimension that changes), pad inputs to a few sizes, or "
        f"raise torch._dynamo.config.{settings[0]}."
    )


def recompiled(compiles: pl.DataFrame, most: int = 3) -> list[Recompiled]:
    """Return why frames were compiled again, the most frequent reasons first.

    ``compiles`` are compile events; those without a reason are no recompilations, and those of
    weight 0 came to nothing.
    """
    weight = pl.col("weight").fill_null(1)
    again = compiles.filter(
        (pl.col("event") == "compile") & pl.col("reason").is_not_null() & (weight > 0)
    ).with_columns(weight)
    found: dict[tuple[str | None, str], tuple[int, set[str], str]] = {}
    for frame, reason, times in again.select("artifact", "reason", "weight").iter_rows():
        words = guard(str(reason))
        key = (frame, _VALUES.sub(r"\1", words))
        before, seen, _ = found.get(key, (0, set(), ""))
        found[key] = (before + times, seen | {words}, words)
    table = [
        Recompiled(short_frame(frame or ""), last, times, alike=len(seen) > 1)
        for (frame, _), (times, seen, last) in found.items()
    ]
    return sorted(table, key=lambda one: (-one.times, one.frame, one.reason))[:most]


def guard(reason: str) -> str:
    """Return the first guard that failed, without the number of the version it belongs to."""
    return _GUARD.sub("", (reason.splitlines() or [""])[0])


def recompiled_sentence(one: Recompiled) -> str:
    """Say how often and why."""
    which = f"{one.frame}, " if one.frame else ""
    such = "such as for " if one.alike else ""
    return f"Recompiled {count(one.times, 'time')}: {which}{such}{one.reason}"


def replays_outside(events: pl.DataFrame) -> Replays:
    """Return the replays that no step accounts for."""
    marks = events.filter((pl.col("event") == "mark") & (pl.col("kind") == GRAPH_REPLAYS))
    artifacts: dict[str, int] = {}
    for text in marks["config"]:
        named = details(text).get("artifacts")
        for artifact, times in named.items() if isinstance(named, dict) else ():
            if isinstance(times, int):
                artifacts[artifact] = artifacts.get(artifact, 0) + times
    return Replays(int(marks["weight"].fill_null(1).sum()), artifacts)


def _clock(t_ns: int) -> str:
    return f"{datetime.fromtimestamp(t_ns // 10**9, tz=timezone.utc):%H:%M:%S} UTC"
