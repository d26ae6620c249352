"""The timed steps of a trace as arrays: by slice of time, phase, size, bucket and what they did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.metrics import is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.summary import Summary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REPLAY, FALLBACK, EAGER, CAPTURE, START_UP, UNKNOWN = range(6)
"""What a step did: replayed a known bucket, fell back, ran eager by configuration, captured or
compiled in steady state, ran before steady state, or replayed a bucket that is not told."""

ROLES = 6
NO_SIZE = 0
"""``requested`` or ``bucket`` of a step that has none."""

_SUMS = ("dur_ns_weight", "dur_ns", "compile_ns", "tokens_out", "kv_tokens")


@dataclass(frozen=True)
class StepTable:
    """Steps that carry a time, real ones of the target, in groups.

    Attributes
    ----------
    phases
        Names of the phases that ``phase`` counts through; ``unknown`` where a source names none.
    phase, requested, bucket, role
        The groups, arrays of one length.
    steps, time, compiling, tokens, context
        Sums by slice of time (rows, in order) and group (columns): steps, ns, ns of compiling and
        capturing inside them, tokens produced, tokens of context attended to.
    """

    phases: tuple[str, ...]
    phase: Ints
    requested: Ints
    bucket: Ints
    role: Ints
    steps: Floats
    time: Floats
    compiling: Floats
    tokens: Floats
    context: Floats

    @property
    def slices(self) -> int:
        """How many slices of time there are."""
        return len(self.steps)

    def size_of(self, times: Floats) -> float:
        """Return how many steps of steady state are drawn so, for each there is."""
        steady = self.steps[:, self.role != START_UP].sum(axis=1)
        return float((times * steady).sum() / steady.sum()) if steady.sum() else 1.0

    def without(self, role: int) -> StepTable:
        """Return the table without the steps of ``role``."""
        kept = self.role != role
        return StepTable(
            self.phases,
            *(groups[kept] for groups in (self.phase, self.requested, self.bucket, self.role)),
            *(
                sums[:, kept]
                for sums in (self.steps, self.time, self.compiling, self.tokens, self.context)
            ),
        )

    def drawn(self, times: Floats) -> StepTable:
        """Return the table with each slice taken so many ``times``, as one slice.

        Start-up happens once, and is no sample of anything: its steps keep their share of all.
        """
        once = self.role == START_UP
        share = self.size_of(times)

        def of(sums: Floats) -> Floats:
            total: Floats = times @ sums
            total[once] = share * sums[:, once].sum(axis=0)
            return total[None, :]

        return StepTable(
            self.phases,
            self.phase,
            self.requested,
            self.bucket,
            self.role,
            of(self.steps),
            of(self.time),
            of(self.compiling),
            of(self.tokens),
            of(self.context),
        )


def step_table(summary: Summary) -> StepTable:
    """Return the timed steps of ``summary``; those without a start are in the first slice."""
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
    keys = ("phase", "requested", "bucket", "role")
    table = (
        summary.slices.filter(is_real() & is_target() & (pl.col("dur_ns_weight") > 0))
        .with_columns(
            pl.col("phase").fill_null("unknown"),
            pl.col("requested").fill_null(NO_SIZE).cast(pl.Int64),
            pl.col("bucket").fill_null(NO_SIZE).cast(pl.Int64),
            role.cast(pl.Int64).alias("role"),
        )
        .group_by("slice", *keys)
        .agg(pl.col(_SUMS).sum())
    )
    groups = table.select(keys).unique().sort(keys).with_row_index("group")
    times = table["slice"].unique().sort()
    placed = table.join(groups, on=keys)
    where = (
        np.searchsorted(times.to_numpy(), placed["slice"].to_numpy()),
        placed["group"].to_numpy(),
    )
    sums = np.zeros((len(_SUMS), len(times), len(groups)))
    for layer, name in zip(sums, _SUMS, strict=True):
        layer[where] = placed[name].cast(pl.Float64).to_numpy()
    phases = tuple(sorted(groups["phase"].unique()))
    code = np.array([phases.index(name) for name in groups["phase"]], dtype=np.int64)
    return StepTable(
        phases,
        code,
        groups["requested"].to_numpy(),
        groups["bucket"].to_numpy(),
        groups["role"].to_numpy(),
        *sums,
    )
