"""The summary: the small thing every finding is computed from.

``summarize(trace)`` groups the steps by everything discrete and keeps sums; beside it a table by
time bin, a log-spaced histogram of step times, and the small event tables. Summaries add up
(:meth:`Summary.merge`), so parts can be summarised apart and merged; that is also how one trace is
summarised, batch by batch, in memory that depends on the number of groups alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

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
DURATION_KEYS = ("run", "runner", "phase", "kind", "outcome", "bucket", "period", "duration_bin")

TIME_BINS = 512
"""Most bins the timeline is cut into."""

BINS_PER_OCTAVE = 16
"""Resolution of the duration histogram: neighbouring bins differ by a factor 2**(1/16), 4.4 %."""

_SUMMED = (
    "dur_ns",
    "host_ns",
    "gpu_ns",
    "gap_ns",
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
_TIMED = ("dur_ns", "host_ns", "gpu_ns")
"""Measures that may be missing on some rows, whose own weight is kept for a true mean."""

_READ = tuple(
    dict.fromkeys(
        ["event", "t_ns", "weight", "queued", *GROUP_KEYS[:-1], *_SUMMED]  # period is computed
    )
)
_WEIGHT = pl.col("weight")

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
        (sum of squared step times, ns²), ``t_min`` and ``t_max`` (ns).
    timeline
        A row per :data:`TIME_KEYS`; ``bin`` is ``t_ns >> shift``. Sums of ``weight``,
        ``requested_rows`` (requested × weight), ``dur_ns``, ``dur_ns_weight``, ``tokens_out``,
        ``queued`` (requests waiting × weight), ``queued_weight``.
    durations
        A row per :data:`DURATION_KEYS` with ``weight``; ``duration_bin`` is
        floor(16 · log2(ns a step)).
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
    durations: pl.DataFrame
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
        groups, timeline, durations = _totals()
        for summary in (self, other):
            groups.add(summary.groups)
            timeline.add(_rebinned(summary.timeline, shift - summary.shift))
            durations.add(summary.durations)
        return Summary(
            groups=groups.table(),
            timeline=timeline.table(),
            durations=durations.table(),
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
        once; without it, merging the parts does.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    events = trace.events()
    if periods is None:
        periods = find_periods(trace, events)
    groups, starts, durations = _totals()

    def tables(batch: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        steps = _prepared(batch, periods)
        table = _group(steps)
        # Bins as wide as the rows seen so far ask for: exact once they are joined to the final
        # width, whatever the order in which batches are worked on.
        width = 1 << bin_shift(_length(_hull(span, _span(table))))
        return table, _timeline(steps, width), _durations(steps)

    for group, start, duration in trace.map(_READ, tables):
        span = _hull(span, _span(group))
        groups.add(group)
        starts.add(start)
        durations.add(duration)
    shift = bin_shift(_length(span))
    timeline = Total(TIME_KEYS)
    timeline.add(_rebinned(starts.table(), shift))
    return Summary(
        groups=groups.table(),
        timeline=timeline.table(),
        durations=durations.table(),
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


def _totals() -> tuple[Total, Total, Total]:
    return Total(GROUP_KEYS), Total(TIME_KEYS), Total(DURATION_KEYS)


def _span(groups: pl.DataFrame) -> Span:
    first, last = groups["t_min"].min(), groups["t_max"].max()
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _hull(one: Span, other: Span) -> Span:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _length(span: Span) -> int:
    return span[1] - span[0] if span else 0


def _rebinned(timeline: pl.DataFrame, shift: int) -> pl.DataFrame:
    return timeline.with_columns(pl.col("bin") // (1 << shift))


def _prepared(batch: pl.DataFrame, periods: Periods) -> pl.DataFrame:
    """Return the batch's steps with their period and no weight left out."""
    is_step = batch["event"] == "step"
    steps = batch if is_step.all() else batch.filter(is_step)
    return steps.with_columns(periods.code().alias("period"), _WEIGHT.fill_null(1))


def _group(steps: pl.DataFrame) -> pl.DataFrame:
    time = pl.col("dur_ns").cast(pl.Float64)
    squares = pl.when(_WEIGHT > 0).then(time * time / _WEIGHT)
    sums = {"weight": _WEIGHT.sum(), "rows": pl.len().cast(pl.Int64)}
    sums |= {name: sum_of(steps, name) for name in _SUMMED}
    sums |= {f"{name}_weight": weight_of(steps, name) for name in _TIMED}
    sums |= {
        "dur_sq": squares.sum(),
        "t_min": pl.col("t_ns").min(),
        "t_max": (pl.col("t_ns") + pl.col("dur_ns").fill_null(0)).max(),
    }
    return sum_by(steps, GROUP_KEYS, sums)


def _timeline(steps: pl.DataFrame, width: int) -> pl.DataFrame:
    """Return the timeline of a batch; ``bin`` is the ns at which a bin of ``width`` ns begins."""
    timed = steps.drop_nulls("t_ns").with_columns((pl.col("t_ns") // width * width).alias("bin"))
    sums = {
        "weight": _WEIGHT.sum(),
        "requested_rows": (pl.col("requested") * _WEIGHT).sum(),
        "dur_ns": sum_of(timed, "dur_ns"),
        "dur_ns_weight": weight_of(timed, "dur_ns"),
        "tokens_out": sum_of(timed, "tokens_out"),
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
