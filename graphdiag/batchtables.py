"""The tables of a summary for one batch of rows: grouped by everything discrete, and summed."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from graphdiag.insteps import told_by_events
from graphdiag.limits import LIMIT_KEYS, steps_at
from graphdiag.periods import Periods
from graphdiag.requesttimes import BINS_PER_OCTAVE, REQUEST_KEYS, request_sums, time_bin
from graphdiag.requesttimes import COLUMNS as REQUEST_COLUMNS
from graphdiag.sums import sum_by, sum_of, weight_of

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
    "octave",
)
DURATION_KEYS = ("run", "runner", "phase", "kind", "outcome", "bucket", "period", "duration_bin")

TABLES = ("groups", "timeline", "slices", "durations", "limited", "requests")
"""The tables of sums of a :class:`graphdiag.summary.Summary`."""

TABLE_KEYS = (GROUP_KEYS, TIME_KEYS, SLICE_KEYS, DURATION_KEYS, LIMIT_KEYS, REQUEST_KEYS)
"""What the rows of each of them are told apart by."""

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
    "recomputed",
)
_TIMED = ("dur_ns", "host_ns", "gpu_ns", "gpu_span_ns")
"""Measures that may be missing on some rows, whose own weight is kept for a true mean."""

_READ = tuple(
    dict.fromkeys(
        [
            *("event", "t_ns", "step", "weight", "queued", *REQUEST_COLUMNS),
            *(*GROUP_KEYS[:-1], *_SUMMED),  # period is computed
        ]
    )
)
_SLICED = (
    *("weight", "dur_ns", "dur_ns_weight", "dur_sq"),
    *("compile_ns", "tokens_out", "kv_tokens", "preempted", "recomputed"),
)
_SIZED = ("requested", "bucket", "mode", "outcome", "reason", "artifact")
"""What a step with impossible sizes says nothing of."""

_SECOND_NS = 1_000_000_000
_WEIGHT = pl.col("weight")
_END = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)


def columns_read(periods: Periods) -> tuple[str, ...]:
    """Return the columns that :func:`batch_tables` needs."""
    return (*_READ, "pid") if periods.limits or periods.in_steps else _READ


def batch_tables(
    batch: pl.DataFrame, periods: Periods, shift: int, slice_shift: int, more: Sequence[str] = ()
) -> tuple[pl.DataFrame, ...]:
    """Return the :data:`TABLES` of a batch of rows.

    ``more`` are keys beside each table's own, columns of ``batch`` that tell its rows apart.
    """
    steps = _prepared(batch, periods)
    steps = steps.with_columns(
        (pl.col("t_ns") // (1 << shift)).alias("bin"),
        (pl.col("t_ns") // (1 << slice_shift)).alias("slice"),
    )
    in_slices = _in_slices(steps, more)
    return (
        _groups(in_slices, more),
        _timeline(steps, more),
        _slices(in_slices, more),
        _durations(steps, more),
        steps_at(periods.limits, steps),
        request_sums(batch, periods, slice_shift),
    )


def limited_steps(batch: pl.DataFrame, periods: Periods) -> pl.DataFrame:
    """Return the table ``limited`` of a batch alone."""
    return steps_at(periods.limits, _prepared(batch, periods))


def _prepared(batch: pl.DataFrame, periods: Periods) -> pl.DataFrame:
    """Return the batch's steps with their period, no weight left out and no impossible size."""
    is_step = batch["event"] == "step"
    steps = batch if is_step.all() else batch.filter(is_step)
    steps = steps.with_columns(
        periods.code().alias("period"),
        _WEIGHT.fill_null(1),
        _impossible().alias("impossible"),
        (pl.col("dur_ns") < 0).alias("backwards"),
        _set_back().alias("set_back"),
    )
    if steps["backwards"].any():
        steps = steps.with_columns(pl.when(pl.col("dur_ns") >= 0).then("dur_ns").alias("dur_ns"))
    steps = told_by_events(steps, periods.in_steps)
    bins = time_bin(_each(pl.col("dur_ns"))).alias("duration_bin")
    steps = steps.with_columns(bins).with_columns(
        (pl.col("duration_bin") // BINS_PER_OCTAVE).alias("octave")
    )
    if steps["compiled"].max():
        # Compiling is told apart: a step that took long for it did not stall.
        own = _each(pl.col("dur_ns") - pl.col("compile_ns").fill_null(0))
        steps = steps.with_columns((time_bin(own) // BINS_PER_OCTAVE).alias("octave"))
    if steps["impossible"].any():
        kept = pl.when(~pl.col("impossible"))
        steps = steps.with_columns(kept.then(name).alias(name) for name in _SIZED)
    return steps


def _each(ns: pl.Expr) -> pl.Expr:
    """Expression: ns of one step, of rows that may stand for several; null where there are none."""
    return pl.when((ns > 0) & (_WEIGHT > 0)).then(ns / _WEIGHT)


def _set_back() -> pl.Expr:
    """Expression: a step that began over a second before the one recorded before it."""
    next_one = pl.col("step") == pl.col("step").shift(1) + 1
    earlier = pl.col("t_ns") < pl.col("t_ns").shift(1) - _SECOND_NS
    same = [pl.col(key).eq_missing(pl.col(key).shift(1)) for key in ("run", "rank", "runner")]
    return next_one & earlier & pl.all_horizontal(same)


def _impossible() -> pl.Expr:
    """Expression: a step with sizes that none has, as the recorder refuses them.

    A trace made elsewhere may hold such: a size below 1 (a filler or warm-up may be of 0), or a
    bucket smaller than what was requested where the step replayed.
    """
    requested, bucket = pl.col("requested"), pl.col("bucket")
    eager = pl.col("outcome").is_in(["fallback", "eager", "capture"]).fill_null(False)
    below = (requested < 0) | ((requested == 0) & pl.col("kind").is_null()) | (bucket < 1)
    return (below | ((bucket < requested) & ~eager)).fill_null(False)


def _in_slices(steps: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    """Return the batch by slice and group.

    A batch mostly lies within one slice, and steps of one group in few octaves of time, so that
    those cost no grouping of their own.
    """
    time = pl.col("dur_ns").cast(pl.Float64)
    measures = {"weight": _WEIGHT, "rows": pl.lit(1, pl.Int64)}
    measures |= {name: sum_of(name) for name in _SUMMED}
    measures |= {f"{name}_weight": weight_of(steps, name) for name in _TIMED}
    measures |= {
        "dur_sq": pl.when(_WEIGHT > 0).then(time * time / _WEIGHT),
        "compile_steps": pl.col("compiled"),
        **{name: _of_which(steps, name) for name in ("impossible", "backwards", "set_back")},
        "t_min": pl.col("t_ns"),
        "t_max": _END,
    }
    return sum_by(steps, _keys(("slice", "octave", *GROUP_KEYS), more), measures)


def _of_which(steps: pl.DataFrame, name: str) -> pl.Expr:
    """Expression: the weight of a step of which something is true."""
    # Of none in most batches, and a number that is the same on every row costs nothing.
    return _WEIGHT * pl.col(name) if steps[name].any() else pl.lit(0, pl.Int64)


def _keys(own: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*own, *more)))


def _groups(in_slices: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    keys = _keys(GROUP_KEYS, more)
    apart = ("slice", "octave", *keys)
    measures = {name: pl.col(name) for name in in_slices.columns if name not in apart}
    return sum_by(in_slices, keys, measures)


def _slices(in_slices: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    measures = {name: pl.col(name) for name in _SLICED}
    return sum_by(in_slices.drop_nulls("slice"), _keys(SLICE_KEYS, more), measures)


def _timeline(steps: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    measures = {
        "weight": _WEIGHT,
        "requested_rows": pl.col("requested") * _WEIGHT,
        "dur_ns": sum_of("dur_ns"),
        "dur_ns_weight": weight_of(steps, "dur_ns"),
        "tokens_out": sum_of("tokens_out"),
        "kv_tokens": sum_of("kv_tokens"),
        "queued": pl.col("queued") * _WEIGHT,
        "queued_weight": weight_of(steps, "queued"),
    }
    return sum_by(steps, _keys(TIME_KEYS, more), measures).drop_nulls("bin")


def _durations(steps: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    table = sum_by(steps, _keys(DURATION_KEYS, more), {"weight": _WEIGHT})
    return table.drop_nulls("duration_bin")
