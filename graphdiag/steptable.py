"""The timed steps of a trace as arrays: by slice of time, phase, size, bucket and what they did."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

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

_SUMS = ("dur_ns_weight", "dur_ns", "compiling", "tokens_out", "kv_tokens", "again")
_FAR = 2
"""Octaves by which a stalled step took longer than the median of its size."""
_RARE = 0.05
"""Largest share of a phase's steps that stalls can be: what happens oftener is how it runs."""
_ENOUGH = 20
"""Fewest steps whose median tells what a size takes."""


@dataclass(frozen=True)
class Sums:
    """Sums over the steps of each group in each resample, arrays of [resamples, groups].

    ``steps``, ``time`` and ``compiling`` (ns), ``tokens`` produced, tokens of ``context``, and rows
    computed ``again``.
    """

    steps: Floats
    time: Floats
    compiling: Floats
    tokens: Floats
    context: Floats
    again: Floats


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
            total: Floats = draws @ sums
            total[:, once] = share * sums[:, once].sum(axis=0)
            return total

        return Sums(
            of(self.steps),
            of(self.time),
            of(self.compiling),
            of(self.tokens),
            of(self.context),
            of(self.again),
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
    keys = ("phase", "requested", "bucket", "role", "octave")
    table = (
        _timed(summary, pl.lit(True) if which is None else which)
        .with_columns(
            pl.col("phase").fill_null("unknown"),
            pl.col("requested").fill_null(NO_SIZE).cast(pl.Int64),
            pl.col("bucket").fill_null(NO_SIZE).cast(pl.Int64),
            role.cast(pl.Int64).alias("role"),
            pl.col("octave").fill_null(0).cast(pl.Int64),
            pl.when(whole).then("dur_ns").otherwise("compile_ns").alias("compiling"),
            pl.when(pl.col("axis") == "tokens").then("recomputed").otherwise(0).alias("again"),
        )
        .group_by("slice", *keys)
        .agg(pl.col(_SUMS).sum())
    )
    phases = tuple(sorted(table["phase"].unique()))
    found = table.group_by(keys).agg(pl.col("dur_ns_weight").sum().alias("steps"))
    told = [found[name].to_numpy() for name in (*keys[1:], "steps")]
    late = stalls(_codes(found["phase"], phases), *told)
    found = found.with_columns(pl.Series("stalled", late, pl.Boolean))
    keys = (*keys[:-1], "stalled")
    groups = found.select(keys).unique().sort(keys).with_row_index("group")
    times = table["slice"].unique().sort()
    placed = (
        table.join(found.drop("steps"), on=(*keys[:-1], "octave"))
        .group_by("slice", *keys)
        .agg(pl.col(_SUMS).sum())
        .join(groups, on=keys)
    )
    where = (
        np.searchsorted(times.to_numpy(), placed["slice"].to_numpy()),
        placed["group"].to_numpy(),
    )
    sums = np.zeros((len(_SUMS), len(times), len(groups)))
    for layer, name in zip(sums, _SUMS, strict=True):
        layer[where] = placed[name].cast(pl.Float64).to_numpy()
    return StepTable(
        phases,
        _codes(groups["phase"], phases),
        groups["requested"].to_numpy(),
        groups["bucket"].to_numpy(),
        groups["role"].to_numpy(),
        groups["stalled"].to_numpy(),
        *sums,
    )


def _timed(summary: Summary, which: pl.Expr) -> pl.DataFrame:
    steps = which & is_real() & is_target() & (pl.col("dur_ns_weight") > 0)
    in_slices = summary.slices.filter(steps)
    if len(in_slices):
        return in_slices
    return summary.groups.filter(steps).with_columns(
        pl.lit(0, pl.Int64).alias("slice"), pl.lit(None, pl.Int16).alias("octave")
    )


def _codes(names: pl.Series, phases: tuple[str, ...]) -> Ints:
    return np.array([phases.index(name) for name in names], dtype=np.int64)


def stalls(
    phase: Ints, requested: Ints, bucket: Ints, role: Ints, octave: Ints, steps: Ints
) -> Bools:
    """Return which groups of steps took far longer than others of their size.

    Groups are of one phase, size, role and octave (floor of log2 ns a step). A pause of the host
    or a profiler that starts says nothing of what a row costs, and of sums a few such steps would
    make something else. So the median of the steps of a size, which they do not move, is what the
    size takes (of a size with few steps, what the next one with more tells: more rows take longer,
    and at most in proportion), and steps two octaves above it are told apart; where they are more
    than a twentieth of the steps of a phase, they are how it runs.
    """
    late = np.zeros(len(phase), dtype=bool)
    for kind, sizes in ((REPLAY, bucket), (FALLBACK, requested), (EAGER, requested)):
        for code in np.unique(phase):
            mine = (phase == code) & (role == kind) & (sizes > 0)
            if not mine.any():
                continue
            usual = _usual(sizes[mine], octave[mine], steps[mine])
            far = octave[mine] >= usual + _FAR
            if steps[mine][far].sum() <= _RARE * steps[mine].sum():
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
    if not known.any():
        return np.full(len(sizes), np.inf)
    others, tells = size[known], medians[known]
    above = np.searchsorted(others, size)
    below = np.maximum(above - 1, 0)
    from_below = np.ceil(tells[below] + np.log2(np.maximum(size / others[below], 1.0)))
    borrowed = np.minimum(np.where(above > 0, from_below, np.inf), np.append(tells, np.inf)[above])
    usual: Floats = np.where(known, medians, borrowed)[place]
    return usual
