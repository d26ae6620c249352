"""Cold, warm and steady: which period of its run a step belongs to.

* **cold**: up to the end of the last start-up capture or compile;
* **warm**: the first execution of each artifact after that;
* **steady**: the rest, from which verdicts come.

A capture or compile belongs to start-up when fewer than :data:`SETTLED_STEPS` steps ran since the
one before it (or since traffic began). A recompilation, which has a reason, does only before the
first step: under traffic it is a fault of steady state wherever it falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from graphdiag.insteps import InStep, find_in_steps
from graphdiag.limits import Limit, find_limits
from graphdiag.sums import Total, sum_by
from graphdiag.trace import Trace

SETTLED_STEPS = 100
"""Steps without a capture or compile after which start-up is over."""

PERIODS = ("cold", "warm", "steady")
COLD, WARM, STEADY = range(3)

_MOST_AT_ONCE = 1.2
"""Most steps at the times of first executions, per artifact; more, and the clock is too coarse."""

Work = tuple[int, int, bool]
"""Start and end (ns) of a capture or compile, and whether it was compiled again."""

ARTIFACT_KEYS = ("run", "rank", "runner", "phase", "mode", "bucket", "artifact")
"""What tells one replayed artifact from another, also where it has no name."""

_PROCESS = ("rank", "pid")


@dataclass(frozen=True)
class Periods:
    """What is known of a trace before its steps are summed: where its periods lie.

    Attributes
    ----------
    cold_end
        Wall-clock ns by run id; runs without start-up work are left out.
    first_executions
        Start times (ns) of the first replay of each artifact after the cold end.
    limits
        Frames at their recompile limit, and when.
    in_steps
        Captures and compilations that ran inside a step.
    """

    cold_end: dict[str | None, int]
    first_executions: tuple[int, ...]
    limits: tuple[Limit, ...] = ()
    in_steps: tuple[InStep, ...] = ()

    def is_cold(self) -> pl.Expr:
        """Expression: a step that began before its run's start-up was over."""
        return self._before_end(pl.col("t_ns") + 1)

    def is_start_up(self) -> pl.Expr:
        """Expression: a capture or compile of its run's start-up, also the one that ended it."""
        return self._before_end(pl.col("t_ns"))

    def is_steady(self, began: pl.Expr) -> pl.Expr:
        """Expression: what a step did that ``began`` then, ns, was done in steady state."""
        return ~self._before_end(began + 1) & ~began.is_in(self._first())

    def _first(self) -> pl.Expr:
        """Expression: the first executions, to look times up in."""
        return pl.lit(pl.Series(self.first_executions, dtype=pl.Int64).implode())

    def _before_end(self, time: pl.Expr) -> pl.Expr:
        before = pl.lit(False)
        for run, end in self.cold_end.items():
            before = before | (pl.col("run").eq_missing(pl.lit(run)) & (time <= end))
        return before.fill_null(False)

    def merge(self, other: Periods) -> Periods:
        """Return the periods of both: of the same run, or of different ones."""
        ends = dict(self.cold_end)
        for run, end in other.cold_end.items():
            ends[run] = max(end, ends.get(run, end))
        first = sorted({*self.first_executions, *other.first_executions})
        return Periods(
            ends,
            tuple(first),
            tuple(dict.fromkeys(self.limits + other.limits)),
            tuple(dict.fromkeys(self.in_steps + other.in_steps)),
        )

    def code(self) -> pl.Expr:
        """Expression: the index into :data:`PERIODS` of a step row, as UInt8."""
        if not self.first_executions:
            warm = pl.lit(False)
        else:
            real = pl.col("kind").is_null()
            warm = real & _is_replay() & pl.col("t_ns").is_in(self._first())
        return (
            pl.when(self.is_cold())
            .then(pl.lit(COLD, pl.UInt8))
            .when(warm)
            .then(pl.lit(WARM, pl.UInt8))
            .otherwise(pl.lit(STEADY, pl.UInt8))
        )


def find_periods(trace: Trace, events: pl.DataFrame) -> Periods:
    """Find the periods of every run in ``trace``; ``events`` are its non-step rows by time.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    start_up = find_start_up(trace, events)
    first = first_executions(trace, earliest_replays(trace, start_up))
    return replace(start_up, first_executions=first)


def find_start_up(trace: Trace, events: pl.DataFrame) -> Periods:
    """Find the same but for the first executions, which takes no look at every step.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    ends = cold_ends(trace, startup_work(trace, events))
    return Periods(ends, (), find_limits(events), find_in_steps(trace, events))


