"""After how long a mode's shorter steps have made up for its longer start."""

from __future__ import annotations

from math import inf

from graphdiag.comparison.answer import Interval
from graphdiag.experiment.answer import Repayment
from graphdiag.wording import count, duration

_MS_PER_S, _MS_PER_H = 1e3, 3.6e6


def repayment(
    later_s: float | None,
    change_ms: float | None,
    ci95: Interval,
    step_ms: float | None,
) -> Repayment:
    """Say after how many steps a start that is ``later_s`` longer has paid for itself.

    ``change_ms`` is what a step changes by, negative where it gets shorter, with its interval;
    ``step_ms`` is what the mode's step takes, by which steps become hours without a pause.
    """
    if later_s is None or change_ms is None:
        why = "its start" if later_s is None else "what a step changes by"
        return _null(later_s, f"Not identifiable: {why} was not measured.")
    if change_ms >= 0:
        return _null(later_s, "Never: its steps are no shorter.")
    if later_s <= 0:
        return Repayment(
            later_s=later_s,
            steps=0.0,
            steps_ci95=(0.0, 0.0),
            hours=0.0,
            hours_ci95=(0.0, 0.0),
            sentence="At once: its first step ended no later.",
        )
    steps = later_s * _MS_PER_S / -change_ms
    interval = None if ci95 is None else _steps(later_s, ci95)
    hours = None if step_ms is None else steps * step_ms / _MS_PER_H
    in_hours = (
        None
        if interval is None or step_ms is None
        else (
            _hours(interval[0], step_ms),
            None if interval[1] is None else _hours(interval[1], step_ms),
        )
    )
    return Repayment(
        later_s=later_s,
        steps=steps,
        steps_ci95=interval,
        hours=hours,
        hours_ci95=in_hours,
        sentence=_sentence(later_s, steps, interval, hours),
    )


def _null(later_s: float | None, sentence: str) -> Repayment:
    return Repayment(
        later_s=later_s,
        steps=None,
        steps_ci95=None,
        hours=None,
        hours_ci95=None,
        sentence=sentence,
    )


def _steps(later_s: float, ci95: tuple[float, float]) -> tuple[float, float | None]:
    most, least = -ci95[0], -ci95[1]  # what a step saves, in ms
    latest = later_s * _MS_PER_S / least if least > 0 else inf
    return later_s * _MS_PER_S / most, None if latest == inf else latest


def _hours(steps: float, step_ms: float) -> float:
    return steps * step_ms / _MS_PER_H


def _sentence(
    later_s: float,
    steps: float,
    interval: tuple[float, float | None] | None,
    hours: float | None,
) -> str:
    told = f"A first step {duration(later_s)} later is repaid after {count(round(steps), 'step')}"
    if interval is not None:
        low, high = interval
        upper = "never" if high is None else f"{round(high):,}"
        told += f" (95 %: {round(low):,} to {upper})"
    return f"{told}, {duration(hours * 3600)} without a pause." if hours is not None else f"{told}."
