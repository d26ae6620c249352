"""The best single change of the current set: found, tested on other traffic, and described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphdiag.buckets import sentences
from graphdiag.buckets.answer import SingleChange
from graphdiag.buckets.changes import Change, best_addition, best_drop, best_move, moved
from graphdiag.buckets.flags import flags
from graphdiag.buckets.heldout import Split
from graphdiag.buckets.problem import Ints, Problem
from graphdiag.buckets.valuer import Valuer
from graphdiag.buckets.wishes import BestSets

Finder = Callable[[Problem], Change | None]
"""The best change of the current set for a problem's traffic."""


@dataclass(frozen=True)
class SingleChanges:
    """Changes of the current set by one bucket that grant the wishes of ``sets``.

    ``parts`` is the traffic cut in two, a change to be fitted on one and priced on the other; None
    where it cannot be cut.
    """

    valuer: Valuer
    sets: BestSets
    parts: Split | None

    def best(self) -> SingleChange | None:
        """Return the change that saves most; None where none saves any, or it is noise.

        A drop that costs nothing saves a graph.
        """
        problem = self.valuer.problem
        found = [self._add(problem), self._move_of_all, self._drop(problem)]
        known = [change for change in found if change is not None]
        if not known:
            return None
        change = max(known, key=lambda change: change.gain)
        if change is self._move_of_all:
            return self.best_move
        return self._described(change, self._add if change.action == "add" else self._drop)

    @cached_property
    def best_move(self) -> SingleChange | None:
        """The best change that needs no further graph; None as for :meth:`best`."""
        change = self._move_of_all
        return None if change is None else self._described(change, self._move)

    @cached_property
    def _move_of_all(self) -> Change | None:
        return self._move(self.valuer.problem)

    def out_of_the_trap(self) -> SingleChange | None:
        """Describe the addition that ends a fallback trap; None outside one.

        What it gains is in no traffic that was seen.
        """
        setting, current = self.valuer.setting, self.valuer.current
        size = setting.trapped_up_to
        if size is None or not len(current) or size <= current[-1]:
            return None
        buckets = np.append(current, size)
        if not self._granted(buckets):
            return None
        return SingleChange(
            action="add",
            sizes=[size],
            plan=self.valuer.plan(buckets),
            helps=[],
            hurts=[],
            gain=None,
            sentence=sentences.out_of_the_trap(size, int(current[-1]), setting.unit),
            flags=flags(buckets.tolist(), setting.config, setting.list_phase),
        )

    def _add(self, problem: Problem) -> Change | None:
        current = self.valuer.current
        return self._allowed(
            best_addition(problem, current, largest=self.sets.largest(len(current) + 1))
        )

    def _move(self, problem: Problem) -> Change | None:
        current = self.valuer.current
        return self._allowed(best_move(problem, current, largest=self.sets.largest(len(current))))

    def _drop(self, problem: Problem) -> Change | None:
        change = self._allowed(best_drop(problem, self.valuer.current))
        return change if change is not None and change.gain >= 0 else None

    def _allowed(self, change: Change | None) -> Change | None:
        return change if change is not None and self._granted(change.buckets) else None

    def _granted(self, buckets: Ints) -> bool:
        sizes = buckets.tolist()
        legal = not self.valuer.setting.rules.refusals(sizes)
        return legal and self.sets.wishes.granted_by(sizes, self.sets.memory)

    def _described(self, change: Change, find: Finder) -> SingleChange | None:
        """Describe ``change``; None where its gain on traffic it was not fitted to is noise.

        What is priced there is the best change of its kind for the traffic it is fitted to.
        """
        problem, setting = self.valuer.problem, self.valuer.setting
        found = None
        if self.parts is not None and change.gain > 0:
            fitted = find(problem.of(self.parts.fit))
            found = None if fitted is None else self.valuer.gain(fitted.buckets, self.parts)
            if found is None or not found.is_real:
                return None
        steps = float(problem.weights.sum())
        runs = moved(problem, self.valuer.current, change.buckets)
        told = [(run.gain, sentences.moves(run, steps, setting.unit)) for run in runs]
        helps = [moves for gain, moves in told if gain > 0]
        now, plan = self.valuer.plan(self.valuer.current), self.valuer.plan(change.buckets)
        return SingleChange(
            action=change.action,
            sizes=list(change.sizes),
            plan=plan,
            helps=helps,
            hurts=[moves for gain, moves in reversed(told) if gain < 0],
            gain=found,
            sentence=sentences.change(change, now, plan, helps),
            flags=flags(plan.buckets, setting.config, setting.list_phase),
        )
