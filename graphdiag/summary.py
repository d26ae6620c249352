"""The summary: the small thing every finding is computed from.

``summarize(trace)`` groups the steps by everything discrete and keeps sums; beside it a table by
time bin, a log-spaced histogram of step times, and the small event tables. Summaries add up
(:meth:`Summary.merge`), so parts can be summarised apart and merged; that is also how one trace is
summarised, batch by batch, in memory that depends on the number of groups alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from graphdiag.limits import LIMIT_KEYS, steps_at
from graphdiag.periods import Periods, find_periods
from graphdiag.sums import Total, sum_by, sum_of, weight_of
from graphdiag.trace import Trace

GROUP_KEYS = (
    "run",
    "rank",
    "runner",
    "phase",
    "axis",
    "requested",
    "bucket",
    "mode",
    "outcome",
    "reason",
    "artifact",
    "loras",
    "query_len",
    "kind",
    "period",
)
TIME_KEYS = ("bin", "run", "runner", "phase", "kind", "outcome", "bucket", "period")
SLICE_KEYS = (
    "slice",
    "run",
    "runner",
    "phase",
    "axis",
    "kind",
    "requested",
    "outcome",
    "bucket",
    "reason",
    "period",
)
DURATION_KEYS = ("run", "runner", "phase", "kind", "outcome", "bucket", "period", "duration_bin")

TIME_BINS = 512
"""Most bins the timeline is cut into."""

_SLICE_BITS = 4
"""A slice is 2**4 bins of the timeline: at most 32 slices, each with its own sizes."""

BINS_PER_OCTAVE = 16
"""Resolution of the duration histogram: neighbouring bins differ by a factor 2**(1/16), 4.4 %."""

_SUMMED = (
    "dur_ns",
    "host_ns",
    "gpu_ns",
    "gap_ns",
    "gpu_span_ns",
    "blocked_ns",
    "graph_launch_ns",
    "compile_ns",
    "replays",
    "launches",
    "kernels",
    "graph_kernels",
    "tokens_out",
    "kv_tokens",
    "preempted",
)
_TIMED = ("dur_ns", "host_ns", "gpu_ns", "gpu_span_ns")
"""Measures that may be missing on some rows, whose own weight is kept for a true mean."""

_READ = tuple(
    dict.fromkeys(
        ["event", "t_ns", "weight", "queued", *GROUP_KEYS[:-1], *_SUMMED]  # period is computed
    )
)
_SLICED = (
    *("weight", "dur_ns", "dur_ns_weight", "dur_sq"),
    *("compile_ns", "tokens_out", "kv_tokens", "preempted"),
)
_SIZED = ("requested", "bucket", "mode", "outcome", "reason", "artifact")
"""What a step with impossible sizes says nothing of."""

_WEIGHT = pl.col("weight")
_END = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)

Span = tuple[int, int] | None
"""First and last ns, None where no row has a time."""


@dataclass(frozen=True)
class Summary:
    """Additive tables over the steps of a trace.

    Attributes
    ----------
    groups
        A row per combination of :data:`GROUP_KEYS`, with ``weight`` (steps), ``rows``, the sums of
        the measures (ns, counts), ``<measure>_weight`` for those that may be missing, ``dur_sq``
        (sum of squared step times, ns²), ``compile_steps`` (steps that compiled),
        ``impossible`` (steps whose sizes no step has, and so were left out), ``t_min`` and
        ``t_max`` (ns).
    timeline
        A row per :data:`TIME_KEYS`; ``bin`` is ``t_ns >> shift``. Sums of ``weight``,
        ``requested_rows`` (requested × weight), ``dur_ns``, ``dur_ns_weight``, ``tokens_out``,
        ``kv_tokens``,
        ``queued`` (requests waiting × weight), ``queued_weight``.
    slices
        A row per :data:`SLICE_KEYS`: the sizes as they changed over time, in at most 32 slices of
        ``t_ns >> (shift + 4)``. Sums of ``weight``, ``dur_ns``, ``dur_ns_weight``, ``dur_sq``,
        ``compile_ns``, ``tokens_out``, ``kv_tokens`` and ``preempted``.
    durations
        A row per :data:`DURATION_KEYS` with ``weight``; ``duration_bin`` is
        floor(16 · log2(ns a step)).
    limited
        A row per :data:`LIMIT_KEYS`, a frame at its recompile limit, with ``weight``: the target's
        real steps that began meanwhile.
    events
        The rows of the trace that are no steps, as they are, by time.
    shift
        log2 of the timeline's bin width in ns.
    periods
        What cut cold, warm and steady.
    notes
        Sentences about what could not be read.
    """

    groups: pl.DataFrame
    timeline: pl.DataFrame
    slices: pl.DataFrame
    durations: pl.DataFrame
    limited: pl.DataFrame
    events: pl.DataFrame
    shift: int
    periods: Periods
    notes: tuple[str, ...]

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both: parts of one run with the same periods, or different runs.

        The timeline gets the bins that the span of both asks for. Events of the same time keep the
        order of the merge.
        """
        span = _hull(_span(self.groups), _span(other.groups))
        shift = max(self.shift, other.shift, bin_shift(_length(span)))
        groups, timeline, slices, durations, limited = _totals()
        for summary in (self, other):
            wider = shift - summary.shift
            groups.add(summary.groups)
            timeline.add(_rebinned(summary.timeline, "bin", wider))
            slices.add(_rebinned(summary.slices, "slice", wider))
            durations.add(summary.durations)
            limited.add(summary.limited)
        return Summary(
            groups=groups.table(),
            timeline=timeline.table(),
            slices=slices.table(),
            durations=durations.table(),
            limited=limited.table(),
            events=pl.concat([self.events, other.events]).sort("t_ns", maintain_order=True),
            shift=shift,
            periods=self.periods.merge(other.periods),
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )


