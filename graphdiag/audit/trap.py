"""Audit of the fallback trap: eager steps that keep the batch above the ceiling by themselves.

Eager steps are slower, so requests stay longer, so the batch is larger, so it stays above the
largest captured size and runs eager. The trap is shown, not guessed, by one comparison: the engine
is *trapped* when a batch at or below the ceiling, replaying, would deliver at least the rows per
second that the eager batch above it delivers. It then serves no more load than graphs could; it
only entered the wrong one of two stable states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.curves import Curve
from graphdiag.evidence import Evidence
from graphdiag.findings import AuditFinding
from graphdiag.metrics import ELIGIBLE, is_real, is_target

_MOSTLY = 0.5
"""Share of a bin's steps that must be fallback for the bin to count as eager."""
_LEAST_SHARE = 0.1
"""Least share of the trace's bins a trap must last."""
_LEAST_BINS = 10
"""Least bins it must last."""
_BURST = 1.1
"""The burst is over once the batch is within this factor of the level it then holds."""


@dataclass(frozen=True)
class _Timeline:
    """One phase by time bin; arrays of one length. ``level`` and ``queued`` are a step's means."""

    start_ns: NDArray[np.int64]
    eager_share: NDArray[np.float64]
    level: NDArray[np.float64]
    step_ns: NDArray[np.float64]
    queued: NDArray[np.float64]


def fallback_trap(evidence: Evidence) -> list[AuditFinding]:
    """Find fallback that outlives the burst that started it, in each run and phase with a curve."""
    if not evidence.captured:
        return []
    findings = []
    for run in evidence.summary.timeline["run"].unique(maintain_order=True):
        for phase, curve in evidence.costs.curves.items():
            finding = _trap_in(evidence, run, phase, curve)
            if finding is not None:
                findings.append(finding)
    return findings


def size_out_of_trap(findings: Iterable[AuditFinding]) -> int | None:
    """Return the size that would have kept the engine out of a trap; None where there is none."""
    sizes = [int(each.data["size_needed"]) for each in findings if each.kind == "fallback_trap"]
    return max(sizes, default=None)


def _trap_in(evidence: Evidence, run: str | None, phase: str, curve: Curve) -> AuditFinding | None:
    time = _timeline(evidence, run, phase)
    top = evidence.captured[-1]
    eager = (time.eager_share >= _MOSTLY) & (time.level > top)
    first, last = _longest_run(eager)
    bins = last - first
    if bins < max(_LEAST_BINS, _LEAST_SHARE * len(eager)) or first == 0:
        return None  # too short, or eager from the start: nothing shows another state
    held = slice(first + bins // 2, last)
    level, step_ns = float(np.median(time.level[held])), float(np.median(time.step_ns[held]))
    if not step_ns or np.nanmean(time.queued[held]) >= 1:
        return None  # untimed, or requests wait: the load itself keeps the batch large
    would_be = _batch_that_delivers(curve, top, level / step_ns)
    if would_be is None:
        return None
    peak = first + int(np.argmax(time.level[first:last]))
    calm = np.flatnonzero(time.level[peak:last] <= _BURST * level)
    over = peak + int(calm[0]) if len(calm) else peak
    held_s = float(time.start_ns[last - 1] - time.start_ns[over]) / 1e9
    if held_s <= 0:
        return None
    onset = datetime.fromtimestamp(int(time.start_ns[first]) / 1e9, tz=timezone.utc)
    needed = _largest_fallback(evidence, run, phase)
    where = "to the end of the trace" if last == len(eager) else "before it ended"
    sentence = (
        f"Fallback trap: at {onset:%H:%M:%S} UTC a burst lifted the batch above the largest "
        f"captured size {top}; {held_s:,.0f} s after the burst was over ({where}) the batch still "
        f"held at about {level:.0f}, eager at {step_ns / 1e6:.2f} ms a step. Replaying, a batch of "
        f"{would_be} would deliver the same rows per second. A captured size of {needed} would "
        "have kept the engine out of it."
    )
    data = {
        "phase": phase,
        "onset": onset.isoformat(),
        "burst_peak": needed,
        "outlived_burst_s": held_s,
        "level": level,
        "eager_step_ms": step_ns / 1e6,
        "batch_if_replayed": would_be,
        "largest_bucket": top,
        "size_needed": needed,
    }
    return AuditFinding(kind="fallback_trap", severity="error", sentence=sentence, data=data)


def _of(run: str | None, phase: str) -> pl.Expr:
    same_phase = pl.col("phase").fill_null("unknown") == phase
    return is_real() & is_target() & pl.col("run").eq_missing(pl.lit(run)) & same_phase


def _largest_fallback(evidence: Evidence, run: str | None, phase: str) -> int:
    eager = evidence.summary.groups.filter(_of(run, phase) & (pl.col("outcome") == "fallback"))
    largest = eager["requested"].max()
    return largest if isinstance(largest, int) else 0


def _timeline(evidence: Evidence, run: str | None, phase: str) -> _Timeline:
    summary = evidence.summary
    eager = pl.when(pl.col("outcome") == "fallback").then(pl.col("weight")).otherwise(0)
    table = (
        summary.timeline.filter(_of(run, phase) & pl.col("outcome").is_in(ELIGIBLE))
        .group_by("bin")
        .agg(
            (eager.sum() / pl.col("weight").sum()).alias("eager_share"),
            (pl.col("requested_rows").sum() / pl.col("weight").sum()).alias("level"),
            (pl.col("dur_ns").sum() / pl.col("dur_ns_weight").sum()).alias("step_ns"),
            (pl.col("queued").sum() / pl.col("queued_weight").sum()).alias("queued"),
        )
        .sort("bin")
    )
    clean = pl.col("step_ns", "queued").fill_nan(0.0).fill_null(0.0)
    table = table.with_columns(clean)
    return _Timeline(
        start_ns=table["bin"].to_numpy() << summary.shift,
        eager_share=table["eager_share"].to_numpy(),
        level=table["level"].to_numpy(),
        step_ns=table["step_ns"].to_numpy(),
        queued=table["queued"].to_numpy(),
    )


def _longest_run(flags: NDArray[np.bool_]) -> tuple[int, int]:
    """Return (first, past-the-last) of the longest run of True; (0, 0) where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest])


def _batch_that_delivers(curve: Curve, top: int, rows_per_ns: float) -> int | None:
    """Return the smallest replayed batch up to ``top`` that delivers ``rows_per_ns``, else None."""
    batches = np.arange(1, top + 1, dtype=np.float64)
    enough = np.flatnonzero(batches >= rows_per_ns * curve.at(batches))
    return int(batches[enough[0]]) if len(enough) else None