def cold_ends(trace: Trace, work: pl.DataFrame) -> dict[str | None, int]:
    """Return when start-up ended, by run; ``work`` is that of :func:`startup_work`.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    by_run: dict[str | None, list[Work]] = {}
    for run, start, duration, compiled_again in work.sort("t_ns").iter_rows():
        by_run.setdefault(run, []).append((start, start + (duration or 0), compiled_again))
    ends = {run: startup_end(mine, _early_steps(trace, run, mine)) for run, mine in by_run.items()}
    return {run: end for run, end in ends.items() if end is not None}


def startup_end(work: list[Work], steps: np.ndarray) -> int | None:
    """Return when start-up ended, or None where no work precedes settled traffic.

    Parameters
    ----------
    work
        (start, end) in ns of each capture and compile, and whether it compiled again, by start.
    steps
        Start times (ns) of the run's first real steps, ascending; at least
        ``SETTLED_STEPS`` x (number of works + 1) of them where there are that many.
    """
    end: int | None = None
    for start, finish, again in work:
        if again and len(steps) and start >= steps[0]:
            continue
        since = steps[0] if end is None and len(steps) else end
        if since is not None:
            ran = int(np.searchsorted(steps, start)) - int(np.searchsorted(steps, since))
            if ran >= SETTLED_STEPS:
                break
        end = finish if end is None else max(end, finish)
    return end


def _is_real() -> pl.Expr:
    """Expression: a step with a time that the scheduler asked for."""
    return (pl.col("event") == "step") & pl.col("kind").is_null() & pl.col("t_ns").is_not_null()


def _is_replay() -> pl.Expr:
    """Expression: a step that replayed a known bucket."""
    return pl.col("bucket").is_not_null()


def startup_work(trace: Trace, events: pl.DataFrame) -> pl.DataFrame:
    """Return ``run``, ``t_ns``, ``dur_ns`` and ``again`` of each capture and compilation.

    ``events`` are the non-step rows of ``trace``, which may be a part of a larger one.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    again = (pl.col("event") == "compile") & pl.col("reason").is_not_null()
    columns = ("run", "t_ns", "dur_ns", again.alias("again"))
    made = pl.col("event").is_in(["capture", "compile"]) & pl.col("t_ns").is_not_null()
    inside_steps = trace.collect(
        trace.steps()
        .filter((pl.col("outcome") == "capture") & pl.col("t_ns").is_not_null())
        .select(columns)
    )
    return pl.concat([events.filter(made).select(columns), inside_steps])


def _early_steps(trace: Trace, run: str | None, work: list[Work]) -> np.ndarray:
    """Return start times (ns) of the first real steps of the process that stepped first.

    Ranks step together, so that one of them counts the run's steps; drafts are no steps of it.
    """
    before = trace.frame.filter(
        _is_real(),
        pl.col("run").eq_missing(pl.lit(run)),
        pl.col("t_ns") < work[-1][0],
        pl.col("runner").is_null() | (pl.col("runner") == "target"),
    )
    earliest = trace.collect(before.select("t_ns", *_PROCESS).bottom_k(1, by="t_ns"))
    if earliest.is_empty():
        return np.empty(0, np.int64)
    process = [pl.col(key).eq_missing(pl.lit(earliest[key][0])) for key in _PROCESS]
    most = SETTLED_STEPS * (len(work) + 1)
    steps = trace.collect(before.filter(*process).select("t_ns").bottom_k(most, by="t_ns"))
    return np.sort(steps["t_ns"].to_numpy())


def earliest_replays(trace: Trace, periods: Periods) -> pl.DataFrame:
    """Return when each artifact (:data:`ARTIFACT_KEYS`) first ran after the cold end: ``t_min``.

    Tables of parts add up in a :class:`graphdiag.sums.Total`.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """

    def earliest(batch: pl.DataFrame) -> pl.DataFrame:
        steps = batch.filter(_is_real() & _is_replay() & ~periods.is_cold())
        return sum_by(steps, ARTIFACT_KEYS, {"t_min": pl.col("t_ns")})

    first = Total(ARTIFACT_KEYS)
    for table in trace.map(("event", "kind", "t_ns", *ARTIFACT_KEYS), earliest):
        first.add(table)
    return first.table()


def first_executions(trace: Trace, earliest: pl.DataFrame) -> tuple[int, ...]:
    """Return when each artifact first ran, ``earliest`` being that of :func:`earliest_replays`.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    return told_apart(earliest, replays_then(trace, earliest))


def told_apart(earliest: pl.DataFrame, replays: int) -> tuple[int, ...]:
    """Return the times ``earliest``; nothing where the clock cannot tell first from next.

    A log stamps whole seconds, and a table of ten seconds one time: every step that shares the
    time of a first execution would pass for one. ``replays`` is that of :func:`replays_then`.
    """
    if replays > _MOST_AT_ONCE * len(earliest):
        return ()
    return tuple(earliest["t_min"].unique().sort())


def replays_then(trace: Trace, earliest: pl.DataFrame) -> int:
    """Return how many replays began at the times ``earliest`` of :func:`earliest_replays`.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    times = earliest["t_min"]
    if times.is_empty():
        return 0
    same_time = trace.frame.filter(
        _is_real() & _is_replay(),
        pl.col("t_ns") <= times.max(),  # statistics of row groups rule most of them out
        pl.col("t_ns").is_in(times.implode()),
    )
    return int(trace.collect(same_time.select(pl.col("weight").fill_null(1).sum())).item())