def summarize(
    trace: Trace, periods: Periods | None = None, span: tuple[int, int] | None = None
) -> Summary:
    """Summarise the steps of ``trace``.

    Parameters
    ----------
    trace
        Any trace; it is read batch by batch and never held.
    periods
        Given when ``trace`` is a part of a larger one whose periods are known; found otherwise.
    span
        First and last ns of the larger trace, likewise, to give the timeline its bin width at
        once; without it, the part's own, and merging the parts widens them.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    events = trace.events()
    if periods is None:
        periods = find_periods(trace, events)
    shift = bin_shift(_length(_hull(span, _step_span(trace))))
    totals = _totals()

    def tables(batch: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
        steps = _prepared(batch, periods)
        in_slices = _group(steps, shift + _SLICE_BITS)
        return (
            _groups(in_slices),
            _timeline(steps, shift),
            _slices(in_slices),
            _durations(steps),
            steps_at(periods.limits, steps),
        )

    columns = (*_READ, "pid") if periods.limits else _READ
    for found in trace.map(columns, tables):
        for total, table in zip(totals, found, strict=True):
            total.add(table)
    groups, timeline, slices, durations, limited = (total.table() for total in totals)
    return Summary(
        groups=groups,
        timeline=timeline,
        slices=slices,
        durations=durations,
        limited=limited,
        events=events,
        shift=shift,
        periods=periods,
        notes=trace.notes,
    )


def bin_shift(nanoseconds: int) -> int:
    """Return the smallest shift that cuts ``nanoseconds`` into at most :data:`TIME_BINS` bins."""
    return max(0, (nanoseconds // (TIME_BINS - 1)).bit_length())


def duration_of_bin(bins: pl.Expr) -> pl.Expr:
    """Expression: the geometric middle of a duration bin, in ns."""
    return ((bins + 0.5) / BINS_PER_OCTAVE * pl.lit(2.0).log()).exp()


def _totals() -> tuple[Total, Total, Total, Total, Total]:
    keys = GROUP_KEYS, TIME_KEYS, SLICE_KEYS, DURATION_KEYS, LIMIT_KEYS
    groups, timeline, slices, durations, limited = map(Total, keys)
    return groups, timeline, slices, durations, limited


def _span(groups: pl.DataFrame) -> Span:
    first, last = groups["t_min"].min(), groups["t_max"].max()
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _step_span(trace: Trace) -> Span:
    ends = trace.collect(trace.steps().select(pl.col("t_ns").min().alias("first"), _END.max()))
    first, last = ends.row(0)
    return None if first is None or last is None else (first, last)


def _hull(one: Span, other: Span) -> Span:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _length(span: Span) -> int:
    return span[1] - span[0] if span else 0


def _rebinned(table: pl.DataFrame, key: str, shift: int) -> pl.DataFrame:
    return table.with_columns(pl.col(key) // (1 << shift))


def _prepared(batch: pl.DataFrame, periods: Periods) -> pl.DataFrame:
    """Return the batch's steps with their period, no weight left out and no impossible size."""
    is_step = batch["event"] == "step"
    steps = batch if is_step.all() else batch.filter(is_step)
    steps = steps.with_columns(
        periods.code().alias("period"), _WEIGHT.fill_null(1), _impossible().alias("impossible")
    )
    if steps["impossible"].any():
        kept = pl.when(~pl.col("impossible"))
        steps = steps.with_columns(kept.then(name).alias(name) for name in _SIZED)
    return steps


