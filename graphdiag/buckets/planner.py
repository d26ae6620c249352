"""From a setting to an answer: the best change, the best sets, the frontier, what to drop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphdiag.buckets import sentences
from graphdiag.buckets.answer import BucketAnswer, DropCandidate, Gain, HeldOut, Plan, SingleChange
from graphdiag.buckets.flags import flags
from graphdiag.buckets.heldout import Split, split, split_in_time
from graphdiag.buckets.problem import Ints, buckets_of, serve
from graphdiag.buckets.recommend import recommend
from graphdiag.buckets.setting import Setting
from graphdiag.buckets.single import SingleChanges
from graphdiag.buckets.sizecosts import size_costs, slope_of
from graphdiag.buckets.valuer import Valuer, as_buckets
from graphdiag.buckets.wishes import BestSets, Wishes
from graphdiag.errors import GraphdiagError
from graphdiag.findings import Recommendation

FRONTIER = 64
"""Buckets the frontier reaches to, unless the current set or the graphs asked for are more."""
MOST_BUCKETS = 1024
HARDLY = 0.001
"""Share of the steps below which a captured bucket is a candidate to drop."""
RARE = 0.01
"""Share of the steps below which a new largest graph is worth a second thought."""


def plan_buckets(setting: Setting, wishes: Wishes) -> BucketAnswer:
    """Answer ``wishes`` for ``setting``.

    Raises
    ------
    GraphdiagError
        When there is no traffic to plan for, a size to keep is illegal, or a memory budget is given
        where memory is not known.
    """
    if not setting.traffic.counts.sum():
        raise GraphdiagError(
            f"{setting.source}: no step of a known size that a bucket serves, or that fell back "
            "for want of one, so that there is nothing to plan for; `graphdiag report` says why."
        )
    if wishes.budget_mib is not None and setting.memory.mib([1]) is None:
        raise GraphdiagError(
            "--budget-mib: how much memory a graph takes is not known here; give --mib-per-graph."
        )
    if len(wishes.keep) > MOST_BUCKETS:
        raise GraphdiagError(f"--keep: a set has at most {MOST_BUCKETS:,} sizes; keep fewer.")
    return _Planner(setting, wishes).answer()


@dataclass(frozen=True)
class _Decision:
    """The set to recommend, or None, with what is known of it on other traffic, and why."""

    chosen: Ints | None
    gain: Gain | None
    held_out: HeldOut | None
    sentence: str


class _Planner:
    def __init__(self, setting: Setting, wishes: Wishes) -> None:
        self.setting, self.wishes = setting, wishes
        self.memory = setting.memory
        self.problem = setting.problem(wishes.keep, wishes.forbid)
        self.captured = setting.traffic.captured.tolist()
        self.current = as_buckets(setting.rules.normalised(self.captured))
        self.valuer = Valuer(setting, self.problem, self.current)
        self.parts = split(setting.traffic)
        wanted = max(
            FRONTIER, 2 * len(self.current), 2 * len(self.problem.keep), wishes.max_graphs or 0
        )
        most = min(wanted, len(self.problem.candidates), MOST_BUCKETS)
        self.sets = BestSets(self.problem, wishes, self.memory, most)
        self.limits = sentences.limits(wishes.max_graphs, wishes.budget_mib)

    def answer(self) -> BucketAnswer:
        setting, wishes, plan = self.setting, self.wishes, self.valuer.plan
        frontier = self.sets.frontier()
        knee = self.sets.knee(frontier)
        at_knee = None if knee is None else frontier[knee]
        same = self.sets.best(len(self.current)) if len(self.current) else None
        current = plan(self.current) if len(self.current) else None
        change, move, ends_trap = self._changes()
        decided = self._decided(self._chosen(same, at_knee), current, change, ends_trap)
        chosen, rules, what_if = decided.chosen, setting.rules, wishes.what_if
        pasted = (
            {} if chosen is None else flags(chosen.tolist(), setting.config, setting.list_phase)
        )
        return BucketAnswer(
            format=1,
            source=setting.source,
            engine=setting.engine,
            engine_version=rules.version if setting.engine else None,
            phase=setting.phase,
            axis=setting.traffic.axis,
            steps=float(setting.traffic.counts.sum()),
            shares=setting.traffic.is_share,
            priced_in=self.valuer.unit,
            slope=slope_of(setting.times),
            sentence=decided.sentence,
            current=current,
            best_single_change=change,
            best_move=move,
            best_same_count=None if same is None else plan(same),
            recommended=None if chosen is None else plan(chosen),
            gain=decided.gain,
            frontier=[plan(buckets) for buckets in frontier],
            knee=None if at_knee is None else len(at_knee),
            what_if=None if what_if is None else plan(as_buckets(rules.normalised(what_if))),
            what_if_remarks=[] if what_if is None else rules.complaints(what_if),
            held_out=decided.held_out,
            drop_candidates=self._drops(),
            sizes=size_costs(self.problem, self.current, setting.times),
            flags=pasted,
            variants=[variant.name for variant in self.memory.variants if variant.name],
            not_identifiable=[*setting.not_identifiable, *self.memory.notes],
            notes=[
                *setting.notes,
                *self._illegal(),
                *self._unseen(chosen),
                *self._rare_largest(chosen),
                *self._more(decided),
            ],
        )

    def _decided(
        self,
        chosen: Ints | None,
        current: Plan | None,
        change: SingleChange | None,
        ends_trap: SingleChange | None,
    ) -> _Decision:
        """Decide whether ``chosen`` is recommended, a single change in its place, or nothing."""
        tested = None if chosen is None else self._tested(len(chosen))
        held_out = None if chosen is None else self._held_out(len(chosen))
        settled = self._settles(chosen, tested)
        if ends_trap is not None:
            if settled is None:
                return _Decision(chosen, tested, held_out, ends_trap.sentence)
            return _Decision(as_buckets(ends_trap.plan.buckets), None, None, ends_trap.sentence)
        is_noise = tested is not None and settled == sentences.within_noise(tested)
        if tested is not None and is_noise and change is not None and change.gain is not None:
            told = sentences.rather(change.sentence, tested)
            return _Decision(as_buckets(change.plan.buckets), change.gain, None, told)
        if (is_noise or settled == sentences.BEST_ALREADY) and self._added is not None:
            why = self._added.why
            told = f"{why} {sentences.NONE_BETTER}"
            if tested is not None and is_noise:
                told = sentences.rather(why, tested)
            return _Decision(as_buckets(self._added.buckets), None, None, told)
        if chosen is None or settled is not None:
            told = settled or self._nothing_fits()
            return _Decision(None, tested, held_out, told)
        told = sentences.conclusion(
            current, self.valuer.plan(chosen), tested, held_out, self.limits
        )
        return _Decision(chosen, tested, held_out, told)

    @cached_property
    def _added(self) -> Recommendation | None:
        """Return what ``graphdiag report`` would add, where that is legal and granted."""
        advice = None if self.setting.traffic.is_share else recommend(self.setting)
        if advice is None or self.setting.rules.refusals(advice.buckets):
            return None
        wishes, sizes = self.wishes, advice.buckets
        forbidden = set(sizes) & set(wishes.forbid)
        return advice if not forbidden and wishes.granted_by(sizes, self.memory) else None

    def _more(self, decided: _Decision) -> list[str]:
        """Say what ``graphdiag report`` would add, where something else is recommended."""
        if decided.chosen is None or not len(self.current):
            return []
        if self._added is None or self._added.buckets == decided.chosen.tolist():
            return []
        return [sentences.with_more(self._added.why)]

    def _chosen(self, same: Ints | None, at_knee: Ints | None) -> Ints | None:
        """Return the set to recommend: within the budget, else of the same count, else the knee."""
        if self.wishes.has_budget:
            return self.sets.best(self.sets.most)
        return same if len(self.current) else at_knee

    def _nothing_fits(self) -> str:
        wishes = replace(self.wishes, budget_mib=None)
        sets = BestSets(self.problem, wishes, self.memory, self.sets.most)
        taken = (self.memory.mib(buckets.tolist()) for buckets in sets.frontier())
        known = [mib for mib in taken if mib is not None]
        return sentences.nothing_fits(self.limits, min(known, default=None))

    def _settles(self, chosen: Ints | None, tested: Gain | None) -> str | None:
        """Return why the current set stays, or None where ``chosen`` is to be recommended."""
        if chosen is None:
            if self.sets.none_pays():
                return sentences.EAGER_WINS
            return self._nothing_fits()
        if not len(self.current) or not self.wishes.granted_by(self.current.tolist(), self.memory):
            return None
        if not self.valuer.is_priced(self.current):
            return sentences.NO_PRICE
        if self.valuer.saved(chosen) <= 0:
            return sentences.BEST_ALREADY
        if tested is not None and not tested.is_real:
            return sentences.within_noise(tested)
        return None

    def _changes(self) -> tuple[SingleChange | None, SingleChange | None, SingleChange | None]:
        """Return the best single change, the best move, and the way out of a fallback trap."""
        if not len(self.current):
            return None, None, None
        changes = SingleChanges(self.valuer, self.sets, self.parts)
        ends_trap = changes.out_of_the_trap()
        if ends_trap is not None:
            return ends_trap, None, ends_trap
        if not self.valuer.is_priced(self.current):
            return None, None, None
        return changes.best(), changes.best_move, None

    def _fitted(self, count: int, parts: Split) -> Ints | None:
        """Return the best ``count`` buckets for the part of the traffic to fit on."""
        problem = self.problem.of(parts.fit)
        sets = BestSets(problem, self.wishes, self.memory, min(count, self.sets.most))
        return sets.best(count)

    def _tested(self, count: int) -> Gain | None:
        """Return what ``count`` buckets gain over the current ones beyond chance."""
        buckets = None if self.parts is None else self._fitted(count, self.parts)
        if self.parts is None or buckets is None:
            return None
        return self.valuer.gain(buckets, self.parts)

    def _held_out(self, count: int) -> HeldOut | None:
        """Return how ``count`` buckets fitted on the first half do on the second."""
        parts = split_in_time(self.setting.traffic) or self.parts
        if parts is None or parts.how == "alternating":
            return None
        buckets = self._fitted(count, parts)
        if buckets is None:
            return None
        service = serve(self.problem.of(parts.rest), buckets)
        return HeldOut(
            fit_share=parts.fit_share,
            padding_ratio=service.padding_ratio,
            fallback_rate=service.fallback_rate,
            gain=self.valuer.gain(buckets, parts),
            how=parts.how,
        )

    def _drops(self) -> list[DropCandidate]:
        found = buckets_of(self.problem, self.current)
        total = self.problem.weights.sum()
        current = self.current.tolist()
        whole = self.memory.mib(current)
        drops = []
        for size in current:
            steps = float(self.problem.weights[found == size].sum())
            if steps >= HARDLY * total or size in self.problem.keep:
                continue
            left = self.memory.mib([other for other in current if other != size])
            drops.append(
                DropCandidate(
                    size=size,
                    steps=steps,
                    graphs=self.memory.graphs([size]),
                    memory_mib=None if whole is None or left is None else whole - left,
                )
            )
        return drops

    def _illegal(self) -> list[str]:
        """Say what the engine would make of the current list, where that is not what it says."""
        if self.captured == self.current.tolist():
            return []
        refusals = self.setting.rules.refusals(self.captured)
        return [f"Of the sizes captured now, {refusal}" for refusal in refusals]

    def _unseen(self, chosen: Ints | None) -> list[str]:
        """Say for which sizes the current set has buckets and the recommended one has none."""
        if chosen is None or not len(self.current):
            return []
        sizes, unit, notes = self.setting.traffic.sizes, self.setting.unit, []
        least, most = int(sizes[0]), int(sizes[-1])
        if self.current[0] < least and chosen[0] > self.current[0] and chosen[0] >= least:
            notes.append(sentences.unseen_below(least, int(chosen[0]), unit))
        above = chosen[chosen >= most]
        top = int(above[0]) if len(above) else int(chosen[-1])
        beyond = int(above[1]) if len(above) > 1 else None
        lost = self.current[(self.current > top) & (self.current < (beyond or np.inf))]
        if len(lost) and not ((sizes > top) & (sizes <= lost[-1])).any():
            notes.append(sentences.unseen_above(top + 1, int(lost[-1]), beyond, unit))
        return notes

    def _rare_largest(self, chosen: Ints | None) -> list[str]:
        """Say where a graph larger than any now is recommended for few steps, memory unpriced."""
        if chosen is None or not len(self.current) or chosen[-1] <= self.current[-1]:
            return []
        largest = int(chosen[-1])
        weights = self.problem.weights
        share = float(weights[buckets_of(self.problem, chosen) == largest].sum() / weights.sum())
        if share >= RARE or self.memory.mib([largest]) is not None:
            return []
        return [sentences.rare_largest(largest, share, self.setting.unit)]
