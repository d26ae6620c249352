"""What the cases cost, measured on the trace's own timeline: prices, the ledger, their intervals.

The price of a size is the mean time of the steps that replayed it, made monotone in the bucket
(isotonic regression), interpolated between buckets and extended by the slope beyond them. A padded
step is charged ``time(bucket) - time(requested)``, a fallback step ``its own time -
time(requested)``: both against exact replay of the same batch, the best that was achievable (see
:mod:`graphdiag.ledger`). Intervals are by block bootstrap over time, prices measured anew in every
resample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.bootstrap import LEAST_STRETCHES, block_draws, half_width, in_parts, joined
from graphdiag.charges import amounts, step_ledger, work_outside
from graphdiag.curves import Curve
from graphdiag.findings import CaseName, StepLedger
from graphdiag.ledger import Ledger, PhaseModel, ledger
from graphdiag.metrics import has_sizes, is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.steptable import FALLBACK, REPLAY, Floats, StepTable, step_table
from graphdiag.summary import Summary
from graphdiag.work import Work, work_in_window

Interval = tuple[float, float] | None

_SLOPE = "slope of "


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
class RowCost:
    """What an added row costs in a phase: ns, with its 95 % interval."""

    ns: float
    ci95: Interval


@dataclass(frozen=True)
class CostModel:
    """The prices of a trace, with 95 % intervals, and what they were measured with.

    Attributes
    ----------
    curves
        Replay curve by phase name (``unknown`` where the source names none) where two buckets
        tell one, at the context that the steps had.
    rows
        What an added row costs in those phases, without its context: padded rows attend to none.
    prices, padding_ci95, fallback_ci95
        Totals in ns over steady steps, and their intervals.
    mean_step_ns
        Mean time of a steady step that graphs should have served and that did not stall, None
        where none is timed.
    ledger
        Where the mean step time goes; None where no step carries a time.
    work
        Compile and capture work that fell among the steps.
    table
        The timed steps that all of it was measured on.
    noise
        The cases whose price may be noise: the interval of what a padded row or a fallback step
        costs holds 0. (Those of the totals may hold 0 because few stretches of time had any.)
    """

    curves: dict[str, Curve]
    rows: dict[str, RowCost]
    prices: Prices
    padding_ci95: Interval
    fallback_ci95: Interval
    mean_step_ns: float | None
    ledger: StepLedger | None
    work: Work
    table: StepTable
    noise: frozenset[CaseName] = frozenset()


def measure_costs(summary: Summary, *, resample: bool = True) -> CostModel:
    """Measure the curves and prices of ``summary``; without ``resample`` there is no interval."""
    work = work_in_window(summary)
    steps = _steps(summary)
    table = step_table(summary)
    if not table.steps.sum():
        return CostModel({}, {}, _prices(steps, {}, None), None, None, None, None, work, table)
    alone = np.ones((1, table.slices))
    draws = alone
    if resample and table.slices >= LEAST_STRETCHES:
        drawn = block_draws(table.slices)
        draws = np.concatenate([alone, drawn[table.sizes_of(drawn) > 0]])
    outside = work_outside(summary, work)
    sample = ledger(table, work=outside)
    # Of the ledgers of all resamples their totals are kept alone: they are large.
    found = [
        _totals(ledger(table, work=outside, draws=part))
        for (part,) in in_parts((draws,), len(table.role))
    ]
    total = {name: joined([part[name] for part in found]) for name in found[0]}
    size = table.sizes_of(draws)  # a resample with more steps costs more, and not each of them
    padding, fallback = total["padding"] / size, total["fallback"] / size
    told = {
        name: model
        for name, model in sample.models.items()
        if model.replay is not None and len(model.buckets) > 1
    }
    prices = _prices(steps, sample.models, (float(padding[0]), float(fallback[0])))
    priced: dict[CaseName, float | None] = {"padding": prices.padding, "fallback": prices.fallback}

    def interval(values: Floats, figure: float | None) -> Interval:
        if len(values) == 1 or figure is None:
            return None
        half = half_width(values[1:], table.slices)
        return figure - half, figure + half

    def row_cost(slopes: Floats) -> RowCost:
        slope = float(slopes[0])
        return RowCost(slope, interval(slopes, slope))

    served = np.isin(table.role, (REPLAY, FALLBACK)) & ~table.stalled
    timed = float(table.steps[:, served].sum())
    return CostModel(
        curves={name: _with_context(model, table) for name, model in told.items()},
        rows={name: row_cost(total[_SLOPE + name]) for name in told},
        prices=prices,
        padding_ci95=interval(padding, prices.padding),
        fallback_ci95=interval(fallback, prices.fallback),
        mean_step_ns=float(table.time[:, served].sum()) / timed if timed else None,
        ledger=step_ledger(sample, total["amounts"], table.slices),
        work=work,
        table=table,
        noise=frozenset(
            case
            for case, price in priced.items()
            if price is not None and _may_be_noise(case, total[case], table, draws)
        ),
    )


def _totals(book: Ledger) -> dict[str, Floats]:
    """Return what is wanted of each resample: [resamples], and of ``amounts`` [resamples, names].

    ``padding`` and ``fallback`` are what they cost the steady steps, ns; ``slope of PHASE`` is what
    a row costs in replays, ns.
    """
    slopes = {
        _SLOPE + name: model.replay.slope
        for name, model in book.models.items()
        if model.replay is not None
    }
    return {
        "padding": (book.steps * book.padding).sum(axis=1) - book.padding_at_start,
        "fallback": (book.steps * book.fallback).sum(axis=1),
        "amounts": amounts(book),
        **slopes,
    }


def _may_be_noise(case: CaseName, total: Floats, table: StepTable, draws: Floats) -> bool:
    """Say whether the interval of what a padded row, or a fallback step, costs holds 0.

    ``total`` is what all of them cost, ns: [resamples]. Without resamples nothing tells.
    """
    replayed = table.role == REPLAY
    rows = np.where(replayed, np.maximum(table.bucket - table.requested, 0), 0)
    each = rows if case == "padding" else table.role == FALLBACK
    number = draws @ (table.steps * each).sum(axis=1)
    price = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    drawn = price[1:][number[1:] > 0]
    if len(drawn) < LEAST_STRETCHES:
        return False
    return bool(price[0] <= half_width(drawn, table.slices))


def _with_context(model: PhaseModel, table: StepTable) -> Curve:
    """Return the replay curve of a phase with what the context of its steps cost on average."""
    assert model.replay is not None
    bare = model.replay.of_sample()
    attending = float(model.token_ns[0] * model.context_per_row[0])
    return Curve(bare.sizes, bare.times + attending * bare.sizes, bare.slope + attending)


def _steps(summary: Summary) -> pl.DataFrame:
    """Return the steady steps that graphs should have served, by phase, outcome and sizes."""
    steady = is_real() & is_target() & (pl.col("period") == STEADY)
    whole = summary.groups.filter(steady & pl.col("outcome").is_in(["padded", "fallback"]))
    sized = has_sizes() | ((pl.col("outcome") == "fallback") & (pl.col("requested") > 0))
    return whole.select(
        pl.col("phase").fill_null("unknown"),
        "outcome",
        "requested",
        "bucket",
        "weight",
        (pl.col("weight") - pl.col("dur_ns_weight")).alias("untimed"),
        sized.alias("sized"),
    )


def _prices(
    steps: pl.DataFrame, models: dict[str, PhaseModel], totals: tuple[float, float] | None
) -> Prices:
    """Return the ``totals`` of padding and fallback, and count what they leave out.

    A padded step without a time is priced by its sizes; a fallback has no other price than its
    time.
    """
    replays = [name for name, model in models.items() if model.replays]
    sloped = [name for name in replays if models[name].has_slope]
    padded, fallback = (
        steps.filter(pl.col("outcome") == outcome) for outcome in ("padded", "fallback")
    )
    priced = padded.filter("sized", pl.col("phase").is_in(sloped))
    unpriced_padded = int(padded["weight"].sum()) - int(priced["weight"].sum())
    held = fallback.filter("sized", pl.col("phase").is_in(replays))
    unpriced_fallback = int(fallback["weight"].sum()) - int(
        (held["weight"] - held["untimed"]).sum()
    )
    padding = None
    if totals is not None and not priced.is_empty():
        padding = totals[0] + _untimed_padding(priced.filter(pl.col("untimed") > 0), models)
    return Prices(
        padding=padding,
        fallback=(
            totals[1]
            if totals is not None and unpriced_fallback < int(fallback["weight"].sum())
            else None
        ),
        unpriced_padded=unpriced_padded,
        unpriced_fallback=unpriced_fallback,
    )


def _untimed_padding(steps: pl.DataFrame, models: dict[str, PhaseModel]) -> float:
    total = 0.0
    for (phase,), rows in steps.group_by("phase"):
        curves = models[str(phase)].replay
        assert curves is not None  # its phase has a price
        at = curves.of_sample().at
        bucket, requested = (
            rows[name].cast(pl.Float64).to_numpy() for name in ("bucket", "requested")
        )
        total += float((rows["untimed"].to_numpy() * (at(bucket) - at(requested))).sum())
    return total
