"""Holding a trace's step time against a baseline's: the logic of ``graphdiag check --baseline``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphdiag.checks import parse_bound

if TYPE_CHECKING:  # the command's --help must not pay for msgspec
    from graphdiag.comparison.answer import Comparison

DEFAULT = "1%"


@dataclass(frozen=True)
class Bound:
    """The most a step may take longer: a share of the baseline's mean step, or ms."""

    value: float
    is_ms: bool

    def in_ms(self, base_ms: float) -> float:
        """Return the bound in ms where the baseline's mean step takes ``base_ms``."""
        return self.value if self.is_ms else self.value * base_ms


@dataclass(frozen=True)
class Slowdown:
    """What holding two traces against each other came to; times in ms a step.

    ``change`` is at equal traffic, null where it is not identifiable; ``ci95`` is null where the
    traces are too short for an interval. Then the limit is not judged, and ``why`` says why.
    ``shares`` are those of the steps of base and candidate that are on equal traffic.
    """

    bound: Bound
    base: float | None
    change: float | None
    ci95: tuple[float, float] | None
    steady: bool
    why: str | None
    shares: tuple[float, float] = (1.0, 1.0)

    @property
    def is_judged(self) -> bool:
        """Whether the two tell if the limit holds: the change is known, and so is its noise."""
        return self.change is not None and self.ci95 is not None

    @property
    def is_over(self) -> bool:
        """Whether the change is over the bound, beyond noise or not."""
        if self.change is None or self.base is None:
            return False
        return self.change > self.bound.in_ms(self.base)

    @property
    def holds(self) -> bool:
        """Whether the change is known and within the bound, or within noise."""
        if self.change is None or self.ci95 is None:
            return False
        return not self.is_over or self.ci95[0] <= 0


def hold_slowdown(found: Comparison, bound: Bound, *, steady: bool) -> Slowdown:
    """Hold a comparison against ``bound``, with start-up or, if ``steady``, without."""
    if steady:
        base, change = found.base_steady_ms_per_step, found.steady_matched_ms_per_step
        ci95, shares = found.steady_matched_ci95, found.steady_matched_shares
    else:
        base, change = found.base_ms_per_step, found.matched_ms_per_step
        ci95, shares = found.matched_ci95, found.matched_shares
    why = None if change is not None and ci95 is not None else _why(found, steady=steady)
    return Slowdown(bound, base, change, ci95, steady, why, shares or (1.0, 1.0))


def _why(found: Comparison, *, steady: bool) -> str | None:
    """Return why the change on equal traffic, or its noise, is not identifiable."""
    if steady and found.matched_ci95 is not None:  # then only what is left without start-up lacks
        if found.steady_ms_per_step is None:
            return "one of the two has no steady state"
        if found.steady_matched_ms_per_step is not None:
            return "the steady state of one of the two is too short to tell noise; record longer"
    return next(iter(found.not_identifiable), None)


def parse_slowdown(text: str) -> Bound:
    """Read a bound as a person writes it: ``2%``, ``0.02`` or ``0.1ms``.

    Raises
    ------
    ValueError
        When it is none, or may mean a percentage as well as a fraction.
    """
    body = text.strip()
    if body.endswith("ms"):
        try:
            return Bound(parse_bound(f"{body[:-2].strip()} s", "s"), is_ms=True)
        except ValueError:
            raise ValueError(f"{text!r} is no limit; write 2% or 0.1ms.") from None
    try:
        return Bound(parse_bound(body, "ratio"), is_ms=False)
    except ValueError as error:
        raise ValueError(str(error).replace("write 1% or 0.01", "write 2% or 0.1ms")) from None
