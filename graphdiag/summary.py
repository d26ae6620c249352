"""The summary: the small thing every finding is computed from.

``summarize(trace)`` groups the steps by everything discrete and keeps sums; beside it a table by
time bin, a log-spaced histogram of step times, and the small event tables. Summaries add up
(:meth:`Summary.merge`), so parts can be summarised apart and merged; that is also how one trace is
summarised, batch by batch, in memory that depends on the number of groups alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.batchtables import TABLES
from graphdiag.busy import Span, extent, hull, narrowest
from graphdiag.onepass import no_sums, sums_and_periods, sums_of
from graphdiag.periods import Periods, find_periods, find_start_up
from graphdiag.sums import Total
from graphdiag.timerange import TimeRange
from graphdiag.trace import Trace
from graphdiag.windows import events_within

TIME_BINS = 512
"""Most bins the timeline is cut into."""

SLICE_BITS = 4
"""A slice is 2**4 bins of the timeline at most: 32 slices, each with its own sizes."""


@dataclass(frozen=True)
class Summary:
    """Additive tables over the steps of a trace.

    Attributes
    ----------
    groups
        A row per combination of :data:`GROUP_KEYS`, with ``weight`` (steps), ``rows``, the sums of
        the measures (ns, counts), ``<measure>_weight`` for those that may be missing, ``dur_sq``
        (sum of squared step times, ns²), ``compile_steps`` (steps that compiled),
        ``impossible`` (steps whose sizes no step has, and so were left out), ``backwards`` (steps
        that ended before they began, whose times are left out), ``set_back`` (steps that began
        over a second before the one that their process recorded before them), ``t_min`` and
        ``t_max`` (ns).
    timeline
        A row per :data:`TIME_KEYS`; ``bin`` is ``t_ns >> shift``. Sums of ``weight``,
        ``requested_rows`` (requested × weight), ``dur_ns``, ``dur_ns_weight``, ``tokens_out``,
        ``kv_tokens``,
        ``queued`` (requests waiting × weight), ``queued_weight``.
    slices
        A row per :data:`SLICE_KEYS`: the sizes as they changed over time, in slices of
        ``t_ns >> slice_shift`` of which at most 32 hold steps or requests; ``octave`` is
        floor(log2(ns a step)) without what the step compiled, which tells steps apart that took far
        longer than others. Sums of ``weight``, ``dur_ns``, ``dur_ns_weight``, ``dur_sq``,
        ``compile_ns``, ``tokens_out``, ``kv_tokens``, ``preempted`` and ``recomputed``.
    durations
        A row per :data:`DURATION_KEYS` with ``weight``; ``duration_bin`` is
        floor(16 · log2(ns a step)).
    limited
        A row per :data:`LIMIT_KEYS`, a frame at its recompile limit, with ``weight``: the target's
        real steps that began meanwhile.
    requests
        A row per :data:`graphdiag.requesttimes.REQUEST_KEYS`: sums of ``weight`` (requests),
        ``dur_ns``, ``queued_ns``, ``ttft_ns`` (ns), ``tokens_in`` and ``tokens_out``, and
        ``<measure>_weight`` for those that may be missing.
    events
        The rows of the trace that are no steps and no requests, as they are, by time.
    shift, slice_shift
        log2 of the width in ns of the timeline's bins and of the slices.
    periods
        What cut cold, warm and steady.
    notes
        Sentences about what could not be read.
    window
        The stretch that the steps were chosen from; None where it is the whole trace. The periods
        are those of the whole trace all the same.
    """

    groups: pl.DataFrame
    timeline: pl.DataFrame
    slices: pl.DataFrame
    durations: pl.DataFrame
    limited: pl.DataFrame
    requests: pl.DataFrame
    events: pl.DataFrame
    shift: int
    slice_shift: int
    periods: Periods
    notes: tuple[str, ...]
    window: TimeRange | None = None

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both: parts of one run with the same periods, or different runs.

        The timeline gets the bins that the span of both asks for. Events of the same time keep the
        order of the merge.
        """
        span = hull(_span(self.groups), _span(other.groups))
        shift = max(self.shift, other.shift, bin_shift(_length(span)))
        slice_shift = _merged_shift(self, other, shift + SLICE_BITS)
        totals = no_sums()
        for summary in (self, other):
            tables = [getattr(summary, name) for name in TABLES]
            for total, table in zip(totals, tables, strict=True):
                table = rebinned(table, "bin", shift - summary.shift)
                total.add(rebinned(table, "slice", slice_shift - summary.slice_shift))
        return _built(
            totals,
            events=pl.concat([self.events, other.events]).sort("t_ns", maintain_order=True),
            shift=shift,
            slice_shift=slice_shift,
            periods=self.periods.merge(other.periods),
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )


