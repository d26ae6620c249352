"""A mode held against the base, round by round, and judged after its full cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphdiag.comparison.answer import Comparison, Interval, Terms
from graphdiag.comparison.compare import Run, Slo, compare
from graphdiag.experiment.answer import Against, Repayment
from graphdiag.experiment.repayment import repayment
from graphdiag.experiment.seen import SeenMode, first_step, mean
from graphdiag.wording import MISSING, figure, measure

Runs = Mapping[tuple[str, int], Run]
"""Every run as a comparison takes it, by mode and round."""


def against(base: SeenMode, mode: SeenMode, runs: Runs, slo_itl_ms: float | None) -> Against | None:
    """Compare ``mode`` with ``base`` in each round that both have; None where they share none."""
    found = _compared(base, mode, runs, slo_itl_ms)
    if not found:
        return None
    change = mean(one.steady_matched_ms_per_step for one in found)
    interval = hull([one.steady_matched_ci95 for one in found])
    judged = [one.objectives for one in found if one.objectives is not None]
    gain = mean(one.gain_tokens_per_s for one in judged)
    gain_ci95 = hull([one.gain_ci95 for one in judged])
    step_ms = mode.step_ms

    def repaid(*, cold: bool) -> Repayment:
        later = _later(base, mode, cold=cold)
        return repayment(later, change, interval, step_ms)

    warm = any(not run.ran.is_cold for run in mode.runs)
    cost = repaid(cold=True)
    succeeded = _succeeded(change, interval, gain, gain_ci95)
    return Against(
        base=base.mode,
        rounds=len(found),
        change_ms_per_step=change,
        change_ci95=interval,
        all_change_ms_per_step=mean(one.delta_ms_per_step for one in found),
        terms=_terms([one.terms for one in found]),
        gain_tokens_per_s=gain,
        gain_ci95=gain_ci95,
        cold=cost,
        warm=repaid(cold=False) if warm else None,
        succeeded=succeeded,
        sentence=_sentence(
            mode.mode, base.mode, change, interval, gain, gain_ci95, cost, succeeded, slo_itl_ms
        ),
    )


def _compared(
    base: SeenMode, mode: SeenMode, runs: Runs, slo_itl_ms: float | None
) -> list[Comparison]:
    rounds = [run.ran.round for run in mode.runs if base.of_round(run.ran.round) is not None]
    return [
        compare(runs[base.mode, each], runs[mode.mode, each], Slo(slo_itl_ms)) for each in rounds
    ]


def hull(intervals: Sequence[Interval]) -> Interval:
    """Return the interval that holds all of them; None where one is missing, or none is there."""
    known = [one for one in intervals if one is not None]
    if not known or len(known) < len(intervals):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _later(base: SeenMode, mode: SeenMode, *, cold: bool) -> float | None:
    """Return how much later than the base's the mode's first step ended, in s."""
    own, other = mode.told(first_step, cold=cold), base.told(first_step, cold=cold)
    return None if own is None or other is None else own - other


def _terms(each: Sequence[Terms | None]) -> Terms | None:
    known = [one for one in each if one is not None]
    if not known or len(known) < len(each):
        return None
    means = {
        name: sum(getattr(one, name) for one in known) / len(known)
        for name in Terms.__struct_fields__
    }
    return Terms(**means)


def _succeeded(
    change: float | None, ci95: Interval, gain: float | None, gain_ci95: Interval
) -> bool | None:
    """Say whether it serves better once its start is repaid: its goodput, else its step times."""
    if gain is not None:
        return (gain_ci95[0] if gain_ci95 else gain) > 0
    if change is not None:
        return (ci95[1] if ci95 else change) < 0
    return None


def _sentence(
    mode: str,
    base: str,
    change: float | None,
    ci95: Interval,
    gain: float | None,
    gain_ci95: Interval,
    cost: Repayment,
    succeeded: bool | None,
    slo_itl_ms: float | None,
) -> str:
    if succeeded is None:
        return f"{mode}: whether it has succeeded is {MISSING}, its steps carry no times."
    told = [f"{mode} {'has' if succeeded else 'has not'} succeeded against {base}"]
    if gain is not None:
        noise = ", which is noise" if gain > 0 and not succeeded else ""
        way = "more" if gain > 0 else "less"
        within = f"within {measure(slo_itl_ms, 'ms')}"
        told.append(f"it serves {_amount(gain, gain_ci95, 'tokens/s')} {way} {within}{noise}")
    if change is not None:
        noise = ", which is noise" if ci95 is not None and ci95[0] <= 0 <= ci95[1] else ""
        way = "shorter" if change < 0 else "longer"
        told.append(f"a step on equal traffic is {_amount(change, ci95, 'ms')} {way}{noise}")
    return f"{': '.join((told[0], '; '.join(told[1:])))}. {cost.sentence}"


def _amount(value: float, ci95: Interval, unit: str) -> str:
    """Return an amount without its sign, its interval turned with it."""
    told = f"{figure(abs(value))} {unit}"
    if ci95 is None:
        return told
    low, high = ci95 if value > 0 else (-ci95[1], -ci95[0])
    return f"{told} (95 %: {figure(low)} to {figure(high)} {unit})"
