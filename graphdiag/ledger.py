"""Where the time of the steps went: every ns of every step is charged to exactly one thing.

A step is held against exact replay of the same batch, the best that was achievable (against eager
execution at its size where a phase has no graphs). What it took beyond that is charged by what it
did: a padded step ``time(bucket) - time(requested)``, a fallback its time less ``time(requested)``,
a step that captured or compiled likewise, and what it spent compiling. What is left is residual:
measured replays less the curve fitted to them, which comes to nothing over a phase.

Where the context of the steps is recorded, what a token of it costs is measured within buckets and
told apart: requested rows attend to their context and padded rows to none, so that the cost of a
row would else be overstated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphdiag.curves import Curve, cost_of_context, fit_curve
from graphdiag.steptable import (
    CAPTURE,
    EAGER,
    FALLBACK,
    NO_SIZE,
    REPLAY,
    ROLES,
    START_UP,
    UNKNOWN,
    Floats,
    Ints,
    StepTable,
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
    eager
        Eager execution by requested size; None where no such step was timed.
    buckets
        Buckets that replayed, ascending.
    has_slope
        Whether what a row costs is known: a phase that replayed one bucket alone does not tell.
    token_ns
        What a token of context costs, told apart from both; 0 where not identifiable.
    context_per_row
        Tokens of context a requested row had on average.
    """

    replay: Curve | None
    eager: Curve | None
    buckets: Ints
    has_slope: bool
    token_ns: float = 0.0
    context_per_row: float = 0.0

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
    """Where the time of a trace's steps went.

    Attributes
    ----------
    models
        By phase name.
    phase, requested
        The strata: pairs of phase (index into ``phases``) and requested size.
    phases
        Names of the phases.
    steps
        Timed steps of each stratum.
    ideal, padding, fallback
        Mean ns a step of each stratum: best achievable without its context, and charged to padded
        rows and to fallback.
    context
        Mean tokens of context a step of each stratum; see :meth:`attending`.
    compile, shapes, residual
        Totals in ns over all steps: start-up inside the window, capturing and compiling in steady
        state (both also where it fell between steps), and what the curve does not explain.
    tokens
        Tokens produced by all steps; 0 where not recorded.
    unpriced_padded, unpriced_fallback
        Steps that padded or fell back and are not charged, because there is no replay to hold them
        against or no slope.
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
    compile: float
    shapes: float
    residual: float
    tokens: float
    unpriced_padded: float
    unpriced_fallback: float

    @property
    def total_steps(self) -> float:
        """Timed steps."""
        return float(self.steps.sum())

    def attending(self) -> Floats:
        """Mean ns a step of each stratum that its context costs."""
        costs = np.array([self.models[name].token_ns for name in self.phases])
        attending: Floats = costs[self.phase] * self.context
        return attending

    @property
    def mean(self) -> float:
        """Mean time a step in ns: all charges and what was achievable, over the steps."""
        by_stratum = self.steps * (self.ideal + self.attending() + self.padding + self.fallback)
        return float(
            (by_stratum.sum() + self.compile + self.shapes + self.residual) / self.total_steps
        )


@dataclass(frozen=True)
class Outside:
    """Compile and capture work on record among the steps: of start-up, and later, in ns."""

    start_up: float = 0.0
    later: float = 0.0

    def times(self, factor: float) -> Outside:
        """Return ``factor`` times as much work."""
        return Outside(self.start_up * factor, self.later * factor)


NO_WORK = Outside()


def ledger(
    table: StepTable, slope: dict[str, float] | None = None, work: Outside = NO_WORK
) -> Ledger:
    """Charge the time of all steps in ``table``; slices are added up.

    ``slope`` gives ns a row by phase where a phase replayed one bucket alone. What of ``work`` the
    steps do not carry fell between them: nobody was served meanwhile, and it is charged too.
    """
    steps, time = table.steps.sum(axis=0), table.time.sum(axis=0)
    compiling = np.minimum(table.compiling.sum(axis=0), time)
    context = table.context.sum(axis=0)
    hints = slope or {}
    models = {
        name: _model(table, steps, time - compiling, context, code, hints.get(name))
        for code, name in enumerate(table.phases)
    }
    attending = np.array([models[name].token_ns for name in table.phases])[table.phase] * context
    time = time - attending
    present = steps > 0
    width = int(table.requested.max(initial=0)) + 1
    pairs = table.phase[present] * width + table.requested[present]
    strata, place = np.unique(pairs, return_inverse=True)
    books = _Books(table, present, steps, time, compiling, models)

    def by_stratum(values: Floats) -> Floats:
        return np.bincount(place, values, len(strata)).astype(np.float64)

    count = by_stratum(steps[present])
    return Ledger(
        models=models,
        phases=table.phases,
        phase=strata // width,
        requested=strata % width,
        steps=count,
        ideal=by_stratum(books.ideal) / count,
        padding=by_stratum(books.padding) / count,
        fallback=by_stratum(books.fallback) / count,
        context=by_stratum(context[present]) / count,
        compile=_with(float(books.compile.sum()), work.start_up),
        shapes=_with(float(books.shapes.sum()), work.later),
        residual=float(books.residual.sum()),
        tokens=float(table.tokens.sum()),
        unpriced_padded=books.unpriced_padded,
        unpriced_fallback=books.unpriced_fallback,
    )


def _with(charged: float, work: float) -> float:
    """Add the part of ``work`` that the steps were not charged for already."""
    return charged + max(work - max(charged, 0.0), 0.0)


class _Books:
    """The charges of every group in ns, arrays over the groups that have steps."""

    def __init__(
        self,
        table: StepTable,
        present: np.ndarray,
        steps: Floats,
        time: Floats,
        compiling: Floats,
        models: dict[str, PhaseModel],
    ) -> None:
        steps, time, compiling = steps[present], time[present], compiling[present]
        role, phase = table.role[present], table.phase[present]
        requested, bucket = table.requested[present], table.bucket[present]
        self.ideal, at_bucket = np.zeros(len(steps)), np.zeros(len(steps))
        priced = np.zeros(len(steps), dtype=bool)
        own = time - compiling
        for code, name in enumerate(table.phases):
            model, mine = models[name], phase == code
            sized = mine & (requested != NO_SIZE)
            ideal = model.ideal(requested[sized].astype(np.float64))
            if ideal is not None:
                self.ideal[sized] = steps[sized] * ideal
                priced |= sized
            if model.replay is not None:
                replayed = mine & (role == REPLAY)
                at = model.replay.at(bucket[replayed].astype(np.float64))
                at_bucket[replayed] = steps[replayed] * at
                if not model.has_slope:
                    # One bucket says nothing of other sizes: its time is all there is to achieve.
                    self.ideal[replayed] = at_bucket[replayed]
        self.ideal[~priced | (role == UNKNOWN)] = own[~priced | (role == UNKNOWN)]
        no_slope = np.array([not models[name].has_slope for name in table.phases])[phase]
        no_replay = np.array([not models[name].replays for name in table.phases])[phase]
        padded = (role == REPLAY) & (bucket > requested)
        fell_back = role == FALLBACK
        excess = own - self.ideal
        self.padding = np.where(padded, at_bucket - self.ideal, 0.0)
        self.fallback = np.where(fell_back & ~no_replay, excess, 0.0)
        self.compile = np.where(role == START_UP, time - self.ideal, 0.0)
        self.shapes = np.where(role == CAPTURE, excess, 0.0)
        self.shapes += np.where(role == START_UP, 0.0, compiling)
        rest = _MODELLED[role] | (fell_back & no_replay)
        self.residual = np.where(rest, excess - self.padding, 0.0)
        self.unpriced_padded = float(steps[padded & no_slope].sum())
        self.unpriced_fallback = float(steps[fell_back & no_replay].sum())


def _model(
    table: StepTable,
    steps: Floats,
    time: Floats,
    context: Floats,
    code: int,
    slope: float | None,
) -> PhaseModel:
    mine = (table.phase == code) & (steps > 0)
    replay, buckets, alone, token = None, np.empty(0, np.int64), False, 0.0
    rows = mine & (table.role == REPLAY)
    if rows.any():
        token = cost_of_context(table.bucket[rows], time[rows], steps[rows], context[rows])
        time = time - token * context
        size, mean, count = _by_size(table.bucket[rows], time[rows], steps[rows])
        buckets = size.astype(np.int64)
        replay = fit_curve(size, mean, count)
        alone = replay is None
        if replay is None:
            replay = Curve(size, mean, slope or 0.0)
    eager = None
    rows = mine & _RAN_EAGER[table.role] & (table.requested != NO_SIZE)
    if rows.any():
        size, mean, count = _by_size(table.requested[rows], time[rows], steps[rows])
        eager = fit_curve(size, mean, count) or Curve(size, mean, slope or 0.0)
        if alone and slope is None and len(size) > 1:
            assert replay is not None
            replay, alone = Curve(replay.sizes, replay.times, eager.slope), False
    requested = float((steps * table.requested)[mine].sum())
    return PhaseModel(
        replay,
        eager,
        buckets,
        has_slope=not alone or slope is not None,
        token_ns=token,
        context_per_row=float(context[mine].sum()) / requested if requested else 0.0,
    )


def _by_size(sizes: Ints, time: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    size, place = np.unique(sizes, return_inverse=True)
    count = np.bincount(place, steps).astype(np.float64)
    mean: Floats = np.bincount(place, time) / count
    return size.astype(np.float64), mean, count
