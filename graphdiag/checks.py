"""Holding a report against limits: the logic of ``graphdiag check``, without any output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the command's --help reads LIMITS and must not pay for msgspec
    from graphdiag.findings import Metrics, Report

Unit = Literal["share", "ratio", "s", "rows"]
Gap = Literal["dropped", "no_work", "undated", "no_phase"]
"""Why a limit cannot be held though its metric has a value: see :func:`gap`."""


@dataclass(frozen=True)
class Limit:
    """One limit that a person may set.

    Attributes
    ----------
    option
        Name of the command's option, without the dashes in front.
    metric
        The field of :class:`graphdiag.findings.Metrics` that it bounds.
    title
        The metric's name in a sentence.
    unit
        ``"share"`` (a fraction up to 1), ``"ratio"`` (a fraction that may be more),
        ``"s"`` or ``"rows"``.
    help
        One line for ``--help``.
    lowest
        True where the limit is a minimum.
    by_phase, by_period
        False where the metric belongs to no phase or to no period: the limit then always
        holds for the whole trace.
    """

    option: str
    metric: str
    title: str
    unit: Unit
    help: str
    lowest: bool = False
    by_phase: bool = True
    by_period: bool = True


LIMITS = (
    Limit(
        "max-fallback",
        "fallback_rate",
        "fallback rate",
        "share",
        "Most of the steps graphs should serve that may run eager.",
    ),
    Limit(
        "max-padding",
        "padding_ratio",
        "padding ratio",
        "ratio",
        "Most padded rows for each requested row.",
    ),
    Limit("max-waste", "waste", "waste", "share", "Most of the executed rows that may be padding."),
    Limit(
        "min-exact-hit",
        "exact_hit_rate",
        "exact-hit rate",
        "share",
        "Fewest of the steps graphs should serve that must hit their exact bucket.",
        lowest=True,
    ),
    Limit(
        "max-compile-seconds",
        "compile_seconds",
        "compile time",
        "s",
        "Most seconds spent compiling.",
        by_phase=False,
    ),
    Limit(
        "max-capture-seconds",
        "capture_seconds",
        "capture time",
        "s",
        "Most seconds spent capturing graphs.",
        by_phase=False,
    ),
    Limit(
        "max-dropped",
        "dropped_rows",
        "dropped-row count",
        "rows",
        "Most rows that may be missing because recording fell behind.",
        by_phase=False,
        by_period=False,
    ),
)


@dataclass(frozen=True)
class Result:
    """What a limit came to.

    ``scope`` is the phase or period it was held against, or null for the whole trace;
    ``metrics`` are that scope's, null where the trace has no such steps; ``value`` is null
    where the metric is not identifiable, and then the limit does not hold; ``gap`` is why,
    where the metrics alone do not show it.
    """

    limit: Limit
    bound: float
    scope: str | None
    metrics: Metrics | None
    value: float | None
    gap: Gap | None = None

    @property
    def holds(self) -> bool:
        """True where the value is known and within the bound; the bound itself is within."""
        if self.value is None:
            return False
        return self.value >= self.bound if self.limit.lowest else self.value <= self.bound


def hold(
    report: Report, bounds: Mapping[str, float], phase: str | None, period: str | None
) -> list[Result]:
    """Hold a report against limits.

    Parameters
    ----------
    report
        What :func:`graphdiag.diagnosis.diagnose` found.
    bounds
        Metric name to bound: fractions, seconds or rows, as :func:`parse_bound` returns them.
    phase, period
        Narrow the limits to one phase or one period, not both; null for the whole trace.
    """
    results = []
    for limit in LIMITS:
        if limit.metric not in bounds:
            continue
        scope: str | None = None
        metrics: Metrics | None = report.metrics
        if phase and limit.by_phase:
            scope, metrics = phase, report.phases.get(phase)
        elif period and limit.by_period:
            scope, metrics = period, report.periods.get(period)
        why = gap(report, limit, scope)
        value = None if metrics is None or why else getattr(metrics, limit.metric)
        results.append(Result(limit, bounds[limit.metric], scope, metrics, value, why))
    return results


def gap(report: Report, limit: Limit, scope: str | None) -> Gap | None:
    """Return why the source cannot tell whether ``limit`` holds in ``scope``; None where it can.

    ``"dropped"``: it was imported, and says nothing of rows that its recording lost. ``"no_work"``:
    no compilation or capture is on record, which is not the same as none having happened.
    ``"undated"``: some are, and when they ran is not. ``"no_phase"``: the phase of some steps that
    count is unknown, and may be the one asked for.
    """
    if limit.unit == "rows":
        return "dropped" if is_imported(report) else None
    if limit.unit == "s":
        if nothing_made(report.metrics):
            return "no_work"
        return "undated" if scope in report.periods and _undated(report, limit) else None
    unknown = report.phases.get("unknown")
    if scope is None or scope in report.periods or unknown is None or not unknown.eligible_steps:
        return None
    # Rates over replayed steps are known where all that have no phase fell back.
    over_replays = limit.metric in ("padding_ratio", "waste") and unknown.fallback_rate == 1
    return None if over_replays else "no_phase"


def is_imported(report: Report) -> bool:
    """Say whether the report is of an imported source, not of a recording of graphdiag's own."""
    return bool(report.engine.get("importer"))


def nothing_made(metrics: Metrics) -> bool:
    """Say whether no compilation and no capture is on record."""
    counts = metrics.compile_count or metrics.capture_count
    return not (counts or metrics.compile_seconds or metrics.capture_seconds)


def _undated(report: Report, limit: Limit) -> bool:
    count = limit.metric.replace("seconds", "count")
    dated = sum(getattr(metrics, count) for metrics in report.periods.values())
    whole: int = getattr(report.metrics, count)
    return bool(dated < whole)


def parse_bound(text: str, unit: Unit) -> float:
    """Read a bound as a person writes it: ``1%``, ``0.01``, ``30``, ``30s``.

    Raises
    ------
    ValueError
        When it is no number, is negative, is more than a share can be, or may mean a
        percentage as well as a fraction (``5``).
    """
    percent = unit in ("share", "ratio")
    example = {"s": "30", "rows": "0"}.get(unit, "1% or 0.01")
    body = text.strip()
    suffix = "%" if percent else "s" if unit == "s" else ""
    has_suffix = bool(suffix) and body.endswith(suffix)
    try:
        number = Decimal(body[: -len(suffix)].strip() if has_suffix else body)
        value = float(number / 100 if percent and has_suffix else number)
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"{text!r} is no limit; write {example}.") from error
    if not isfinite(value) or value < 0 or (unit == "rows" and value != int(value)):
        raise ValueError(f"{text!r} is no limit; write {example}.")
    if percent and not has_suffix and value >= 1:
        raise ValueError(f"{text!r} may mean percent or a fraction; write it with a % sign.")
    if unit == "share" and value > 1:
        raise ValueError(f"{text!r} is more than 100 %, which this rate cannot be.")
    return value
