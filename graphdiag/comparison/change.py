"""How much a step's time changed from one trace to another, and its terms, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import hypot

import numpy as np
import polars as pl

from graphdiag.bootstrap import (
    LEAST_STRETCHES,
    RESAMPLES,
    block_draws,
    half_width,
    in_parts,
    joined,
    joint_half_widths,
)
from graphdiag.buckets.histogram import PHASES, Part, captured_sizes
from graphdiag.comparison.decomposition import TERMS, Overlap, Split, decompose
from graphdiag.comparison.equaltraffic import is_comparable
from graphdiag.comparison.noise import once
from graphdiag.ledger import NO_WORK, Ledger, Outside, ledger
from graphdiag.metrics import REPLAYED, is_real, is_target
from graphdiag.runconfig import last_config
from graphdiag.steptable import Floats, StepTable
from graphdiag.summary import Summary


@dataclass(frozen=True)
class Change:
    """A change in ns, with its 95 % interval where one can be drawn."""

    value: float
    ci95: tuple[float, float] | None

    @property
    def is_real(self) -> bool:
        """Whether it is more than noise; without an interval, whether it is any."""
        return self.value != 0 if self.ci95 is None else self.ci95[0] > 0 or self.ci95[1] < 0


@dataclass(frozen=True)
class Measured:
    """The change between two traces: ``terms`` add up to ``delta``, all in ns a step.

    ``matched`` is the change on the same traffic, as far as ``overlap`` says that the two tell it;
    ``per_token`` is the change in ns a token; ``base`` and ``candidate`` are the ledgers behind it.
    """

    delta: Change
    terms: dict[str, Change]
    matched: Change
    per_token: Change | None
    per_token_terms: dict[str, float]
    base: Ledger
    candidate: Ledger
    overlap: Overlap

    @property
    def is_comparable(self) -> bool:
        """Whether the two share enough for a change on the same traffic."""
        return is_comparable(self.overlap)


@dataclass(frozen=True)
class Timed:
    """One of the two: its timed steps, how most replays of a phase ran, and work between steps.

    ``work_noise`` is the standard deviation of the work in steady state, ns. ``captured`` are the
    buckets of each phase, where they are on record.
    """

    table: StepTable
    modes: dict[str, str | None]
    work: Outside = NO_WORK
    captured: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    work_noise: float = 0.0


def measure_change(base: Timed, candidate: Timed) -> Measured:
    """Measure the change from ``base`` to ``candidate``, both of which have timed steps."""
    pair = (base, candidate)
    tables = [one.table for one in pair]
    hints = _hints(pair)
    splits = [
        decompose(
            *_ledgers(pair, hints, some),
            (base.modes, candidate.modes),
            (base.captured, candidate.captured),
        )
        for some in in_parts(_draws(tables), sum(len(table.role) for table in tables))
    ]
    stretches = min(table.slices for table in tables)
    token = [found for one in splits if (found := one.per_token()) is not None]

    def change(of: Callable[[Split], Floats], noise: float) -> Change:
        values = joined([of(one) for one in splits])
        if len(values) == 1:
            return Change(float(values[0]), None)
        half = half_width(values[1:], stretches, noise)
        return Change(float(values[0]), (float(values[0]) - half, float(values[0]) + half))

    work = hypot(*(one.work_noise / float(one.table.steps.sum()) for one in pair))
    at_start = [once(table) for table in tables]
    start = hypot(*at_start)
    mixed = hypot(*(once(table, by_size=False) for table in tables))
    per_token, per_token_terms = None, {}
    if len(token) == len(splits):
        each = [sd / float(k[0]) for sd, k in zip(at_start, splits[0].tokens, strict=True)]
        per_token = change(lambda one: (one.per_token() or (one.delta,))[0], hypot(*each))
        per_token_terms = {name: float(each[0]) for name, each in token[0][1].items()}
    books = _ledgers(pair, hints, None)
    return Measured(
        delta=change(lambda one: one.delta, hypot(mixed, work)),
        terms=_together(joined([_terms(one) for one in splits]), stretches, start, work),
        matched=change(lambda one: one.matched, hypot(start, work)),
        per_token=per_token,
        per_token_terms=per_token_terms,
        base=books[0],
        candidate=books[1],
        overlap=splits[0].overlap,
    )


def _terms(split: Split) -> Floats:
    return np.stack([split.terms[name] for name in TERMS], axis=1)


def _together(terms: Floats, stretches: int, start: float, work: float) -> dict[str, Change]:
    """Return the terms with intervals that hold all of them at once: they are read side by side.

    ``start`` and ``work`` are standard deviations of what start-up took and of work after it.
    """
    values = dict(zip(TERMS, map(float, terms[0]), strict=True))
    if len(terms) == 1:
        return {name: Change(value, None) for name, value in values.items()}
    chance = {"compile": start, "shapes": work}
    alone = np.array([chance.get(name, 0.0) for name in TERMS])
    half = joint_half_widths(terms[1:], stretches, alone)
    return {
        name: Change(value, (value - each, value + each))
        for (name, value), each in zip(values.items(), map(float, half), strict=True)
    }


def _ledgers(
    pair: tuple[Timed, Timed],
    hints: tuple[dict[str, float] | None, ...],
    draws: tuple[Floats, ...] | None,
) -> tuple[Ledger, Ledger]:
    first, second = (
        ledger(one.table, hint, one.work, None if draws is None else draws[index])
        for index, (one, hint) in enumerate(zip(pair, hints, strict=True))
    )
    return first, second


def _hints(pair: tuple[Timed, Timed]) -> tuple[dict[str, float] | None, ...]:
    """Return for each of the two what a row costs by phase, from the other, where it lacks it.

    A phase that replayed one bucket alone does not tell what a row costs: the other trace may.
    """
    books = [ledger(one.table) for one in pair]
    slopes = [_slopes(one) for one in books]
    return tuple(
        slopes[1 - index] or None
        if any(not model.has_slope for model in book.models.values())
        else None
        for index, book in enumerate(books)
    )


def _slopes(one: Ledger) -> dict[str, float]:
    """Return what a row costs by phase, of replay or else of eager steps."""
    found = {}
    for name, model in one.models.items():
        if model.replay is not None and model.has_slope:
            found[name] = float(model.replay.slope[0])
        elif model.eager is not None and len(model.eager.sizes) > 1:
            found[name] = float(model.eager.slope[0])
    return found


def modes_of(summary: Summary) -> dict[str, str | None]:
    """Return how most replays of each phase ran."""
    table = (
        summary.groups.filter(is_real() & is_target() & pl.col("outcome").is_in(REPLAYED))
        .group_by(pl.col("phase").fill_null("unknown"), "mode")
        .agg(pl.col("weight").sum())
        .sort("weight", "mode", descending=True, nulls_last=True)
        .unique("phase", keep="first", maintain_order=True)
    )
    return dict(table.select("phase", "mode").iter_rows())


def captured_of(summary: Summary) -> dict[str, tuple[int, ...]]:
    """Return the buckets that each phase has, configured or else captured, where that is told."""
    config = last_config(summary.events)
    steps = summary.groups.filter(is_real() & is_target())
    found = {}
    for (phase,), rows in steps.group_by(pl.col("phase").fill_null("unknown")):
        axes = set(rows["axis"].drop_nulls())
        if config.get("axis") not in (None, *axes):
            continue
        sizes = captured_sizes(summary, config, rows.clear(), _part(str(phase)))
        if len(sizes):
            found[str(phase)] = tuple(map(int, sizes))
    return found


def _part(phase: str) -> Part | None:
    if phase in PHASES["decode"]:
        return "decode"
    return "prefill" if phase in PHASES["prefill"] else None


def _draws(tables: list[StepTable]) -> tuple[Floats, ...]:
    """Return the resamples of both, each with the sample itself first."""
    alone = [np.ones((1, table.slices)) for table in tables]
    if min(table.slices for table in tables) < LEAST_STRETCHES:
        return tuple(alone)
    # Which is the base must not matter: each gets the draws of its place in an order of their own.
    order = sorted(range(2), key=lambda one: (tables[one].steps.sum(), tables[one].time.sum()))
    both = [block_draws(t.slices, RESAMPLES, order.index(i)) for i, t in enumerate(tables)]
    filled = np.all(
        [table.sizes_of(draws) > 0 for table, draws in zip(tables, both, strict=True)], axis=0
    )
    return tuple(
        np.concatenate([one, draws[filled]]) for one, draws in zip(alone, both, strict=True)
    )