def _impossible() -> pl.Expr:
    """Expression: a step with sizes that none has, as the recorder refuses them.

    A trace made elsewhere may hold such: a size below 1 (a filler or warm-up may be of 0), or a
    bucket smaller than what was requested where the step replayed.
    """
    requested, bucket = pl.col("requested"), pl.col("bucket")
    eager = pl.col("outcome").is_in(["fallback", "eager", "capture"]).fill_null(False)
    below = (requested < 0) | ((requested == 0) & pl.col("kind").is_null()) | (bucket < 1)
    return (below | ((bucket < requested) & ~eager)).fill_null(False)


def _group(steps: pl.DataFrame, shift: int) -> pl.DataFrame:
    """Return the batch by slice and group.

    A batch mostly lies within one slice, so that the slices cost no grouping of their own.
    """
    steps = steps.with_columns((pl.col("t_ns") // (1 << shift)).alias("slice"))
    time = pl.col("dur_ns").cast(pl.Float64)
    squares = pl.when(_WEIGHT > 0).then(time * time / _WEIGHT)
    sums = {"weight": _WEIGHT.sum(), "rows": pl.len().cast(pl.Int64)}
    sums |= {name: sum_of(steps, name) for name in _SUMMED}
    sums |= {f"{name}_weight": weight_of(steps, name) for name in _TIMED}
    sums |= {
        "dur_sq": squares.sum(),
        "compile_steps": _count(steps, "compile_ns"),
        "impossible": _count(steps, "impossible"),
        "t_min": pl.col("t_ns").min(),
        "t_max": _END.max(),
    }
    return sum_by(steps, ("slice", *GROUP_KEYS), sums)


def _count(steps: pl.DataFrame, name: str) -> pl.Expr:
    """Expression: the weight of the steps whose measure is above 0."""
    if not steps[name].max():  # null throughout, or 0: the usual case, and free
        return pl.lit(0, pl.Int64)
    return (_WEIGHT * (pl.col(name) > 0).fill_null(False)).sum()


def _groups(in_slices: pl.DataFrame) -> pl.DataFrame:
    if in_slices["slice"].n_unique() > 1:
        total = Total(GROUP_KEYS)
        total.add(in_slices.drop("slice"))
        return total.table()
    return in_slices.drop("slice")


def _slices(in_slices: pl.DataFrame) -> pl.DataFrame:
    sums = {name: pl.col(name).sum() for name in _SLICED}
    return sum_by(in_slices.drop_nulls("slice"), SLICE_KEYS, sums)


def _timeline(steps: pl.DataFrame, shift: int) -> pl.DataFrame:
    timed = steps.drop_nulls("t_ns").with_columns((pl.col("t_ns") // (1 << shift)).alias("bin"))
    sums = {
        "weight": _WEIGHT.sum(),
        "requested_rows": (pl.col("requested") * _WEIGHT).sum(),
        "dur_ns": sum_of(timed, "dur_ns"),
        "dur_ns_weight": weight_of(timed, "dur_ns"),
        "tokens_out": sum_of(timed, "tokens_out"),
        "kv_tokens": sum_of(timed, "kv_tokens"),
        "queued": (pl.col("queued") * _WEIGHT).sum(),
        "queued_weight": weight_of(timed, "queued"),
    }
    return sum_by(timed, TIME_KEYS, sums)


def _durations(steps: pl.DataFrame) -> pl.DataFrame:
    octaves = (pl.col("dur_ns").cast(pl.Float64) / _WEIGHT).log(2)
    timed = steps.filter((pl.col("dur_ns") > 0) & (_WEIGHT > 0)).with_columns(
        (octaves * BINS_PER_OCTAVE).floor().cast(pl.Int16).alias("duration_bin")
    )
    return sum_by(timed, DURATION_KEYS, {"weight": _WEIGHT.sum()})
