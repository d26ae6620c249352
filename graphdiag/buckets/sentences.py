"""What was found about buckets, in sentences a person can forward."""

from __future__ import annotations

from collections.abc import Sequence

from graphdiag.buckets.answer import Gain, HeldOut, Moves, Plan
from graphdiag.buckets.changes import Change, Moved
from graphdiag.buckets.prices import EAGER_ROWS
from graphdiag.wording import count, figure, measure, percent

NO_PRICE = (
    "What the current set costs is not identifiable: it leaves sizes eager, and no eager step was "
    "timed here; a trace of the engine with graphs off as --baseline tells."
)
EAGER_WINS = "Eager steps cost no more than replays here: no set of graphs saves anything."
NONE_BETTER = "No other set of as many graphs as now serves this traffic better."
BEST_ALREADY = "No other set of as many graphs serves this traffic better: keep the current one."


def conclusion(
    current: Plan | None,
    recommended: Plan,
    tested: Gain | None,
    held_out: HeldOut | None,
    limits: str,
) -> str:
    """Return what ``recommended`` gives in place of ``current``, in one or two sentences."""
    number = len(recommended.buckets)
    told = f"The best {count(number, 'size')}{limits} {'pads' if number == 1 else 'pad'} "
    if current is None:
        knee = "" if limits else ": the knee, after which a further graph brings less"
        return f"{told}{_padding(recommended)}{_eager(recommended)}{knee}."
    if current.padding_ratio is None:
        told += _padding(recommended)
    else:
        told += f"{percent(recommended.padding_ratio)} in place of {_padding(current)}"
    if current.fallback_rate or recommended.fallback_rate:
        told += (
            f" and fall back on {percent(recommended.fallback_rate)} of steps in place of "
            f"{percent(current.fallback_rate)}"
        )
    if current.cost_ms_per_step is not None and recommended.cost_ms_per_step is not None:
        told += f", {_ms_less(current.cost_ms_per_step - recommended.cost_ms_per_step)}"
    if tested is not None and tested.per_step > 0:
        told += f"; on traffic it was not fitted to, {amount(tested)} less"
        if tested.unit == "rows" and current.fallback_rate != recommended.fallback_rate:
            told += f" (an eager step counted as {EAGER_ROWS:g} times its rows)"
    return f"{told}.{_drift(held_out) if tested is not None and tested.per_step > 0 else ''}"


def limits(max_graphs: int | None, budget_mib: float | None) -> str:
    """Return the budgets as they follow a noun; empty where there are none."""
    found = []
    if max_graphs is not None:
        found.append(count(max_graphs, "graph"))
    if budget_mib is not None:
        found.append(f"{figure(budget_mib)} MiB")
    return f" within {' and '.join(found)}" if found else ""


def nothing_fits(limits: str, least_mib: float | None) -> str:
    """Return that no set fits the budget, and what the smallest set takes where that is known."""
    if limits:
        least = "" if least_mib is None else f"; the smallest takes {figure(least_mib)} MiB"
        return f"No set of sizes fits{limits}{least}: allow more, or keep fewer sizes."
    return "No set of sizes is legal for this traffic."


def within_noise(gain: Gain) -> str:
    """Return that the best set is not measurably better."""
    return (
        f"Another set of sizes gains {amount(gain)} on traffic it was not fitted to: within noise. "
        "Keep the current one."
    )


def rather(change: str, anew: Gain) -> str:
    """Return ``change``, and that a whole new set is not measurably better."""
    return (
        f"{change} A whole new set gains {amount(anew)} on traffic it was not fitted to: within "
        "noise."
    )


def with_more(why: str) -> str:
    """Return what sizes added to those of now do; ``why`` is what ``graphdiag report`` says."""
    return f"With more graphs, and none of those now dropped: {why}"


def amount(gain: Gain) -> str:
    """Return a gain with its unit and interval."""
    unit = "ms a step" if gain.unit == "ms" else "rows a step"
    if gain.ci95 is None:
        return f"{_rounded(gain.per_step)} {unit}"
    low, high = map(_rounded, gain.ci95)
    return f"{_rounded(gain.per_step)} {unit} (95 %: {low} to {high})"


