r"""The change in mean step time between two ledgers, split exactly.

With strata s (phase and requested size), their shares :math:`p_s` of the steps and their mean step
times :math:`m_s`, best achievable plus what padding and fallback add, the change is

.. math:: \sum_s (p^c_s - p^b_s) \frac{m^b_s + m^c_s}{2}
          + \sum_s \frac{p^b_s + p^c_s}{2} (m^c_s - m^b_s),

traffic mix and the same traffic served differently (Kitagawa, Components of a difference between
two rates, JASA 50, 1955). The second sum splits further by what m is made of. A stratum that one
trace never saw has a share of 0 there and any time at all keeps the sum exact; it is given the time
that trace's own engine would take: its buckets, its curve, its eager time (see
:mod:`graphdiag.comparison.pricing`). Where these do not tell, it is given the other's, so that all
of it is traffic: see :class:`Overlap`.

Within a stratum the context that its steps attend to may differ: that is traffic too, at what a
token of it costs.

Rows that are computed again because their request was preempted are no traffic that anybody asked
for: what they cost is taken out of the traffic mix, as memory.

Best achievable is replay in a phase that has graphs and eager execution in one that has none, or
replay of another kind (piecewise, full): where the two traces differ in that, the change is the
launch saving, else it is the same work at another speed, and goes to the residual.

It is done for many resamples of both at once, as in :mod:`graphdiag.ledger`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from graphdiag.comparison.pricing import prices
from graphdiag.ledger import Ledger
from graphdiag.steptable import NO_SIZE, Bools, Floats, Ints

TERMS = (
    "traffic_mix",
    "compile",
    "shapes",
    "fallback",
    "padding",
    "launch_saving",
    "memory",
    "stalls",
    "residual",
)


@dataclass(frozen=True)
class Overlap:
    """Which phases and sizes each of the two tells a time of: arrays of [strata].

    ``shares`` are of the steps of base and candidate; ``known`` says of each of them whether it ran
    the size, or its own times tell what it would take; ``read_off`` where that is by a bucket that
    it never timed.
    """

    phases: list[str]
    phase: Ints
    sizes: Ints
    shares: tuple[Floats, Floats]
    known: tuple[Bools, Bools]
    read_off: tuple[Bools, Bools]

    @property
    def common(self) -> tuple[float, float]:
        """The shares of the steps of base and candidate of which both tell a time."""
        both = self.known[0] & self.known[1]
        first, second = (float(share[both].sum()) for share in self.shares)
        return first, second


@dataclass(frozen=True)
class Split:
    """The change from base to candidate in ns a step: ``terms`` add up to ``delta``.

    Arrays are [resamples]. ``tokens`` are the tokens a step of base and candidate; 0 where one of
    them records none. ``overlap`` is that of the sample itself.
    """

    delta: Floats
    terms: dict[str, Floats]
    base_mean: Floats
    candidate_mean: Floats
    tokens: tuple[Floats, Floats]
    overlap: Overlap

    @property
    def matched(self) -> Floats:
        """The change on the same traffic: all but the traffic mix."""
        return self.delta - self.terms["traffic_mix"]

    def per_token(self) -> tuple[Floats, dict[str, Floats]] | None:
        """Return the change in ns a token and its terms; None where a resample has no tokens.

        Time a token is M / k, with k tokens a step: (M_c - M_b) · mean(1/k) plus
        (1/k_c - 1/k_b) · mean(M), and the second is traffic.
        """
        if not all(tokens.all() for tokens in self.tokens):
            return None
        base, candidate = (1 / tokens for tokens in self.tokens)
        each = (base + candidate) / 2
        terms = {name: value * each for name, value in self.terms.items()}
        traffic = (candidate - base) * (self.base_mean + self.candidate_mean) / 2
        terms["traffic_mix"] = terms["traffic_mix"] + traffic
        return self.candidate_mean * candidate - self.base_mean * base, terms


def decompose(
    base: Ledger,
    candidate: Ledger,
    modes: tuple[Mapping[str, str | None], ...],
    captured: tuple[Mapping[str, Collection[int]], ...] = ({}, {}),
) -> Split:
    """Split the change in mean step time from ``base`` to ``candidate``.

    ``modes`` is, for each of the two, how most replays of a phase ran (``full``, ``piecewise``…),
    ``captured`` which buckets each has by phase, where that is on record.
    """
    strata = _strata(base, candidate)
    before, after = (
        _Side(one, strata, buckets)
        for one, buckets in zip((base, candidate), captured, strict=True)
    )
    before.borrow(after)
    after.borrow(before)
    share = (before.share + after.share) / 2
    token = (before.token + after.token) / 2
    longer = (share * token * (after.context - before.context)).sum(axis=1)
    mean = (before.total() + after.total()) / 2
    kinds = [_other_kind(phase, base, candidate, modes) for phase in strata.phases]
    other_kind = np.array(kinds, dtype=bool)[strata.phase]
    faster = (after.token - before.token) * (before.context + after.context) / 2
    ideal = share * (after.ideal - before.ideal + faster)
    per = (base.totals, candidate.totals)

    def of(name: str) -> Floats:
        change: Floats = getattr(candidate, name) / per[1] - getattr(base, name) / per[0]
        return change

    memory = of("memory")
    traffic = ((after.share - before.share) * mean).sum(axis=1) + longer
    terms = {
        "traffic_mix": traffic - memory,
        "compile": of("compile"),
        "shapes": of("shapes"),
        "fallback": (share * (after.fallback - before.fallback)).sum(axis=1),
        "padding": (share * (after.padding - before.padding)).sum(axis=1),
        "launch_saving": ideal[:, other_kind].sum(axis=1),
        "memory": memory,
        "stalls": of("stalls"),
        "residual": ideal[:, ~other_kind].sum(axis=1) + of("residual"),
    }
    return Split(
        delta=candidate.means - base.means,
        terms=terms,
        base_mean=base.means,
        candidate_mean=candidate.means,
        tokens=(base.tokens / per[0], candidate.tokens / per[1]),
        overlap=Overlap(
            strata.phases,
            strata.phase,
            strata.sizes,
            (before.share[0], after.share[0]),
            (before.known, after.known),
            (before.read_off, after.read_off),
        ),
    )


@dataclass(frozen=True)
class _Strata:
    """Pairs of phase (index into ``phases``) and requested size, in order, each once."""

    phases: list[str]
    phase: Ints
    sizes: Ints
    width: int

    def places(self, one: Ledger) -> Ints:
        """Return where the strata of ``one`` are among these."""
        codes = _codes(one, self.phases, self.width)
        return np.searchsorted(self.phase * self.width + self.sizes, codes)


def _strata(base: Ledger, candidate: Ledger) -> _Strata:
    phases = sorted({*base.phases, *candidate.phases})
    width = 1 + int(max(one.requested.max(initial=0) for one in (base, candidate)))
    codes = np.union1d(*(_codes(one, phases, width) for one in (base, candidate)))
    return _Strata(phases, codes // width, codes % width, width)


def _codes(one: Ledger, phases: list[str], width: int) -> Ints:
    code = np.array([phases.index(name) for name in one.phases], dtype=np.int64)
    codes: Ints = code[one.phase] * width + one.requested
    return codes


class _Side:
    """One ledger laid out over the strata of both, with what it would take where it saw none."""

    def __init__(
        self, ledger: Ledger, strata: _Strata, captured: Mapping[str, Collection[int]]
    ) -> None:
        self.ledger = ledger
        at, shape = strata.places(ledger), (len(ledger.totals), len(strata.sizes))
        self.seen = np.zeros(shape, dtype=bool)
        self.share, self.ideal, self.padding, self.fallback, self.context = np.zeros((5, *shape))
        self.seen[:, at] = ledger.steps > 0
        self.share[:, at] = ledger.steps / ledger.totals[:, None]
        self.ideal[:, at], self.padding[:, at] = ledger.ideal, ledger.padding
        self.fallback[:, at], self.context[:, at] = ledger.fallback, ledger.context
        unknown = np.full(shape[0], np.nan)
        costs = [
            ledger.models[name].token_ns if name in ledger.models else unknown
            for name in strata.phases
        ]
        self.token = np.stack(costs, axis=1)[:, strata.phase]
        self.known = self.seen[0].copy()
        self.read_off = np.zeros_like(self.known)
        self._impute(strata, captured)

    def total(self) -> Floats:
        """Mean step time of each stratum."""
        total: Floats = self.ideal + self.token * self.context + self.padding + self.fallback
        return total

    def borrow(self, other: _Side) -> None:
        """Take the other side's times where this one does not tell."""
        told = self.seen & self.known
        for name in ("ideal", "padding", "fallback", "context"):
            mine = getattr(self, name)
            setattr(self, name, np.where(told, mine, getattr(other, name)))
        self.token = np.where(self.known, self.token, other.token)

    def _impute(self, strata: _Strata, captured: Mapping[str, Collection[int]]) -> None:
        sizes = strata.sizes
        for name, model in self.ledger.models.items():
            mine = (strata.phase == strata.phases.index(name)) & (sizes != NO_SIZE)
            missing = mine & ~self.seen.all(axis=0)
            told = prices(model, captured.get(name, ()), sizes[missing])
            if told is None or not missing.any():
                continue
            seen = self.seen[:, missing]
            context = model.context_per_row[:, None] * sizes[missing]
            for mean, priced in (
                (self.ideal, told.ideal),
                (self.padding, told.padding),
                (self.fallback, told.fallback),
                (self.context, context),
            ):
                mean[:, missing] = np.where(seen, mean[:, missing], priced)
            self.seen[:, missing] = True
            self.read_off[missing] = told.read_off & ~self.known[missing]
            self.known[missing] |= told.known


def _other_kind(
    phase: str, base: Ledger, candidate: Ledger, modes: tuple[Mapping[str, str | None], ...]
) -> bool:
    both = [one.models.get(phase) for one in (base, candidate)]
    if any(model is None for model in both):
        return False
    replays = {model.replays for model in both if model is not None}
    if len(replays) > 1:
        return True
    first, second = (mode.get(phase) for mode in modes)
    return replays == {True} and first is not None and second is not None and first != second
