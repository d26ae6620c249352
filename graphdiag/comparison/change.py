"""How much a step's time changed from one trace to another, and its terms, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.bootstrap import (
    LEAST_STRETCHES,
    RESAMPLES,
    block_draws,
    half_width,
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

    def drawn(self, times: Floats) -> Timed:
        """Return it with each slice of time taken so many ``times``."""
        work = self.work.times(self.table.size_of(times))
        return Timed(self.table.drawn(times), self.modes, work)


def measure_change(base: Timed, candidate: Timed) -> Measured:
    """Measure the change from ``base`` to ``candidate``, both of which have timed steps."""
    pair = [base, candidate]
    tables = [one.table for one in pair]
    books, split = _split(pair)
    draws = _draws(tables)
    drawn = [
        _split([one.drawn(times) for one, times in zip(pair, draw, strict=True)])[1]
        for draw in draws
    ]
    stretches = min(tables, key=lambda table: table.slices).slices

    def change(value: float, resampled: list[float]) -> Change:
        if not drawn:
            return Change(value, None)
        half = half_width(np.array(resampled), stretches)
        return Change(value, (value - half, value + half))

    token = split.per_token()
    tokens = [found[0] for one in drawn if (found := one.per_token()) is not None]
    return Measured(
        delta=change(split.delta, [one.delta for one in drawn]),
        terms=_together(split, drawn, stretches),
        matched=change(split.matched, [one.matched for one in drawn]),
        per_token=None if token is None or len(tokens) < len(drawn) else change(token[0], tokens),
        per_token_terms={} if token is None else token[1],
        base=books[0],
        candidate=books[1],
    )


def _together(split: Split, drawn: list[Split], stretches: int) -> dict[str, Change]:
    """Return the terms with intervals that hold all of them at once: they are read side by side."""
    if not drawn:
        return {name: Change(split.terms[name], None) for name in TERMS}
    half = joint_half_widths(
        np.array([[one.terms[name] for name in TERMS] for one in drawn]), stretches
    )
    return {
        name: Change(split.terms[name], (split.terms[name] - each, split.terms[name] + each))
        for name, each in zip(TERMS, map(float, half), strict=True)
    }


def _split(pair: list[Timed]) -> tuple[list[Ledger], Split]:
    books = [ledger(one.table, work=one.work) for one in pair]
    slopes = [_slopes(one) for one in books]
    # A phase that replayed one bucket alone does not tell what a row costs: the other trace may.
    lacking = [any(not model.has_slope for model in one.models.values()) for one in books]
    for index, other in ((0, 1), (1, 0)):
        if lacking[index] and slopes[other]:
            books[index] = ledger(pair[index].table, slopes[other], pair[index].work)
    return books, decompose(books[0], books[1], (pair[0].modes, pair[1].modes))


def _slopes(one: Ledger) -> dict[str, float]:
    """Return what a row costs by phase, of replay or else of eager steps."""
    found = {}
    for name, model in one.models.items():
        if model.replay is not None and model.has_slope:
            found[name] = model.replay.slope
        elif model.eager is not None and len(model.eager.sizes) > 1:
            found[name] = model.eager.slope
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


def _draws(tables: list[StepTable]) -> list[tuple[Floats, ...]]:
    if min(table.slices for table in tables) < LEAST_STRETCHES:
        return []
    both = [block_draws(table.slices, RESAMPLES, seed) for seed, table in enumerate(tables)]
    return [
        draw
        for draw in zip(*both, strict=True)
        if all(table.size_of(times) > 0 for table, times in zip(tables, draw, strict=True))
    ]
