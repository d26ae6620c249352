"""What a replay and an eager step cost, for choosing buckets: in ns where the trace has times.

The step time of a bucket is measured as in :mod:`graphdiag.costs`, but phases that share one list
of buckets share one curve: each phase has its own offset, and all the same cost of a row. Offsets
cancel when sets are compared; what is left is the cost of padding, measured on all steps. An eager
step costs what replay of the same size would, and the launch saving that was measured at its size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from graphdiag.bootstrap import RESAMPLES, block_draws, percentiles
from graphdiag.buckets.problem import Floats
from graphdiag.costs import MIN_BINS, context_costs, without_context
from graphdiag.curves import Curve, Measured, fit_shared_curve, isotonic
from graphdiag.metrics import REPLAYED, is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.summary import Summary

EAGER_ROWS = 2.0
"""Rows an eager step costs for each it was asked for, where there are no times: its own once more.

Without times the price of falling back is not identifiable. This one makes a bucket worth having
as soon as it pads less than double, which is what engines' own doubling ladders assume.
"""

_TIE = 1e-3


class RowPrices:
    """Prices in rows: what every histogram can tell."""

    def replay(self, buckets: Floats) -> Floats:
        """Rows executed."""
        return buckets

    def eager(self, sizes: Floats) -> Floats:
        """Rows an eager step is taken to cost."""
        return EAGER_ROWS * sizes


@dataclass(frozen=True)
class TimePrices:
    """Prices in ns a step, measured.

    Attributes
    ----------
    curve
        Step time of replay by bucket, averaged over the phases as they occurred.
    saved_sizes, saved
        Launch saving in ns (eager minus replay of the same size) where eager steps were timed;
        interpolated between, and the nearest beyond. Empty where none were: then it is taken as 0,
        and sets that would run replayed sizes eager must not be compared.
    row_context
        What a requested row's context costs, ns: the same in every bucket, and so in no choice.
    resampled
        The prices measured on each resample of the trace's time; none with too little time.
    slices
        Slices of time that were resampled.
    """

    curve: Curve
    saved_sizes: Floats
    saved: Floats
    row_context: float = 0.0
    resampled: tuple[TimePrices, ...] = ()
    slices: int = 0

    @property
    def slope_ci95(self) -> tuple[float, float] | None:
        """95 % interval of ``curve.slope``, ns an added row; None with too little time."""
        if not self.resampled:
            return None
        return percentiles(np.array([one.curve.slope for one in self.resampled]), self.slices)

    def replay(self, buckets: Floats) -> Floats:
        """Step time of replay, ns; never falls as buckets grow.

        Where rows are free, so that sets tie, fewer of them are still better: by 0.001 ns a row.
        """
        return self.curve.at(buckets) + _TIE * buckets

    def eager(self, sizes: Floats) -> Floats:
        """Step time of eager execution, ns."""
        return self.replay(sizes) + self.saving(sizes)

    def saving(self, sizes: Floats) -> Floats:
        """Launch saving of replay at each size, ns; 0 where no eager step was timed."""
        if not len(self.saved):
            return np.zeros(len(sizes))
        return np.interp(sizes, self.saved_sizes, self.saved)


def measure_prices(
    summary: Summary, steps: pl.Expr, baseline: Summary | None = None, *, resample: bool = True
) -> TimePrices | None:
    """Measure prices on the steady real steps that ``steps`` selects; None without a curve.

    A curve needs two buckets that were replayed and timed. Eager steps are those that fell back,
    and all timed steps of ``baseline``, a trace of the same engine with its graphs off.
    ``resample`` measures them on each resample of the trace's slices of time too. Where context is
    recorded its cost is told apart: padded rows attend to none.
    """
    steady = is_real() & is_target() & steps & (pl.col("period") == STEADY)
    replays = steady & pl.col("outcome").is_in(REPLAYED)
    eager = steady & (pl.col("outcome") == "fallback")
    served = _named(summary.groups.filter(replays))
    tokens = context_costs(served)
    beside: Measured | None = None
    if baseline is not None:
        off = steady & pl.col("outcome").is_in(["eager", "fallback"])
        without_graphs = _named(baseline.groups.filter(off))
        if not without_graphs["kv_tokens"].sum():
            tokens = {}  # what is in its times must stay in those they are held against
        beside = _measured(without_context(without_graphs, tokens), "requested")
    fallbacks = _named(summary.groups.filter(eager))
    prices = _prices(
        _measured(without_context(served, tokens), "bucket"),
        _measured(without_context(fallbacks, tokens), "requested"),
        beside,
    )
    if prices is None:
        return None
    prices = replace(prices, row_context=_row_context(served, tokens))
    if not resample:
        return prices
    replayed, fell_back = (
        _Slices(without_context(_named(summary.slices.filter(which)), tokens), size)
        for which, size in ((replays, "bucket"), (eager, "requested"))
    )
    slices = summary.slices.filter(steady)["slice"].unique().sort().to_list()
    if len(slices) < MIN_BINS:
        return prices
    drawn = [
        _prices(replayed.drawn(slices, draw), fell_back.drawn(slices, draw), beside)
        for draw in block_draws(len(slices))
    ]
    known = tuple(one for one in drawn if one is not None)
    if len(known) <= 0.9 * RESAMPLES:
        return prices
    return replace(prices, resampled=known, slices=len(slices))


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("phase").fill_null("unknown"))


def _row_context(served: pl.DataFrame, tokens: dict[str, float]) -> float:
    """Return what the context of a requested row costs on average, ns."""
    rows = int((served["requested"].fill_null(0) * served["weight"]).sum())
    spent = int(served["dur_ns"].sum()) - float(without_context(served, tokens)["dur_ns"].sum())
    return spent / rows if rows else 0.0


def _measured(rows: pl.DataFrame, size: str) -> Measured:
    table = _by_size(rows, size).group_by("phase", "size").agg(pl.col("time", "steps").sum())
    table = table.sort("phase", "size")
    steps = table["steps"].to_numpy()
    return Measured(
        table["phase"].to_list(), table["size"].to_numpy(), table["time"].to_numpy() / steps, steps
    )


def _by_size(rows: pl.DataFrame, size: str) -> pl.DataFrame:
    return rows.filter((pl.col(size) > 0) & (pl.col("dur_ns_weight") > 0)).with_columns(
        size=pl.col(size).cast(pl.Float64),
        time=pl.col("dur_ns").cast(pl.Float64),
        steps=pl.col("dur_ns_weight").cast(pl.Float64),
    )


class _Slices:
    """Step times by slice of time, from which a resample is measured."""

    def __init__(self, slices: pl.DataFrame, size: str) -> None:
        table = _by_size(slices, size)
        keys = table.select("phase", "size").unique(maintain_order=True).with_row_index("key")
        placed = table.join(keys, on=["phase", "size"])
        self._phases, self._sizes = keys["phase"].to_list(), keys["size"].to_numpy()
        self._slice, self._key = placed["slice"].to_numpy(), placed["key"].to_numpy()
        self._time, self._steps = placed["time"].to_numpy(), placed["steps"].to_numpy()

    def drawn(self, slices: list[int], times: Floats) -> Measured:
        """Measure the resample that has each of ``slices`` so many ``times``."""
        often = times[np.searchsorted(slices, self._slice)]
        count = len(self._sizes)
        steps = np.bincount(self._key, often * self._steps, count)
        time = np.bincount(self._key, often * self._time, count)
        seen = steps > 0
        return Measured(
            [phase for phase, there in zip(self._phases, seen, strict=True) if there],
            self._sizes[seen],
            time[seen] / steps[seen],
            steps[seen].astype(np.float64),
        )


def _prices(replays: Measured, eager: Measured, beside: Measured | None) -> TimePrices | None:
    fitted = fit_shared_curve(replays)
    if fitted is None:
        return None
    curve, offsets = fitted
    if beside is not None:
        eager = Measured(
            [*eager.phases, *beside.phases],
            np.concatenate([eager.sizes, beside.sizes]),
            np.concatenate([eager.times, beside.times]),
            np.concatenate([eager.steps, beside.steps]),
        )
    return TimePrices(curve, *_savings(eager, curve, offsets))


def _savings(eager: Measured, curve: Curve, offsets: dict[str, float]) -> tuple[Floats, Floats]:
    """Eager minus replay by size, over the phases of which both are known."""
    known = np.array([phase in offsets for phase in eager.phases], dtype=bool)
    if not known.any():
        return np.empty(0), np.empty(0)
    offset = np.array([offsets.get(phase, 0.0) for phase in eager.phases])
    steps = eager.steps[known]
    size, place = np.unique(eager.sizes[known], return_inverse=True)
    total: Floats = np.bincount(place, steps).astype(np.float64)
    flat = np.bincount(place, steps * (eager.times - offset)[known]) / total
    return size, isotonic(flat, total) - curve.at(size)
