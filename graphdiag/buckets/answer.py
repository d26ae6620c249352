"""What ``graphdiag buckets`` found, as plain values: its JSON contract, format 1.

As in :mod:`graphdiag.findings`: more keys may be added, none renamed; rates are fractions, times
and memory carry their unit in the name, null means "not identifiable".
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from graphdiag.findings import SizeCost as SizeCost


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """A bucket set and what it gives on the traffic.

    ``padding_ratio`` is padded / requested rows of replayed steps, ``fallback_rate`` the share of
    steps that run eager; ``graphs`` counts what the engine captures for the set.
    ``cost_ms_per_step`` is the mean step time over the traffic, null without step times.
    """

    buckets: list[int]
    graphs: int
    padding_ratio: float | None
    fallback_rate: float
    cost_ms_per_step: float | None
    memory_mib: float | None
    warmup_s: float | None


class Moves(msgspec.Struct, kw_only=True, frozen=True, rename={"first": "from", "last": "to"}):
    """Requested sizes ``from`` to ``to`` that a change gives another bucket; null is eager."""

    first: int
    last: int
    steps: float
    bucket_before: int | None
    bucket_after: int | None
    sentence: str


class Gain(msgspec.Struct, kw_only=True, frozen=True):
    """What a plan saves a step against the current one, on traffic it was not fitted to.

    In ms of step time, or executed rows where there are no times; ``ci95`` is null where no
    interval can be drawn.
    """

    per_step: float
    unit: Literal["ms", "rows"]
    ci95: tuple[float, float] | None

    @property
    def is_real(self) -> bool:
        """Whether it is more than noise; without an interval, whether there is one."""
        return (self.ci95[0] if self.ci95 else self.per_step) > 0


class SingleChange(msgspec.Struct, kw_only=True, frozen=True):
    """One bucket added, moved or dropped, whom it helps and whom it hurts."""

    action: Literal["add", "move", "drop"]
    sizes: list[int]
    plan: Plan
    helps: list[Moves]
    hurts: list[Moves]
    gain: Gain | None
    sentence: str
    flags: dict[str, str]


class HeldOut(msgspec.Struct, kw_only=True, frozen=True):
    """As many buckets as recommended, fitted on one part of the traffic and priced on the rest.

    ``how`` is ``time`` (first half, second half: whether the gain lasts) or ``halves`` (at random:
    a histogram has no times to cut by).
    """

    fit_share: float
    padding_ratio: float | None
    fallback_rate: float
    gain: Gain | None
    how: Literal["time", "halves"]


class DropCandidate(msgspec.Struct, kw_only=True, frozen=True):
    """A bucket that is captured and served hardly any step."""

    size: int
    steps: float
    graphs: int
    memory_mib: float | None


class Slope(msgspec.Struct, kw_only=True, frozen=True):
    """The cost of one more row in a replayed step."""

    ms_per_row: float
    ci95: tuple[float, float] | None


class BucketAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """All of ``graphdiag buckets``, in the order the JSON prints it.

    ``gain`` is what a set fitted as ``recommended`` is, on every other stretch of time, saves on
    the stretches between.
    """

    format: int
    source: str
    engine: str | None
    engine_version: str | None
    phase: str | None
    axis: str | None
    steps: float
    shares: bool
    priced_in: Literal["ms", "rows"]
    slope: Slope | None
    sentence: str
    current: Plan | None
    best_single_change: SingleChange | None
    best_move: SingleChange | None
    best_same_count: Plan | None
    recommended: Plan | None
    gain: Gain | None
    frontier: list[Plan]
    knee: int | None
    what_if: Plan | None
    what_if_remarks: list[str]
    held_out: HeldOut | None
    drop_candidates: list[DropCandidate]
    sizes: list[SizeCost]
    flags: dict[str, str]
    variants: list[str]
    not_identifiable: list[str]
    notes: list[str]


def as_json(answer: BucketAnswer) -> dict[str, Any]:
    """Return ``answer`` as the JSON prints it."""
    return dict(msgspec.to_builtins(answer))
