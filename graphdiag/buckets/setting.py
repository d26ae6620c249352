"""All that a bucket set is chosen by, put together: traffic, prices, memory, the engine's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from graphdiag.buckets.engines import ENGINES, Rules, rules_for, variants
from graphdiag.buckets.engines.rules import TITLES, query_len
from graphdiag.buckets.histogram import Histogram, Part, histogram, in_part
from graphdiag.buckets.memory import Memory, measure_memory
from graphdiag.buckets.prices import EAGER_ROWS, RowPrices, TimePrices, measure_prices
from graphdiag.buckets.problem import Ints, Prices, Problem
from graphdiag.buckets.tables import SizeTable
from graphdiag.errors import GraphdiagError
from graphdiag.metrics import REPLAYED, is_real, is_target
from graphdiag.runconfig import configs_differ, last_config, positive_int
from graphdiag.steptable import StepTable, step_table
from graphdiag.summary import Summary
from graphdiag.wording import percent


@dataclass(frozen=True)
class Setting:
    """What :func:`graphdiag.buckets.planner.plan_buckets` chooses by.

    Attributes
    ----------
    source, engine, config, phase
        Where the traffic comes from, its engine where that is known or asked for, its run's
        configuration, and the list asked for.
    traffic, rules, memory
        Requested sizes; what the engine accepts; what a set costs in memory and warm-up.
    times
        Prices in ns, or None where the price is rows.
    seen_replayed
        Largest size that replays now; 0 where none does.
    trapped_up_to
        Size that would have kept the engine out of a fallback trap; None outside one.
    not_identifiable, notes
        Sentences about what the data cannot tell, and what was assumed.
    """

    source: str
    engine: str | None
    config: Mapping[str, Any]
    phase: Part | None
    traffic: Histogram
    rules: Rules
    memory: Memory
    times: TimePrices | None
    seen_replayed: int
    trapped_up_to: int | None = None
    not_identifiable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def prices(self) -> Prices:
        """Prices in ns where there are times, else in rows."""
        return RowPrices() if self.times is None else self.times

    @property
    def unit(self) -> str:
        """What sizes count, as a noun for one."""
        axis = self.traffic.axis
        return "row" if axis is None else axis[:-1]

    @property
    def list_phase(self) -> str:
        """Phase whose list a set is for, where an engine keeps two."""
        return self.phase or self.rules.phase or "decode"

    def problem(self, keep: Sequence[int] = (), forbid: Sequence[int] = ()) -> Problem:
        """Return the problem of choosing a set, with sizes that it must and must not hold.

        Raises
        ------
        GraphdiagError
            When a size to keep is illegal, or kept and forbidden.
        """
        rules, traffic = self.rules, self.traffic
        self._check(keep, forbid)
        wanted = _legal(rules, traffic.sizes, forbid)
        must = {size for size in (*rules.must_contain, *keep) if size not in forbid}
        if self.must_replay and not rules.exact_only:
            top = int(_legal(rules, np.array([self.must_replay]), forbid)[0])
            must.add(top or int(wanted.max(initial=0)))
        if self.trapped_up_to is not None:
            must.add(int(_legal(rules, np.array([self.trapped_up_to]), forbid)[0]))
        must.discard(0)
        candidates = np.union1d(wanted[wanted > 0], np.array(sorted(must), np.int64))
        return Problem(
            sizes=traffic.sizes,
            weights=traffic.counts,
            candidates=candidates.astype(np.int64),
            prices=self.prices,
            keep=tuple(sorted(must)),
            within=rules.within_factor,
            exact_only=rules.exact_only,
        )

    @property
    def must_replay(self) -> int:
        """Largest size that no set may leave eager, since its eager price is not known; else 0.

        Below the smallest eager step that was timed, replay may save far more than there, where the
        device has more to do for each launch.
        """
        if self.times is None or not len(self.times.saved):
            return self.seen_replayed
        sizes = self.traffic.sizes
        replayed = (sizes < self.times.saved_sizes[0]) & (sizes <= self.seen_replayed)
        return int(sizes[replayed].max(initial=0))

    def _check(self, keep: Sequence[int], forbid: Sequence[int]) -> None:
        both = sorted(set(keep) & set(forbid))
        if both:
            raise GraphdiagError(f"{both[0]} is both kept and forbidden; choose one.")
        needed = sorted(set(self.rules.required) & set(forbid))
        if needed:
            title = TITLES[self.rules.engine]
            raise GraphdiagError(
                f"--forbid {needed[0]}: {title} needs it in every list; "
                f"{self.rules.reasons.get('must_contain', 'take it off')}"
            )
        for size in keep:
            if self.rules.legal_above(np.array([size]))[0] != size:
                title = TITLES[self.rules.engine]
                raise GraphdiagError(
                    f"--keep {size}: {title} takes no such size here; "
                    f"{self.rules.refusals([size])[0]}"
                )


def of_summary(
    summary: Summary,
    source: str,
    *,
    engine: str | None = None,
    phase: Part | None = None,
    current: Sequence[int] = (),
    baseline: Summary | None = None,
    trapped_up_to: int | None = None,
    graphs_off: bool = False,
    resample: bool = True,
    table: StepTable | None = None,
) -> Setting:
    """Return the setting of a trace.

    Parameters
    ----------
    engine
        Whose rules hold; by default those of the engine recorded.
    phase
        Which list, where the engine keeps two; by default that of most steps.
    current
        Sizes captured now, where the trace does not tell them.
    baseline
        A trace of the same engine with its graphs off.
    trapped_up_to
        Size that would have kept the engine out of a fallback trap. Batches above the largest
        captured size came only from running eager then: they are no traffic to plan for.
    graphs_off
        Whether eager steps are traffic to plan for, where graphs served none and should not have.
    resample
        Whether prices are measured on resamples too, for intervals.
    table
        The timed steps of ``summary``, where they are at hand.

    Raises
    ------
    GraphdiagError
        When the engine keeps no list of its own for ``phase``, or it is not told which list is
        meant; or when ``baseline`` is of another engine or has no time of an eager step.
    """
    config = last_config(summary.events)
    traffic = histogram(summary, config, phase)
    graphs_off = graphs_off and not len(traffic.sizes)
    if graphs_off:
        traffic = histogram(summary, config, phase, graphs_off=True)
    if current:
        traffic = replace(traffic, captured=np.unique(np.array(current, np.int64)))
    name = engine or _known(config)
    rules = rules_for(name, config, traffic.axis, phase or _part(traffic))
    if engine is None and config.get("engine") != name:
        rules = _unknown_engine(rules, config, traffic)
    else:
        check_list(rules, phase, traffic.axis if config.get("engine") != name else None)
    steps = in_part(phase)
    if traffic.axis is not None:
        steps = steps & (pl.col("axis").is_null() | (pl.col("axis") == traffic.axis))
    if baseline is not None:
        check_baseline(baseline, config, steps, traffic.axis)
    groups = summary.groups.filter(is_real() & is_target())
    mine = groups.filter(steps)
    if table is None or len(mine) < len(groups):
        table = step_table(summary, steps)
    off = None if baseline is None else step_table(baseline, steps)
    times = measure_prices(table, off, resample=resample)
    replayed = mine.filter(pl.col("outcome").is_in(REPLAYED))["requested"].max()
    seen_replayed = int(replayed) if isinstance(replayed, int) else 0
    unknown, notes = [], list(rules.notes)
    if configs_differ(summary.events):
        notes.append(
            "Engine starts of different configurations are in here: their traffic is taken "
            "together, the last one's configuration and sizes count; plan for one alone."
        )
    if graphs_off and len(traffic.sizes):
        seen_replayed = int(traffic.sizes[-1])
        notes.append(
            "Graphs were off in this trace: its eager steps are the traffic that is planned for, "
            "and every set covers the largest."
        )
    if times is not None and rules.exact_only and not len(times.saved):
        times = None  # every set leaves some size eager, at a price that is not known
        unknown.append(
            "Milliseconds a step: padding is off and no eager step was timed, so that sets are "
            "priced in rows; a trace of the engine with graphs off as --baseline tells."
        )
    elif times is None:
        unknown.append(
            "Milliseconds a step: fewer than two buckets were replayed and timed, so that sets are "
            "priced in rows."
        )
    elif not len(times.saved):
        unknown.append(
            "What an eager step costs: none was timed in a phase that also replays, so that every "
            "set covers the sizes that replay now; a trace of the engine with graphs off as "
            "--baseline tells."
        )
    elif (beyond := _beyond_timed(times, traffic)) is not None:
        notes.append(beyond)
    if times is None and traffic.sizes.max(initial=0) > seen_replayed:
        notes.append(
            f"An eager step is taken to cost {EAGER_ROWS:g} rows for each it was asked for."
        )
    if trapped_up_to is not None and len(traffic.captured):
        total, top = traffic.counts.sum(), int(traffic.captured[-1])
        traffic = traffic.up_to(top)
        left_out = percent(1 - traffic.counts.sum() / total)
        notes.append(
            f"The engine was caught in a fallback trap: the {left_out} of steps above {top} came "
            f"from running eager and are left out of every figure; {trapped_up_to} ends it, and "
            "every set holds it."
        )
    memory = measure_memory(summary, variants(name, config))
    return Setting(
        source=source,
        engine=engine or (name if config.get("engine") == name else None),
        config=config,
        phase=phase,
        traffic=traffic,
        rules=rules,
        memory=memory,
        times=times,
        seen_replayed=seen_replayed,
        trapped_up_to=trapped_up_to,
        not_identifiable=tuple(unknown),
        notes=tuple(notes),
    )


def of_table(
    table: SizeTable,
    source: str,
    *,
    engine: str | None = None,
    phase: Part | None = None,
    current: Sequence[int] = (),
) -> Setting:
    """Return the setting of a histogram in a file: sizes and counts, and nothing else known.

    Raises
    ------
    GraphdiagError
        When ``engine`` keeps no list of its own for ``phase``.
    """
    name = engine or "vllm"
    config: dict[str, Any] = {}
    rules = rules_for(name, config, None, phase)
    if engine is not None:
        check_list(rules, phase, None)
    traffic = Histogram(
        sizes=table.sizes,
        counts=table.weights,
        axis=None,
        captured=np.empty(0, np.int64),
        is_share=table.is_share,
    )
    if current:
        traffic = replace(traffic, captured=np.unique(np.array(current, np.int64)))
    notes = list(rules.notes) if engine else []
    if table.spread:
        notes.append(f"Spread evenly over their sizes: {', '.join(table.spread)}.")
    notes.append("Every set covers the largest size: what an eager step costs is not known.")
    return Setting(
        source=source,
        engine=engine,
        config=config,
        phase=phase,
        traffic=traffic,
        rules=rules,
        memory=Memory(variants(name, config), notes=("What a graph costs: give --mib-per-graph.",)),
        times=None,
        seen_replayed=int(table.sizes[-1]),
        not_identifiable=(
            "Milliseconds a step: a histogram has no step times, so that sets are priced in rows.",
        ),
        notes=tuple(notes),
    )


def check_list(rules: Rules, phase: Part | None, axis: str | None) -> None:
    """Raise GraphdiagError where it is not clear, or wrong, which of an engine's lists is meant.

    ``axis`` is that of the steps where they are another engine's.
    """
    title = TITLES[rules.engine]
    if phase is not None and rules.phase is None:
        raise GraphdiagError(
            f"--phase {phase}: {title} keeps one list for all phases; leave --phase out."
        )
    if phase is None and rules.phase is not None and axis == "tokens":
        raise GraphdiagError(
            f"--engine {rules.engine}: {title} keeps two lists, and these steps count the tokens "
            "of all phases; give --phase decode or --phase prefill."
        )


def check_baseline(
    baseline: Summary, config: Mapping[str, Any], steps: pl.Expr, axis: str | None
) -> None:
    """Raise GraphdiagError where ``baseline`` cannot tell what an eager step of ``steps`` costs."""
    theirs, ours = last_config(baseline.events).get("engine"), config.get("engine")
    if theirs is not None and ours is not None and theirs != ours:
        raise GraphdiagError(
            f"--baseline: a trace of {theirs}, and the source is one of {ours}; record the same "
            "engine with its graphs off."
        )
    eager = is_real() & is_target() & pl.col("outcome").is_in(["eager", "fallback"]) & steps
    timed = baseline.groups.filter(eager & (pl.col("dur_ns_weight") > 0))
    if not timed["requested"].drop_nulls().len():
        what = f" that count {axis}" if axis else ""
        raise GraphdiagError(
            f"--baseline: has no eager steps{what} with their times; record the same engine with "
            "its graphs off."
        )


def _beyond_timed(times: TimePrices, traffic: Histogram) -> str | None:
    """Say where the launch saving is taken from the nearest size that was timed."""
    first, last = int(times.saved_sizes[0]), int(times.saved_sizes[-1])
    if not len(traffic.sizes) or first <= traffic.sizes[0] <= traffic.sizes[-1] <= last:
        return None
    at = f"at {first}" if first == last else f"from {first} to {last}"
    return (
        f"Eager steps were timed {at}: at other sizes replay is taken to save what it saves at the "
        "nearest of these, and every set covers the smaller sizes that replay now."
    )


def _legal(rules: Rules, sizes: Ints, forbid: Sequence[int]) -> Ints:
    """Smallest legal size at or above each, none of ``forbid``; 0 where there is none."""
    found = rules.legal_above(sizes)
    barred = np.array(sorted(set(forbid)), np.int64)
    while (hit := np.isin(found, barred) & (found > 0)).any():
        found[hit] = rules.legal_above(found[hit] + 1)
    return found


def _known(config: Mapping[str, Any]) -> str:
    name = config.get("engine")
    return str(name) if name in ENGINES else "vllm"


def _part(traffic: Histogram) -> Part | None:
    return "decode" if traffic.axis == "requests" else None


def _unknown_engine(rules: Rules, config: Mapping[str, Any], traffic: Histogram) -> Rules:
    """Return the rules of an engine nobody knows: any size, and none that loses the ceiling."""
    most = positive_int(dict(config), "max_num_seqs")
    if most is not None and traffic.axis == "tokens":
        most *= query_len(config)
    reach = traffic.captured.max(initial=0)
    contain = () if most is None or most > reach else (most,)
    budget = positive_int(dict(config), "token_budget") if traffic.axis == "tokens" else None
    return replace(rules, notes=(), multiple_of=1, most=budget, must_contain=contain)
