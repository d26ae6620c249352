"""How much a step's time changed from one trace to another, and its terms, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from graphdiag.comparison.decomposition import TERMS, Split, decompose
from graphdiag.ledger import NO_WORK, Ledger, Outside, ledger
from graphdiag.metrics import REPLAYED, is_real, is_target
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

    ``matched`` is the change on the same traffic, ``per_token`` the change in ns a token; ``base``
    and ``candidate`` are the ledgers behind it.
    """

    delta: Change
    terms: dict[str, Change]
    matched: Change
    per_token: Change | None
    per_token_terms: dict[str, float]
    base: Ledger
    candidate: Ledger


@dataclass(frozen=True)
class Timed:
    """One of the two: its timed steps, how most replays of a phase ran, and work between steps."""

    table: StepTable
    modes: dict[str, str | None]
    work: Outside = NO_WORK


def measure_change(base: Timed, candidate: Timed) -> Measured:
    """Measure the change from ``base`` to ``candidate``, both of which have timed steps."""
    pair = (base, candidate)
    tables = [one.table for one in pair]
    hints = _hints(pair)
    splits = [
        decompose(*_ledgers(pair, hints, some), (base.modes, candidate.modes))
        for some in in_parts(_draws(tables), sum(len(table.role) for table in tables))
    ]
    stretches = min(table.slices for table in tables)
    token = [found for one in splits if (found := one.per_token()) is not None]

    def change(of: Callable[[Split], Floats]) -> Change:
        values = joined([of(one) for one in splits])
        if len(values) == 1:
            return Change(float(values[0]), None)
        half = half_width(values[1:], stretches)
        return Change(float(values[0]), (float(values[0]) - half, float(values[0]) + half))

    per_token, per_token_terms = None, {}
    if len(token) == len(splits):
        per_token = change(lambda one: (one.per_token() or (one.delta,))[0])
        per_token_terms = {name: float(each[0]) for name, each in token[0][1].items()}
    books = _ledgers(pair, hints, None)
    return Measured(
        delta=change(lambda one: one.delta),
        terms=_together(joined([_terms(one) for one in splits]), stretches),
        matched=change(lambda one: one.matched),
        per_token=per_token,
        per_token_terms=per_token_terms,
        base=books[0],
        candidate=books[1],
    )


def _terms(split: Split) -> Floats:
    return np.stack([split.terms[name] for name in TERMS], axis=1)


def _together(terms: Floats, stretches: int) -> dict[str, Change]:
    """Return the terms with intervals that hold all of them at once: they are read side by side."""
    values = dict(zip(TERMS, map(float, terms[0]), strict=True))
    if len(terms) == 1:
        return {name: Change(value, None) for name, value in values.items()}
    half = joint_half_widths(terms[1:], stretches)
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


def _draws(tables: list[StepTable]) -> tuple[Floats, ...]:
    """Return the resamples of both, each with the sample itself first."""
    alone = [np.ones((1, table.slices)) for table in tables]
    if min(table.slices for table in tables) < LEAST_STRETCHES:
        return tuple(alone)
    both = [block_draws(table.slices, RESAMPLES, seed) for seed, table in enumerate(tables)]
    filled = np.all(
        [table.sizes_of(draws) > 0 for table, draws in zip(tables, both, strict=True)], axis=0
    )
    return tuple(
        np.concatenate([one, draws[filled]]) for one, draws in zip(alone, both, strict=True)
    )
