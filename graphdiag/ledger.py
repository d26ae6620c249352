"""Where the time of the steps went: every ns of every step is charged to exactly one thing.

A step is held against exact replay of the same batch, the best that was achievable (against eager
execution at its size where a phase has no graphs). What it took beyond that is charged by what it
did: a padded step ``time(bucket) - time(requested)``, a fallback its time less ``time(requested)``,
a step that captured or compiled likewise, and what it spent compiling. A step that stalled, far
longer than others of its size, is charged what they take, and the rest is stall. What is left is
residual: measured replays less the curve fitted to them, which comes to nothing over a phase.

Where the context of the steps is recorded, what a token of it costs is measured within buckets and
told apart: requested rows attend to their context and padded rows to none, so that the cost of a
row would else be overstated.

All of it is done for many resamples of the steps at once; the first is the sample itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from graphdiag.manycurves import Curves, costs_of_context, fit_curves
from graphdiag.steptable import (
    CAPTURE,
    EAGER,
    FALLBACK,
    NO_SIZE,
    REPLAY,
    ROLES,
    START_UP,
    UNKNOWN,
    Bools,
    Floats,
    Ints,
    StepTable,
    Sums,
)

_MODELLED = np.isin(np.arange(ROLES), (REPLAY, EAGER, UNKNOWN))
"""Roles whose time the curve of their phase explains."""
_RAN_EAGER = np.isin(np.arange(ROLES), (EAGER, FALLBACK))


@dataclass(frozen=True)
class PhaseModel:
    """What a step of one phase takes, in ns.

    Attributes
    ----------
    replay
        Replay by bucket; None where no bucket was replayed and timed in steady state.
    buckets
        Buckets that replayed, ascending.
    has_slope
        Whether what a row costs is known: a phase that replayed one bucket alone does not tell.
    token_ns
        What a token of context costs, told apart from both; 0 where not identifiable: [resamples].
    context_per_row
        Tokens of context a requested row had on average: [resamples].
    fit_eager
        Measures :attr:`eager`; None where there is none.
    """

    replay: Curves | None
    buckets: Ints
    has_slope: bool
    token_ns: Floats
    context_per_row: Floats
    fit_eager: Callable[[], Curves] | None

    @cached_property
    def eager(self) -> Curves | None:
        """Eager execution by requested size; None where no such step was timed.

        Fitted when it is first asked for, since a phase that replays seldom needs it.
        """
        return None if self.fit_eager is None else self.fit_eager()

    @property
    def replays(self) -> bool:
        """Whether the phase has graphs."""
        return self.replay is not None

    def ideal(self, sizes: Floats) -> Floats | None:
        """Best achievable step time at each size: exact replay, or eager without graphs."""
        best = self.replay or self.eager
        return None if best is None else best.at(sizes)


@dataclass(frozen=True)
class Ledger:
    """Where the time of a trace's steps went, in each resample.

    Attributes
    ----------
    models
        By phase name.
    phase, requested
        The strata: pairs of phase (index into ``phases``) and requested size.
    phases
        Names of the phases.
    steps
        Timed steps of each stratum: [resamples, strata].
    ideal, padding, fallback
        Mean ns a step of each stratum: best achievable without its context, and charged to padded
        rows and to fallback; 0 in a resample without its steps.
    context
        Mean tokens of context a step of each stratum; see :meth:`attending`.
    compile, shapes, stalls, residual
        Totals in ns over all steps: start-up inside the window, capturing and compiling in steady
        state (both also where it fell between steps), what stalled steps took beyond the others,
        and what the curve does not explain: [resamples].
    tokens
        Tokens produced by all steps; 0 where not recorded: [resamples].
    unpriced_padded, unpriced_fallback
        Steps of the sample that padded or fell back and are not charged, because there is no replay
        to hold them against or no slope.
    stalled
        Steps of the sample that stalled.
    padding_at_start
        The part of all padding that fell into start-up, ns: [resamples].
    memory
        What rows computed again after preemptions cost, ns: part of what is achievable with the
        same traffic, and the price of too small a cache: [resamples].
    """

    models: dict[str, PhaseModel]
    phases: tuple[str, ...]
    phase: Ints
    requested: Ints
    steps: Floats
    ideal: Floats
    padding: Floats
    fallback: Floats
    context: Floats
    compile: Floats
    shapes: Floats
    stalls: Floats
    residual: Floats
    tokens: Floats
    unpriced_padded: float
    unpriced_fallback: float
    stalled: float
    padding_at_start: Floats
    memory: Floats

    @property
    def totals(self) -> Floats:
        """Timed steps in each resample."""
        total: Floats = self.steps.sum(axis=1)
        return total

    @property
    def total_steps(self) -> float:
        """Timed steps of the sample."""
        return float(self.totals[0])

    def attending(self) -> Floats:
        """Mean ns a step of each stratum that its context costs: [resamples, strata]."""
        costs = np.stack([self.models[name].token_ns for name in self.phases], axis=1)
        attending: Floats = costs[:, self.phase] * self.context
        return attending

    @property
    def means(self) -> Floats:
        """Mean time a step in ns: all charges and what was achievable, over the steps."""
        by_stratum = self.steps * (self.ideal + self.attending() + self.padding + self.fallback)
        others = self.compile + self.shapes + self.stalls + self.residual
        means: Floats = (by_stratum.sum(axis=1) + others) / self.totals
        return means

    @property
    def mean(self) -> float:
        """Mean time a step of the sample in ns."""
        return float(self.means[0])


@dataclass(frozen=True)
class Outside:
    """Compile and capture work that fell between the steps: of start-up, and later, in ns."""

    start_up: float = 0.0
    later: float = 0.0


NO_WORK = Outside()


def ledger(
    table: StepTable,
    slope: dict[str, float] | None = None,
    work: Outside = NO_WORK,
    draws: Floats | None = None,
) -> Ledger:
    """Charge the time of all steps in ``table``; slices are added up.

    ``slope`` gives ns a row by phase where a phase replayed one bucket alone. Nobody was served
    during ``work`` between the steps, and it is charged too.
    ``draws`` are how often each resample has each slice, the sample itself first; by default it is
    alone.
    """
    if draws is None:
        draws = np.ones((1, table.slices))
    sums = table.drawn(draws)
    compiling = np.minimum(sums.compiling, sums.time)
    hints = slope or {}
    models = {
        name: _model(table, sums, sums.time - compiling, code, hints.get(name))
        for code, name in enumerate(table.phases)
    }
    tokens = np.stack([models[name].token_ns for name in table.phases], axis=1)[:, table.phase]
    books = _Books(table, sums, sums.time - tokens * sums.context, compiling, models)
    width = int(table.requested.max(initial=0)) + 1
    pairs = table.phase * width + table.requested
    order = np.argsort(pairs, kind="stable")
    strata, starts = np.unique(pairs[order], return_index=True)

    def by_stratum(values: Floats) -> Floats:
        return np.add.reduceat(values[:, order], starts, axis=1)

    count = by_stratum(sums.steps)

    def mean(values: Floats) -> Floats:
        total = by_stratum(values)
        return np.divide(total, count, out=np.zeros_like(total), where=count > 0)

    size = table.sizes_of(draws)
    start_up = table.role == START_UP
    noise = np.minimum(books.compile, 0.0)  # no start-up takes less time than none
    return Ledger(
        models=models,
        phases=table.phases,
        phase=strata // width,
        requested=strata % width,
        steps=count,
        ideal=mean(books.ideal),
        padding=mean(books.padding),
        fallback=mean(books.fallback),
        context=mean(sums.context),
        compile=books.compile - noise + size * work.start_up,
        shapes=books.shapes + size * work.later,
        stalls=books.stalls,
        residual=books.residual + noise,
        tokens=sums.tokens,
        unpriced_padded=books.unpriced_padded,
        unpriced_fallback=books.unpriced_fallback,
        stalled=float(sums.steps[0, table.stalled].sum()),
        padding_at_start=books.padding[:, start_up].sum(axis=1),
        memory=_memory(table, sums, models),
    )


def _memory(table: StepTable, sums: Sums, models: dict[str, PhaseModel]) -> Floats:
    """Return the rows that were computed again, each at what a row of its phase costs."""
    total = np.zeros(len(sums.steps))
    for code, name in enumerate(table.phases):
        model = models[name]
        curves = model.replay if model.has_slope and model.replay is not None else model.eager
        if curves is not None:
            total += curves.slope * sums.again[:, table.phase == code].sum(axis=1)
    return total


class _Books:
    """The charges in ns: of every group, [resamples, groups], or of all where no more is asked."""

    def __init__(
        self,
        table: StepTable,
        sums: Sums,
        time: Floats,
        compiling: Floats,
        models: dict[str, PhaseModel],
    ) -> None:
        steps, role, phase = sums.steps, table.role, table.phase
        requested, bucket = table.requested, table.bucket
        own = time - compiling
        self.ideal, at_bucket = np.zeros_like(steps), np.zeros_like(steps)
        usual = own.copy()
        priced = np.zeros(len(role), dtype=bool)
        executed = np.isin(role, (REPLAY, START_UP)) & (bucket > 0)
        for code, name in enumerate(table.phases):
            model, mine = models[name], phase == code
            sized = mine & (requested != NO_SIZE)
            ideal = model.ideal(requested[sized].astype(np.float64))
            if ideal is not None:
                self.ideal[:, sized] = steps[:, sized] * ideal
                priced |= sized
            if model.replay is not None:
                ran = mine & executed
                at = model.replay.at(bucket[ran].astype(np.float64))
                at_bucket[:, ran] = steps[:, ran] * at
                if not model.has_slope:
                    # One bucket says nothing of other sizes: its time is all there is to achieve,
                    # and what first executions of other buckets take beyond it is not known.
                    alone = ran & np.isin(bucket, model.buckets)
                    self.ideal[:, alone] = at_bucket[:, alone]
                    priced &= ~(ran & ~alone)
                late = mine & (role == REPLAY) & table.stalled
                usual[:, late] = at_bucket[:, late]
            late = mine & _RAN_EAGER[role] & table.stalled
            if late.any() and model.eager is not None:
                usual[:, late] = steps[:, late] * model.eager.at(requested[late].astype(np.float64))
        unpriced = ~priced | (role == UNKNOWN)
        self.ideal[:, unpriced] = own[:, unpriced]
        no_slope = np.array([not models[name].has_slope for name in table.phases])[phase]
        no_replay = np.array([not models[name].replays for name in table.phases])[phase]
        padded = executed & priced & (bucket > requested) & ~no_replay & ~no_slope
        fell_back, start_up = role == FALLBACK, role == START_UP
        excess = usual - self.ideal
        self.padding = np.where(padded, at_bucket - self.ideal, 0.0)
        self.fallback = np.where(fell_back & ~no_replay, excess, 0.0)
        late = table.stalled
        best = self.ideal[:, start_up] + self.padding[:, start_up]
        self.compile = (time[:, start_up] - best).sum(axis=1)
        captured = excess[:, role == CAPTURE].sum(axis=1)
        self.shapes = captured + compiling[:, ~start_up].sum(axis=1)
        self.stalls = (own[:, late] - usual[:, late]).sum(axis=1)
        rest = _MODELLED[role] | (fell_back & no_replay)
        self.residual = np.where(rest, excess - self.padding, 0.0).sum(axis=1)
        unknown = (role == REPLAY) & (bucket > requested) & no_slope
        self.unpriced_padded = float(steps[0, unknown].sum())
        self.unpriced_fallback = float(steps[0, fell_back & no_replay].sum())


def _model(
    table: StepTable, sums: Sums, time: Floats, code: int, slope: float | None
) -> PhaseModel:
    mine = (table.phase == code) & (sums.steps[0] > 0)
    replay, buckets, alone = None, np.empty(0, np.int64), False
    token = np.zeros(len(time))
    rows = mine & (table.role == REPLAY) & ~table.stalled
    if rows.any():
        token = costs_of_context(
            table.bucket[rows], time[:, rows], sums.steps[:, rows], sums.context[:, rows]
        )
        replay = _curves(table.bucket, rows, time, sums, token, slope)
        buckets = replay.sizes.astype(np.int64)
        alone = len(buckets) == 1
    fit_eager = None
    rows = mine & _RAN_EAGER[table.role] & (table.requested != NO_SIZE) & ~table.stalled
    if rows.any():
        fit_eager = partial(_curves, table.requested, rows, time, sums, token, slope)
        if replay is not None and alone and slope is None:
            eager = fit_eager()
            if len(eager.sizes) > 1:
                replay, alone = Curves(replay.sizes, replay.times, eager.slope), False
    requested = (sums.steps * table.requested)[:, mine].sum(axis=1)
    context = sums.context[:, mine].sum(axis=1)
    return PhaseModel(
        replay,
        buckets,
        has_slope=not alone or slope is not None,
        token_ns=token,
        context_per_row=np.divide(
            context, requested, out=np.zeros_like(context), where=requested > 0
        ),
        fit_eager=fit_eager,
    )


def _curves(
    sizes: Ints, rows: Bools, time: Floats, sums: Sums, token: Floats, slope: float | None
) -> Curves:
    """Fit the time by size of ``rows``, without what their context costs."""
    order = np.argsort(sizes[rows], kind="stable")
    size, starts = np.unique(sizes[rows][order], return_index=True)
    bare = time[:, rows] - token[:, None] * sums.context[:, rows]
    spent, steps = (
        np.add.reduceat(each[:, order], starts, axis=1) for each in (bare, sums.steps[:, rows])
    )
    return fit_curves(size.astype(np.float64), spent, steps, slope)
