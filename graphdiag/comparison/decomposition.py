r"""The change in mean step time between two ledgers, split exactly.

With strata s (phase and requested size), their shares :math:`p_s` of the steps and their mean step
times :math:`m_s`, best achievable plus what padding and fallback add, the change is

.. math:: \sum_s (p^c_s - p^b_s) \frac{m^b_s + m^c_s}{2}
          + \sum_s \frac{p^b_s + p^c_s}{2} (m^c_s - m^b_s),

traffic mix and the same traffic served differently (Kitagawa, Components of a difference between
two rates, JASA 50, 1955). The second sum splits further by what m is made of. A stratum that one
trace never saw has a share of 0 there and any time at all keeps the sum exact; it is given the time
that trace's own engine would take: its buckets, its curve, its eager time.

Within a stratum the context that its steps attend to may differ: that is traffic too, at what a
token of it costs.

Best achievable is replay in a phase that has graphs and eager execution in one that has none, or
replay of another kind (piecewise, full): where the two traces differ in that, the change is the
launch saving, else it is the same work at another speed, and goes to the residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphdiag.ledger import Ledger, PhaseModel
from graphdiag.steptable import NO_SIZE, Floats, Ints

TERMS = (
    "traffic_mix",
    "compile",
    "shapes",
    "fallback",
    "padding",
    "launch_saving",
    "residual",
)


@dataclass(frozen=True)
class Split:
    """The change from base to candidate in ns a step: ``terms`` add up to ``delta``.

    ``tokens`` are the tokens a step of base and candidate; 0 where one of them records none.
    """

    delta: float
    terms: dict[str, float]
    base_mean: float
    candidate_mean: float
    tokens: tuple[float, float]

    @property
    def matched(self) -> float:
        """The change on the same traffic: all but the traffic mix."""
        return self.delta - self.terms["traffic_mix"]

    def per_token(self) -> tuple[float, dict[str, float]] | None:
        """Return the change in ns a token and its terms; None without tokens.

        Time a token is M / k, with k tokens a step: (M_c - M_b) · mean(1/k) plus
        (1/k_c - 1/k_b) · mean(M), and the second is traffic.
        """
        if not all(self.tokens):
            return None
        base, candidate = (1 / tokens for tokens in self.tokens)
        each = (base + candidate) / 2
        terms = {name: value * each for name, value in self.terms.items()}
        terms["traffic_mix"] += (candidate - base) * (self.base_mean + self.candidate_mean) / 2
        return self.candidate_mean * candidate - self.base_mean * base, terms


def decompose(
    base: Ledger, candidate: Ledger, modes: tuple[Mapping[str, str | None], ...]
) -> Split:
    """Split the change in mean step time from ``base`` to ``candidate``.

    ``modes`` is, for each of the two, how most replays of a phase ran (``full``, ``piecewise``…).
    """
    strata = _strata(base, candidate)
    sides = [_Side(one, strata) for one in (base, candidate)]
    for side, other in (sides, reversed(sides)):
        side.borrow(other)
    before, after = sides
    share = (before.share + after.share) / 2
    token = (before.token + after.token) / 2
    longer = float((share * token * (after.context - before.context)).sum())
    mean = (before.total() + after.total()) / 2
    kinds = [_other_kind(phase, base, candidate, modes) for phase in strata.phases]
    other_kind = np.array(kinds, dtype=bool)[strata.phase]
    faster = (after.token - before.token) * (before.context + after.context) / 2
    ideal = share * (after.ideal - before.ideal + faster)
    per = [side.ledger.total_steps for side in sides]

    def of(name: str) -> float:
        first, second = getattr(base, name) / per[0], getattr(candidate, name) / per[1]
        return float(second - first)

    terms = {
        "traffic_mix": float(((after.share - before.share) * mean).sum()) + longer,
        "compile": of("compile"),
        "shapes": of("shapes"),
        "fallback": float((share * (after.fallback - before.fallback)).sum()),
        "padding": float((share * (after.padding - before.padding)).sum()),
        "launch_saving": float(ideal[other_kind].sum()),
        "residual": float(ideal[~other_kind].sum()) + of("residual"),
    }
    return Split(
        delta=candidate.mean - base.mean,
        terms=terms,
        base_mean=base.mean,
        candidate_mean=candidate.mean,
        tokens=(base.tokens / per[0], candidate.tokens / per[1]),
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

    def __init__(self, ledger: Ledger, strata: _Strata) -> None:
        self.ledger = ledger
        at, number = strata.places(ledger), len(strata.sizes)
        self.seen = np.zeros(number, dtype=bool)
        self.share, self.ideal, self.padding, self.fallback = np.zeros((4, number))
        self.context = np.zeros(number)
        self.seen[at] = True
        self.share[at] = ledger.steps / ledger.total_steps
        self.ideal[at], self.padding[at] = ledger.ideal, ledger.padding
        self.fallback[at], self.context[at] = ledger.fallback, ledger.context
        costs = {name: model.token_ns for name, model in ledger.models.items()}
        self.token = np.array([costs.get(name, np.nan) for name in strata.phases])[strata.phase]
        self._impute(strata)

    def total(self) -> Floats:
        """Mean step time of each stratum."""
        total: Floats = self.ideal + self.token * self.context + self.padding + self.fallback
        return total

    def borrow(self, other: _Side) -> None:
        """Take the other side's times where this one has nothing to tell a phase by."""
        for name in ("ideal", "padding", "fallback", "context"):
            mine = getattr(self, name)
            mine[~self.seen] = getattr(other, name)[~self.seen]
        self.token = np.where(np.isnan(self.token), other.token, self.token)

    def _impute(self, strata: _Strata) -> None:
        sizes = strata.sizes
        for name, model in self.ledger.models.items():
            mine = strata.phase == strata.phases.index(name)
            missing = mine & ~self.seen & (sizes != NO_SIZE)
            ideal = model.ideal(sizes[missing].astype(np.float64))
            if ideal is None or not missing.any():
                continue
            self.ideal[missing] = ideal
            self.padding[missing], self.fallback[missing] = _served(model, sizes[missing], ideal)
            self.context[missing] = model.context_per_row * sizes[missing]
            self.seen |= missing


def _served(model: PhaseModel, sizes: Ints, ideal: Floats) -> tuple[Floats, Floats]:
    """Return what the engine would add at each size: its bucket's padding, or its fallback."""
    padding, fallback = np.zeros(len(sizes)), np.zeros(len(sizes))
    if model.replay is None or not model.has_slope:
        return padding, fallback
    slot = np.searchsorted(model.buckets, sizes)
    inside = slot < len(model.buckets)
    bucket = model.buckets[slot[inside]].astype(np.float64)
    padding[inside] = model.replay.at(bucket) - ideal[inside]
    if model.eager is not None:
        fallback[~inside] = model.eager.at(sizes[~inside].astype(np.float64)) - ideal[~inside]
    return padding, fallback


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