def moves(run: Moved, steps: float, unit: str) -> Moves:
    """Return whom a change moves, from which bucket to which, with the share of all ``steps``."""
    sizes = str(run.first) if run.first == run.last else f"{run.first} to {run.last}"
    noun = unit if run.first == run.last == 1 else f"{unit}s"
    before, after = run.before or None, run.after or None
    where = "run eager" if after is None else f"replay {after}"
    instead = "in place of eager" if before is None else f"in place of {before}"
    if after is None:
        instead = f"in place of replaying {before}"
    return Moves(
        first=run.first,
        last=run.last,
        steps=run.steps,
        bucket_before=before,
        bucket_after=after,
        sentence=f"{percent(run.steps / steps)} of steps ({sizes} {noun}) {where} {instead}",
    )


def change(change: Change, current: Plan, plan: Plan, helps: Sequence[Moves]) -> str:
    """Return a single change, what it gives and whom it helps, in one sentence."""
    what = {
        "add": "Add {0}",
        "move": "Move {0} to {1}",
        "drop": "Drop {0}",
    }[change.action].format(*change.sizes)
    parts = []
    if current.padding_ratio != plan.padding_ratio:
        parts.append(f"padding from {_padding(current)} to {percent(plan.padding_ratio)}")
    if current.fallback_rate != plan.fallback_rate:
        parts.append(
            f"fallback from {percent(current.fallback_rate)} of steps to "
            f"{percent(plan.fallback_rate)}"
        )
    if current.cost_ms_per_step is not None and plan.cost_ms_per_step is not None:
        parts.append(_ms_less(current.cost_ms_per_step - plan.cost_ms_per_step))
    told = f"{what}: {', '.join(parts) or 'nothing changes but the graphs'}"
    return f"{told}; {helps[0].sentence}." if helps else f"{told}."


def out_of_the_trap(size: int, top: int, unit: str) -> str:
    """Return what ends a fallback trap."""
    return (
        f"Add {size}: it lets a batch of {size} {unit}s replay, which ends the fallback trap; now "
        f"batches above {top} run eager, and stay that large because they do."
    )


def unseen_above(first: int, last: int, bucket: int | None, unit: str) -> str:
    """Return that sizes ``first`` to ``last`` lose their buckets because none was seen."""
    where = f"would replay {bucket}" if bucket else "would run eager"
    return (
        f"No step of {first} to {last} {unit}s was seen, so that the set has no bucket for one: it "
        f"{where}; --keep holds larger sizes for busier hours."
    )


def unseen_below(least: int, bucket: int, unit: str) -> str:
    """Return that small sizes lose their own buckets because none was seen."""
    return (
        f"No step below {least} {unit}s was seen, so that the set has no bucket for one: it would "
        f"replay {bucket}; --keep holds smaller sizes for quieter hours."
    )


def rare_largest(size: int, share: float, unit: str) -> str:
    """Return that the largest graph would be captured for few steps, its memory not in the price.

    ``share`` is that of the steps that would replay it.
    """
    return (
        f"The largest size, {size} {unit}s, would serve {percent(share)} of steps, and the graph "
        f"pool grows with it: its memory is in no price here; --forbid {size} leaves those steps "
        "eager."
    )


def _ms_less(saved: float) -> str:
    return f"{measure(abs(saved), 'ms')} a step {'more' if saved < 0 else 'less'}"


def _padding(plan: Plan) -> str:
    return f"{percent(plan.padding_ratio)} of requested rows"


def _eager(plan: Plan) -> str:
    if not plan.fallback_rate:
        return ""
    return f", and {percent(plan.fallback_rate)} of steps run eager"


def _drift(held_out: HeldOut | None) -> str:
    """Return a warning where a set fitted to the first half does not gain on the second."""
    if held_out is None or held_out.how != "time" or held_out.gain is None:
        return ""
    if held_out.gain.is_real:
        return ""
    return (
        " But the traffic drifts: a set fitted to the first half of the trace gains "
        f"{amount(held_out.gain)} on its second; record for longer before you change it."
    )


def _rounded(value: float) -> str:
    return figure(round(value, 6) + 0.0)
