"""What padding and fallback cost, in ns, measured on the trace's own timeline.

The price of a size is the mean time of the steps that replayed it, made monotone in the bucket
(isotonic regression), interpolated between buckets and extended by the slope beyond them. A padded
step is charged ``time(bucket) - time(requested)``, a fallback step ``its own time -
time(requested)``: both against exact replay of the same batch, the best that was achievable.
Intervals are by block bootstrap over time, prices measured anew in every resample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphdiag.bootstrap import RESAMPLES, block_draws, percentiles
from graphdiag.curves import Curve, cost_of_context, fit_curve
from graphdiag.metrics import ELIGIBLE, has_sizes, is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.summary import Summary

Floats = NDArray[np.float64]

MIN_BINS = 8
"""Fewest time bins an interval is drawn from; with fewer there is none."""

_ROW_KEYS = ("phase", "outcome", "bucket")


@dataclass(frozen=True)
class Rows:
    """Steady, real steps of the target in groups of one phase, outcome and bucket.

    Arrays of one length: codes of ``phase``, words of ``outcome``, ``bucket`` (NaN where eager),
    and sums ``weight`` (steps), ``requested`` (rows), ``time`` (ns), ``timed`` (steps with a time).
    """

    phase: NDArray[np.int64]
    outcome: NDArray[np.object_]
    bucket: Floats
    weight: Floats
    requested: Floats
    time: Floats
    timed: Floats


@dataclass(frozen=True)
class Prices:
    """Totals in ns over steady steps; None where there is nothing to price, or no price.

    ``unpriced_padded`` and ``unpriced_fallback`` count the steps the totals leave out, because
    their phase has no curve or they carry no time.
    """

    padding: float | None
    fallback: float | None
    unpriced_padded: int
    unpriced_fallback: int


@dataclass(frozen=True)
class CostModel:
    """The prices of a trace, with 95 % intervals, and what they were measured with.

    Attributes
    ----------
    curves
        Replay curve by phase name (``unknown`` where the source names none).
    row_curves
        The same without what the context of the steps costs, where that was recorded: padded rows
        attend to none, so that prices are measured with these.
    prices, padding_ci95, fallback_ci95
        Totals in ns over steady steps, and their intervals.
    mean_step_ns
        Mean time of a steady step that graphs should have served, None where none is timed.
    """

    curves: dict[str, Curve]
    row_curves: dict[str, Curve]
    prices: Prices
    padding_ci95: tuple[float, float] | None
    fallback_ci95: tuple[float, float] | None
    mean_step_ns: float | None


def measure_costs(summary: Summary) -> CostModel:
    """Measure the curves and prices of ``summary``."""
    steady = is_real() & is_target() & (pl.col("period") == STEADY)
    whole = summary.groups.filter(steady & pl.col("outcome").is_in(ELIGIBLE))
    sized = has_sizes() | ((pl.col("outcome") == "fallback") & (pl.col("requested") > 0))
    groups = whole.filter(sized).select(
        pl.col("phase").fill_null("unknown"),
        "outcome",
        "bucket",
        "weight",
        (pl.col("requested") * pl.col("weight")).alias("requested_rows"),
        "dur_ns",
        "dur_ns_weight",
        "kv_tokens",
    )
    phases = sorted(groups["phase"].unique())
    rows = _rows(groups, phases)
    timed = float(rows.timed.sum())
    unsized = whole.filter(~sized)
    if not timed:
        return CostModel({}, {}, _with_unpriced(price(rows, {}), unsized), None, None, None)
    tokens = context_costs(groups)
    bare = _rows(without_context(groups, tokens), phases)
    curves, row_curves = _curves(rows, len(phases)), _curves(bare, len(phases))
    prices = _with_unpriced(price(bare, row_curves), unsized)
    # The timeline does not tell requested sizes apart, so that it cannot leave some rows out.
    padding_ci, fallback_ci = (
        _intervals(summary, phases, tokens) if len(whole) == len(groups) else (None, None)
    )
    return CostModel(
        curves={phases[code]: curve for code, curve in curves.items()},
        row_curves={phases[code]: curve for code, curve in row_curves.items()},
        prices=prices,
        padding_ci95=padding_ci if prices.padding is not None else None,
        fallback_ci95=fallback_ci if prices.fallback is not None else None,
        mean_step_ns=float(rows.time.sum()) / timed,
    )


def price(rows: Rows, curves: dict[int, Curve]) -> Prices:
    """Price ``rows`` with ``curves`` (by phase code); what has no price is counted, not guessed."""
    padding = fallback = 0.0
    steps = {"padded": 0.0, "fallback": 0.0}
    unpriced = {"padded": 0.0, "fallback": 0.0}
    for code in np.unique(rows.phase):
        curve = curves.get(int(code))
        mine = (rows.phase == code) & (rows.weight > 0)
        padded = mine & (rows.outcome == "padded")
        eager = mine & (rows.outcome == "fallback")
        steps["padded"] += rows.weight[padded].sum()
        steps["fallback"] += rows.weight[eager].sum()
        if curve is None:
            unpriced["padded"] += rows.weight[padded].sum()
            unpriced["fallback"] += rows.weight[eager].sum()
            continue
        padding += _padding(rows, padded, curve)
        fallback += _fallback(rows, eager, curve)
        unpriced["fallback"] += (rows.weight[eager] - rows.timed[eager]).sum()
    return Prices(
        padding=padding if unpriced["padded"] < steps["padded"] else None,
        fallback=fallback if unpriced["fallback"] < steps["fallback"] else None,
        unpriced_padded=int(unpriced["padded"]),
        unpriced_fallback=int(unpriced["fallback"]),
    )


def _with_unpriced(prices: Prices, unsized: pl.DataFrame) -> Prices:
    """Count the steps whose sizes are unknown among those that have no price."""
    steps = dict(unsized.group_by("outcome").agg(pl.col("weight").sum()).iter_rows())
    return replace(
        prices,
        unpriced_padded=prices.unpriced_padded + steps.get("padded", 0),
        unpriced_fallback=prices.unpriced_fallback + steps.get("fallback", 0),
    )


def _padding(rows: Rows, which: NDArray[np.bool_], curve: Curve) -> float:
    weight = rows.weight[which]
    wanted = rows.requested[which] / weight
    return float((weight * (curve.at(rows.bucket[which]) - curve.at(wanted))).sum())


def _fallback(rows: Rows, which: NDArray[np.bool_], curve: Curve) -> float:
    wanted = rows.requested[which] / rows.weight[which]
    return float((rows.time[which] - rows.timed[which] * curve.at(wanted)).sum())


def _rows(table: pl.DataFrame, phases: list[str]) -> Rows:
    return Rows(
        phase=np.array([phases.index(word) for word in table["phase"]], dtype=np.int64),
        outcome=np.array(table["outcome"].to_list(), dtype=object),
        bucket=table["bucket"].cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        weight=table["weight"].cast(pl.Float64).to_numpy(),
        requested=table["requested_rows"].cast(pl.Float64).fill_null(0.0).to_numpy(),
        time=table["dur_ns"].cast(pl.Float64).to_numpy(),
        timed=table["dur_ns_weight"].cast(pl.Float64).to_numpy(),
    )


def _curves(rows: Rows, phases: int) -> dict[int, Curve]:
    curves = {}
    replayed = np.isin(rows.outcome, ("exact", "padded")) & (rows.timed > 0)
    for code in range(phases):
        mine = replayed & (rows.phase == code)
        sizes, index = np.unique(rows.bucket[mine], return_inverse=True)
        timed: Floats = np.bincount(index, rows.timed[mine], len(sizes)).astype(np.float64)
        time: Floats = np.bincount(index, rows.time[mine], len(sizes)).astype(np.float64)
        curve = fit_curve(sizes, time / timed, timed)
        if curve is not None:
            curves[code] = curve
    return curves


def _intervals(
    summary: Summary, phases: list[str], tokens: dict[str, float]
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Resample blocks of neighbouring time bins and price each resample with its own curves."""
    steady = is_real() & is_target() & (pl.col("period") == STEADY)
    table = (
        summary.timeline.filter(steady & pl.col("outcome").is_in(ELIGIBLE))
        .with_columns(pl.col("phase").fill_null("unknown"))
        .group_by("bin", *_ROW_KEYS)
        .agg(pl.col("weight", "requested_rows", "dur_ns", "dur_ns_weight", "kv_tokens").sum())
    )
    table = without_context(table, tokens)
    bins = table["bin"].unique().sort()
    if len(bins) < MIN_BINS:
        return None, None
    keys = table.select(_ROW_KEYS).unique(maintain_order=True).with_row_index("key")
    placed = table.join(keys, on=_ROW_KEYS, nulls_equal=True).with_columns(
        pl.col("bin").rank("dense").cast(pl.Int64) - 1
    )
    sums = np.zeros((4, len(bins), len(keys)))
    where = placed["bin"].to_numpy(), placed["key"].to_numpy()
    for layer, name in enumerate(("weight", "requested_rows", "dur_ns", "dur_ns_weight")):
        sums[layer][where] = placed[name].cast(pl.Float64).fill_null(0.0).to_numpy()
    template = _rows(
        keys.with_columns(
            weight=pl.lit(0), requested_rows=pl.lit(0), dur_ns=pl.lit(0), dur_ns_weight=pl.lit(0)
        ),
        phases,
    )
    found = _resample(sums, template, len(phases))
    return _percentiles([p.padding for p in found]), _percentiles([p.fallback for p in found])


