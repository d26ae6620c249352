"""The timed steps of a trace as arrays: by slice of time, phase, size, bucket and what they did."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.bootstrap import resampled
from graphdiag.metrics import is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.summary import Summary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

REPLAY, FALLBACK, EAGER, CAPTURE, START_UP, UNKNOWN = range(6)
"""What a step did: replayed a known bucket, fell back, ran eager by configuration, captured or
compiled in steady state, ran before steady state, or replayed a bucket that is not told."""

ROLES = 6
NO_SIZE = 0
"""``requested`` or ``bucket`` of a step that has none."""

_KEYS = ("phase", "requested", "bucket", "role")
_SUMS = ("dur_ns_weight", "dur_ns", "compiling", "tokens_out", "kv_tokens", "again")
_READ = (
    *("slice", "requested", "bucket", "outcome", "period", "octave", "axis"),
    *("dur_ns_weight", "dur_ns", "compile_ns", "tokens_out", "kv_tokens", "recomputed"),
)
_FAR = 2
"""Octaves by which a stalled step took longer than the median of its size."""
_RARE = 0.05
"""Largest share of a phase's steps that stalls can be: what happens oftener is how it runs.

One step alone is never how it runs.
"""
_ENOUGH, _FEWEST = 20, 5
"""Fewest steps whose median tells what a size takes, and what all sizes of a phase together do."""


@dataclass(frozen=True)
class Sums:
    """Sums over the steps of each group in each resample, arrays of [resamples, groups].

    ``steps``, ``time`` and ``compiling`` (ns), tokens of ``context``, and rows computed ``again``;
    ``tokens`` produced are those of all groups: [resamples].
    """

    steps: Floats
    time: Floats
    compiling: Floats
    context: Floats
    again: Floats
    tokens: Floats


@dataclass(frozen=True)
class StepTable:
    """Steps that carry a time, real ones of the target, in groups.

    Attributes
    ----------
    phases
        Names of the phases that ``phase`` counts through; ``unknown`` where a source names none.
    phase, requested, bucket, role
        The groups, arrays of one length.
    stalled
        Whether the steps of a group took far longer than others of their size; see
        :func:`stalls`.
    steps, time, compiling, tokens, context, again
        Sums by slice of time (rows, in order) and group (columns): steps, ns, ns of compiling and
        capturing inside them, tokens produced, tokens of context attended to, and rows computed
        again after a preemption (where rows are tokens).
    """

    phases: tuple[str, ...]
    phase: Ints
    requested: Ints
    bucket: Ints
    role: Ints
    stalled: Bools
    steps: Floats
    time: Floats
    compiling: Floats
    tokens: Floats
    context: Floats
    again: Floats

    @property
    def slices(self) -> int:
        """How many slices of time there are."""
        return len(self.steps)

    def sizes_of(self, draws: Floats) -> Floats:
        """Return how many steps of steady state are in each resample, for each there is."""
        steady = self.steps[:, self.role != START_UP].sum(axis=1)
        if not steady.sum():
            return np.ones(len(draws))
        sizes: Floats = draws @ steady / steady.sum()
        return sizes

    def without(self, role: int) -> StepTable:
        """Return the table without the steps of ``role``."""
        kept = self.role != role
        return replace(
            self,
            phase=self.phase[kept],
            requested=self.requested[kept],
            bucket=self.bucket[kept],
            role=self.role[kept],
            stalled=self.stalled[kept],
            steps=self.steps[:, kept],
            time=self.time[:, kept],
            compiling=self.compiling[:, kept],
            tokens=self.tokens[:, kept],
            context=self.context[:, kept],
            again=self.again[:, kept],
        )

    def drawn(self, draws: Floats) -> Sums:
        """Return the sums of resamples that have each slice so many times: [resamples, slices].

        Start-up happens once, and is no sample of anything: its steps keep their share of all.
        """
        once = self.role == START_UP
        share = self.sizes_of(draws)[:, None]

        def of(sums: Floats) -> Floats:
            if not sums.any():  # the measures that most traces lack
                return np.zeros((len(draws), sums.shape[1]))
            total = resampled(draws, sums)
            total[:, once] = share * sums[:, once].sum(axis=0)
            return total

        at_start = self.tokens[:, once].sum()
        return Sums(
            of(self.steps),
            of(self.time),
            of(self.compiling),
            of(self.context),
            of(self.again),
            draws @ self.tokens[:, ~once].sum(axis=1) + share[:, 0] * at_start,
        )


def step_table(summary: Summary, which: pl.Expr | None = None) -> StepTable:
    """Return the timed steps of ``summary`` (those of ``which``, over its slices).

    Where no step says when it began, all are in one slice.
    """
    steady = pl.col("period") == STEADY
    outcome = pl.col("outcome")
    role = (
        pl.when(~steady)
        .then(START_UP)
        .when(outcome.is_in(["exact", "padded"]) & (pl.col("bucket") > 0))
        .then(REPLAY)
        .when(outcome == "fallback")
        .then(FALLBACK)
        .when(outcome == "capture")
        .then(CAPTURE)
        .when(outcome == "eager")
        .then(EAGER)
        .otherwise(UNKNOWN)
    )
    # A step that captured and does not say how long did nothing else worth telling.
    whole = (outcome == "capture") & (pl.col("compile_ns") == 0)
    rows = _timed(summary, pl.lit(True) if which is None else which)
    phases = tuple(sorted(rows["phase"].unique()))
    rows = rows.select(
        "slice",
        pl.col("phase").cast(pl.Enum(phases)).to_physical().cast(pl.Int64),
        pl.col("requested", "bucket").fill_null(NO_SIZE).cast(pl.Int64),
        role.cast(pl.Int64).alias("role"),
        pl.col("octave").fill_null(0).cast(pl.Int64),
        "dur_ns_weight",
        "dur_ns",
        pl.when(whole).then("dur_ns").otherwise("compile_ns").alias("compiling"),
        "tokens_out",
        "kv_tokens",
        pl.when(pl.col("axis") == "tokens").then("recomputed").otherwise(0).alias("again"),
    )
    found = rows.group_by(*_KEYS, "octave").agg(pl.col("dur_ns_weight").sum().alias("steps"))
    late = stalls(*found.select(*_KEYS, "octave", "steps").to_numpy().T)
    found = found.with_columns(pl.Series("stalled", late, pl.Boolean))
    keys = (*_KEYS, "stalled")
    groups = found.select(keys).unique().sort(keys).with_row_index("group")
    placed = found.join(groups, on=keys).drop("steps", "stalled")
    rows = rows.join(placed, on=(*_KEYS, "octave"))
    times, at = np.unique(rows["slice"].to_numpy(), return_inverse=True)
    cell = at * len(groups) + rows["group"].to_numpy()
    shape = len(times), len(groups)
    sums = (
        np.bincount(cell, rows[name].to_numpy(), shape[0] * shape[1]).reshape(shape)
        for name in _SUMS
    )
    return StepTable(phases, *(groups[name].to_numpy() for name in keys), *sums)


def _timed(summary: Summary, which: pl.Expr) -> pl.DataFrame:
    steps = which & is_real() & is_target() & (pl.col("dur_ns_weight") > 0)
    named = pl.col("phase").fill_null("unknown")
    in_slices = summary.slices.lazy().filter(steps).select(*_READ, named).collect()
    if len(in_slices):
        return in_slices
    return summary.groups.filter(steps).with_columns(
        pl.lit(0, pl.Int64).alias("slice"), pl.lit(None, pl.Int16).alias("octave"), named
    )


def stalls(
    phase: Ints, requested: Ints, bucket: Ints, role: Ints, octave: Ints, steps: Ints
) -> Bools:
    """Return which groups of steps took far longer than others of their size.

    Groups are of one phase, size, role and octave (floor of log2 ns a step). A pause of the host
    or a profiler that starts says nothing of what a row costs, and of sums a few such steps would
    make something else. So the median of the steps of a size, which they do not move, is what the
    size takes (of a size with few steps, what the next one with more tells: more rows take longer,
    and at most in proportion; where no size has more, the median of all is that of their median
    size), and steps two octaves above it are told apart; where they are more than a twentieth of
    the steps of a phase, and not one alone, they are how it runs.
    """
    late = np.zeros(len(phase), dtype=bool)
    for kind, sizes in ((REPLAY, bucket), (FALLBACK, requested), (EAGER, requested)):
        for code in np.unique(phase):
            mine = (phase == code) & (role == kind) & (sizes > 0)
            if not mine.any():
                continue
            usual = _usual(sizes[mine], octave[mine], steps[mine])
            far = octave[mine] >= usual + _FAR
            if steps[mine][far].sum() <= max(_RARE * steps[mine].sum(), 1):
                late[np.flatnonzero(mine)[far]] = True
    return late


def _usual(sizes: Ints, octave: Ints, steps: Ints) -> Floats:
    """Return the octave that steps of each group's size usually fall into, inf where not told."""
    size, place = np.unique(sizes, return_inverse=True)
    order = np.lexsort((octave, place))
    count = np.bincount(place, steps)
    so_far = np.cumsum(steps[order]) - np.cumsum(np.append(0, count))[place[order]]
    reached = so_far * 2 >= count[place[order]]  # the median is the first that does
    medians = np.full(len(size), np.inf)
    np.minimum.at(medians, place[order][reached], octave[order][reached].astype(np.float64))
    known = count >= _ENOUGH
    others, tells = size[known], medians[known]
    if not known.any():
        if steps.sum() < _FEWEST:
            return np.full(len(sizes), np.inf)
        others, tells = (np.array([_median(each, steps)]) for each in (sizes, octave))
    above = np.searchsorted(others, size)
    below = np.maximum(above - 1, 0)
    from_below = np.ceil(tells[below] + np.log2(np.maximum(size / others[below], 1.0)))
    borrowed = np.minimum(np.where(above > 0, from_below, np.inf), np.append(tells, np.inf)[above])
    usual: Floats = np.where(known, medians, borrowed)[place]
    return usual


def _median(values: Ints, steps: Ints) -> float:
    order = np.argsort(values)
    so_far = np.cumsum(steps[order])
    return float(values[order][np.searchsorted(so_far * 2, so_far[-1])])
