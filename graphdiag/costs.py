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

from graphdiag.metrics import ELIGIBLE, has_sizes, is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.summary import Summary

Floats = NDArray[np.float64]

RESAMPLES = 200
_SEED = 20_240_607
MIN_BINS = 8
"""Fewest time bins an interval is drawn from; with fewer there is none."""

_ROW_KEYS = ("phase", "outcome", "bucket")


@dataclass(frozen=True)
class Curve:
    """Replay time by bucket in one phase.

    Attributes
    ----------
    sizes
        Buckets that were replayed and timed, ascending; at least two.
    times
        Their mean step times in ns, monotone.
    slope
        ns an added row, by least squares weighted with steps; never negative.
    """

    sizes: Floats
    times: Floats
    slope: float

    def at(self, rows: Floats) -> Floats:
        """Return the step time (ns) of exact replay at each of ``rows`` rows."""
        inside = np.interp(rows, self.sizes, self.times)
        above = np.maximum(rows - self.sizes[-1], 0.0) * self.slope
        below = np.maximum(self.sizes[0] - rows, 0.0) * self.slope
        step: Floats = np.maximum(inside + above - below, 0.0)
        return step


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
    prices, padding_ci95, fallback_ci95
        Totals in ns over steady steps, and their intervals.
    mean_step_ns
        Mean time of a steady step that graphs should have served, None where none is timed.
    """

    curves: dict[str, Curve]
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
    )
    phases = sorted(groups["phase"].unique())
    rows = _rows(groups, phases)
    timed = float(rows.timed.sum())
    unsized = whole.filter(~sized)
    if not timed:
        return CostModel({}, _with_unpriced(price(rows, {}), unsized), None, None, None)
    curves = _curves(rows, len(phases))
    prices = _with_unpriced(price(rows, curves), unsized)
    # The timeline does not tell requested sizes apart, so that it cannot leave some rows out.
    padding_ci, fallback_ci = (
        _intervals(summary, phases) if len(whole) == len(groups) else (None, None)
    )
    return CostModel(
        curves={phases[code]: curve for code, curve in curves.items()},
        prices=prices,
        padding_ci95=padding_ci if prices.padding is not None else None,
        fallback_ci95=fallback_ci if prices.fallback is not None else None,
        mean_step_ns=float(rows.time.sum()) / timed,
    )


def fit_curve(sizes: Floats, times: Floats, weights: Floats) -> Curve | None:
    """Fit a monotone replay curve; None with fewer than two sizes.

    Isotonic least squares after Barlow et al. (1972), as scipy.optimize.isotonic_regression has it.
    """
    if len(sizes) < 2:
        return None
    from scipy.optimize import isotonic_regression  # only traces with times pay for the import

    order = np.argsort(sizes)
    sizes, times, weights = sizes[order], times[order], weights[order]
    monotone = np.asarray(isotonic_regression(times, weights=weights).x, dtype=np.float64)
    centred = sizes - np.average(sizes, weights=weights)
    slope = float((weights * centred * times).sum() / (weights * centred**2).sum())
    return Curve(sizes, monotone, max(slope, 0.0))


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
    summary: Summary, phases: list[str]
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Resample blocks of neighbouring time bins and price each resample with its own curves."""
    steady = is_real() & is_target() & (pl.col("period") == STEADY)
    table = (
        summary.timeline.filter(steady & pl.col("outcome").is_in(ELIGIBLE))
        .with_columns(pl.col("phase").fill_null("unknown"))
        .group_by("bin", *_ROW_KEYS)
        .agg(pl.col("weight", "requested_rows", "dur_ns", "dur_ns_weight").sum())
    )
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
    random = np.random.default_rng(_SEED)
    bins = sums.shape[1]
    block = max(1, round(bins ** (1 / 3)))
    found = []
    for _ in range(RESAMPLES):
        starts = random.integers(0, bins, size=-(-bins // block))
        drawn = ((starts[:, None] + np.arange(block)) % bins).ravel()[:bins]
        times_drawn = np.bincount(drawn, minlength=bins).astype(np.float64)
        weight, requested, time, timed = times_drawn @ sums
        rows = Rows(
            template.phase, template.outcome, template.bucket, weight, requested, time, timed
        )
        found.append(price(rows, _curves(rows, phases)))
    return found


def _percentiles(values: list[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    if len(known) < RESAMPLES * 0.9:
        return None
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)