def summarize(
    trace: Trace,
    periods: Periods | None = None,
    span: tuple[int, int] | None = None,
    window: TimeRange | None = None,
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
    window
        Leave out the steps that did not begin in it.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    events = trace.events()
    busy, own = extent(trace)
    shift, slice_shift = resolution(hull(span, own), window, busy.shift)
    chosen, kept = trace, events
    if window is not None:
        chosen, kept = trace.within(window), events_within(events, window)
        periods = periods or find_periods(trace, events)
    if periods is None:
        start_up = find_start_up(trace, events)
        totals, periods = sums_and_periods(trace, start_up, shift, slice_shift)
    else:
        totals = sums_of(chosen, periods, shift, slice_shift)
    return _built(
        totals,
        events=kept,
        shift=shift,
        slice_shift=slice_shift,
        periods=periods,
        notes=trace.notes,
        window=window,
    )


def _merged_shift(one: Summary, other: Summary, widest: int) -> int:
    """Return log2 of the width, ns, of the slices of both."""
    shift = max(one.slice_shift, other.slice_shift)
    held = [
        rebinned(table, "slice", shift - summary.slice_shift)["slice"].drop_nulls()
        for summary in (one, other)
        for table in (summary.slices, summary.requests)
    ]
    return narrowest(
        np.unique(np.concatenate([each.to_numpy() for each in held])), shift, widest
    ).shift


def resolution(span: Span, window: TimeRange | None, busy: int) -> tuple[int, int]:
    """Return log2 of the width, ns, of a timeline's bins and of its slices.

    ``span`` is that of all steps, and ``busy`` log2 of the width of slices that an idle stretch
    takes none of: no slice is wider.
    """
    bins, slices = _grid(span, window)
    return bins, min(slices, busy)


def _grid(span: Span, window: TimeRange | None) -> tuple[int, int]:
    """Return the same for a trace that was busy all the time.

    A window has bins and slices of its own, as a whole trace of its
    length would; one whose ends are borders of the trace's bins keeps those, and has no slices
    finer than its ends are, so that sums by stretches between such borders serve it.
    """
    whole = bin_shift(_length(span))
    if window is None or span is None:
        return whole, whole + SLICE_BITS
    inner = [end for end in (window.start_ns, window.end_ns) if span[0] < end <= span[1]]
    own = bin_shift(max(0, min(span[1], window.end_ns) - max(span[0], window.start_ns)))
    fits = [
        bits for bits in range(SLICE_BITS + 1) if not any(e % (1 << whole + bits) for e in inner)
    ]
    if not fits:
        return own, own + SLICE_BITS
    return whole, max(own + SLICE_BITS, whole + fits[-1])


def bin_shift(nanoseconds: int) -> int:
    """Return the smallest shift that cuts ``nanoseconds`` into at most :data:`TIME_BINS` bins."""
    return max(0, (nanoseconds // (TIME_BINS - 1)).bit_length())


def _built(
    totals: list[Total],
    *,
    events: pl.DataFrame,
    shift: int,
    slice_shift: int,
    periods: Periods,
    notes: tuple[str, ...],
    window: TimeRange | None = None,
) -> Summary:
    groups, timeline, slices, durations, limited, requests = (one.table() for one in totals)
    return Summary(
        groups=groups,
        timeline=timeline,
        slices=slices,
        durations=durations,
        limited=limited,
        requests=requests,
        events=events,
        shift=shift,
        slice_shift=slice_shift,
        periods=periods,
        notes=notes,
        window=window,
    )


def _span(groups: pl.DataFrame) -> Span:
    first, last = groups["t_min"].min(), groups["t_max"].max()
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _length(span: Span) -> int:
    return span[1] - span[0] if span else 0


def rebinned(table: pl.DataFrame, key: str, wider: int) -> pl.DataFrame:
    """Return ``table`` with the bins of ``key``, where it has one, ``2**wider`` times as wide."""
    if key not in table.columns or not wider:
        return table
    return table.with_columns(pl.col(key) // (1 << wider))