def _resample(sums: NDArray[np.float64], template: Rows, phases: int) -> list[Prices]:
    found = []
    for times_drawn in block_draws(sums.shape[1]):
        weight, requested, time, timed = times_drawn @ sums
        rows = Rows(
            template.phase, template.outcome, template.bucket, weight, requested, time, timed
        )
        found.append(price(rows, _curves(rows, phases)))
    return found


def context_costs(groups: pl.DataFrame) -> dict[str, float]:
    """Return what a token of context costs in each phase where that is identifiable, ns.

    ``groups`` are replays with their phase filled in; see
    :func:`graphdiag.curves.cost_of_context`.
    """
    timed = groups.filter(pl.col("bucket").is_not_null() & (pl.col("dur_ns_weight") > 0))
    costs = {}
    for (phase,), replays in timed.group_by("phase", maintain_order=True):
        columns = replays.select("dur_ns", "dur_ns_weight", "kv_tokens").cast(pl.Float64)
        costs[str(phase)] = cost_of_context(
            replays["bucket"].cast(pl.Int64).to_numpy(), *(one.to_numpy() for one in columns)
        )
    return {phase: cost for phase, cost in costs.items() if cost}


def without_context(table: pl.DataFrame, tokens: dict[str, float]) -> pl.DataFrame:
    """Return ``table`` with what its context costs taken out of its times."""
    if not tokens:
        return table
    cost = pl.col("phase").replace_strict(tokens, default=0.0, return_dtype=pl.Float64)
    return table.with_columns(pl.col("dur_ns") - cost * pl.col("kv_tokens").fill_null(0))


def _percentiles(values: list[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    if len(known) < RESAMPLES * 0.9:
        return None
    return percentiles(np.array(known))
