"""What a replay and an eager step cost, for choosing buckets: in ns where the trace has times.

The step time of a bucket is measured as in :mod:`graphdiag.costs`, but phases that share one list
of buckets share one curve: each phase has its own offset, and all the same cost of a row. Offsets
cancel when sets are compared; what is left is the cost of padding, measured on all steps. An eager
step costs what replay of the same size would, and the launch saving that was measured at its size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphdiag.bootstrap import LEAST_STRETCHES, RESAMPLES, block_draws, percentiles
from graphdiag.buckets.problem import Floats
from graphdiag.curves import Curve, Measured, fit_shared_curve, isotonic
from graphdiag.manycurves import costs_of_context
from graphdiag.steptable import EAGER, FALLBACK, REPLAY, START_UP, StepTable

_EAGER = (EAGER, FALLBACK)

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
    table: StepTable, baseline: StepTable | None = None, *, resample: bool = True
) -> TimePrices | None:
    """Measure prices on the steady steps of ``table``; None without a curve.

    A curve needs two buckets that were replayed and timed. Eager steps are those that fell back,
    and all of ``baseline``, those of the same engine with its graphs off.
    ``resample`` measures them on each resample of the trace's slices of time too. Where context is
    recorded its cost is told apart: padded rows attend to none. Steps that stalled tell nothing.
    """
    table = table.without(START_UP)
    if not table.steps.sum():
        return None
    tokens = _context_costs(table)
    beside = None
    if baseline is not None:
        off = baseline.without(START_UP)
        if not off.context[:, np.isin(off.role, _EAGER)].sum():
            tokens = np.zeros(len(table.phases))  # what is in its times must stay in the others
        costs = dict(zip(table.phases, tokens, strict=True))
        theirs = np.array([costs.get(name, 0.0) for name in off.phases])
        beside = _Sizes(off, _EAGER, theirs).drawn(np.ones((1, off.slices)))[0]
    replayed, fell_back = (_Sizes(table, roles, tokens) for roles in ((REPLAY,), (FALLBACK,)))
    draws = np.ones((1, table.slices))
    if resample and table.slices >= LEAST_STRETCHES:
        draws = np.concatenate([draws, block_draws(table.slices)])
    found = [
        _prices(replays, eager, beside)
        for replays, eager in zip(replayed.drawn(draws), fell_back.drawn(draws), strict=True)
    ]
    prices = found[0]
    if prices is None:
        return None
    prices = replace(prices, row_context=_row_context(table, tokens))
    known = tuple(one for one in found[1:] if one is not None)
    if len(known) <= 0.9 * RESAMPLES:
        return prices
    return replace(prices, resampled=known, slices=table.slices)


def _context_costs(table: StepTable) -> Floats:
    """Return what a token of context costs in each phase, ns; 0 where not identifiable."""
    costs = np.zeros(len(table.phases))
    for code in range(len(costs)):
        mine = (table.phase == code) & (table.role == REPLAY) & ~table.stalled
        if mine.any():
            time, steps, context = (
                sums[:, mine].sum(axis=0, keepdims=True)
                for sums in (table.time, table.steps, table.context)
            )
            costs[code] = costs_of_context(table.bucket[mine], time, steps, context)[0]
    return costs


def _row_context(table: StepTable, tokens: Floats) -> float:
    """Return what the context of a requested row costs on average, ns."""
    replays = table.role == REPLAY
    rows = float((table.steps.sum(axis=0) * table.requested)[replays].sum())
    spent = float((table.context.sum(axis=0) * tokens[table.phase])[replays].sum())
    return spent / rows if rows else 0.0


class _Sizes:
    """Step times by phase and size of the steps of some roles, from which resamples are measured.

    ``tokens`` is what a token of context costs in each phase, ns, and is taken out.
    """

    def __init__(self, table: StepTable, roles: tuple[int, ...], tokens: Floats) -> None:
        size = table.bucket if roles == (REPLAY,) else table.requested
        mine = np.isin(table.role, roles) & ~table.stalled & (size > 0)
        bare = table.time - tokens[table.phase] * table.context
        width = int(size.max(initial=0)) + 1
        pairs = (table.phase * width + size)[mine]
        order = np.argsort(pairs, kind="stable")
        keys, starts = np.unique(pairs[order], return_index=True)
        self._phases = [table.phases[code] for code in keys // width]
        self._sizes = (keys % width).astype(np.float64)
        self._steps, self._time = (
            np.add.reduceat(sums[:, mine][:, order], starts, axis=1)
            if len(keys)
            else np.zeros((table.slices, 0))
            for sums in (table.steps, bare)
        )

    def drawn(self, draws: Floats) -> list[Measured]:
        """Measure the resamples that have each slice so many times: [resamples, slices]."""
        return [
            Measured(
                [phase for phase, there in zip(self._phases, seen, strict=True) if there],
                self._sizes[seen],
                time[seen] / steps[seen],
                steps[seen],
            )
            for steps, time in zip(draws @ self._steps, draws @ self._time, strict=True)
            for seen in [steps > 0]
        ]


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
