"""A bucket set in the answer's words: what it costs, and what it gains on other traffic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from graphdiag.buckets.answer import Gain, Plan
from graphdiag.buckets.heldout import Split, gain
from graphdiag.buckets.problem import Ints, Problem, Service, serve
from graphdiag.buckets.setting import Setting

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Valuer:
    """Values the bucket sets of a setting.

    Attributes
    ----------
    setting, problem
        What sets are chosen by, and the problem of choosing one.
    current
        Sizes that the engine has now, as it would end up having them; empty where not known.
    """

    setting: Setting
    problem: Problem
    current: Ints

    @property
    def unit(self) -> Literal["ms", "rows"]:
        """What prices are in."""
        return "rows" if self.setting.times is None else "ms"

    def plan(self, buckets: Ints) -> Plan:
        """Return what ``buckets`` give on the whole traffic."""
        sizes = [int(size) for size in buckets]
        service, memory = serve(self.problem, buckets), self.setting.memory
        cost = (service.price / service.steps + self._context()) / _NS_PER_MS
        return Plan(
            buckets=sizes,
            graphs=memory.graphs(sizes),
            padding_ratio=service.padding_ratio,
            fallback_rate=service.fallback_rate,
            cost_ms_per_step=cost if self.unit == "ms" and self._has_price(service) else None,
            memory_mib=memory.mib(sizes),
            warmup_s=memory.seconds(sizes),
        )

    def gain(self, buckets: Ints, parts: Split) -> Gain | None:
        """Return what ``buckets`` save over the current ones; None where those are not known."""
        if not len(self.current):
            return None
        found = gain([self.problem, *self._resampled], self.current, buckets, parts)
        scale = _NS_PER_MS if self.unit == "ms" else 1.0
        interval = found.ci95
        return Gain(
            per_step=found.per_step / scale,
            unit=self.unit,
            ci95=None if interval is None else (interval[0] / scale, interval[1] / scale),
        )

    def is_priced(self, buckets: Ints) -> bool:
        """Say whether the price of ``buckets`` is known: not where eager steps were never timed."""
        return self._has_price(serve(self.problem, buckets))

    def _has_price(self, service: Service) -> bool:
        times = self.setting.times
        return times is None or len(times.saved) > 0 or not service.fallback

    def _context(self) -> float:
        """Return what the context of a step costs, ns: the same under every set."""
        times, problem = self.setting.times, self.problem
        if times is None:
            return 0.0
        rows = float((problem.weights * problem.sizes).sum() / problem.weights.sum())
        return times.row_context * rows

    def saved(self, buckets: Ints) -> float:
        """Return the price that ``buckets`` save over the current ones, on the whole traffic."""
        now, then = serve(self.problem, self.current), serve(self.problem, buckets)
        return now.price - then.price

    @cached_property
    def _resampled(self) -> list[Problem]:
        times = self.setting.times
        return [] if times is None else [self.problem.priced(one) for one in times.resampled]


def as_buckets(sizes: list[int]) -> Ints:
    """Return ``sizes`` as an array of buckets, of the right type even where there are none."""
    return np.array(sizes, np.int64)
