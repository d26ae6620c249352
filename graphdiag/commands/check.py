"""``graphdiag check``: hold a trace against limits, for CI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from graphdiag.checks import LIMITS, Unit, hold, parse_bound
from graphdiag.commands import common
from graphdiag.comparison.regression import DEFAULT, Bound, hold_slowdown, parse_slowdown
from graphdiag.errors import CheckFailed, NotJudged

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

PHASES = ("decode", "prefill", "mixed", "verify")
PERIODS = ("all", "cold", "warm", "steady")


def _reader(unit: Unit) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            return parse_bound(value, unit)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return read


def _slowdown(ctx: click.Context, param: click.Parameter, value: str | None) -> Bound | None:
    if value is None:
        return None
    try:
        return parse_slowdown(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _limits(function: AnyFunction) -> AnyFunction:
    metavars = {"share": "PERCENT", "ratio": "PERCENT", "s": "SECONDS", "rows": "ROWS"}
    for limit in reversed(LIMITS):
        option = click.option(
            f"--{limit.option}",
            limit.metric,
            callback=_reader(limit.unit),
            metavar=metavars[limit.unit],
            help=limit.help,
        )
        function = option(function)
    return function


@click.command()
@common.sources
@_limits
@click.option(
    "--baseline",
    multiple=True,
    metavar="BASE",
    help="Hold the mean step time against this trace's, on equal traffic and beyond noise; repeat "
    "it for each of its files.",
)
@click.option(
    "--max-slowdown",
    callback=_slowdown,
    metavar="LIMIT",
    help=f"Most a step may take longer than the baseline's: 2% or 0.1ms.  [default: {DEFAULT}]",
)
@click.option("--phase", type=click.Choice(PHASES), help="Hold the rates of this phase only.")
@click.option(
    "--period",
    type=click.Choice(PERIODS),
    default="all",
    show_default=True,
    help="Hold this period only: start-up, the first runs of each artifact, or the rest.",
)
def command(
    sources: tuple[str, ...],
    baseline: tuple[str, ...],
    max_slowdown: Bound | None,
    phase: str | None,
    period: str,
    **bounds: float | None,
) -> None:
    """Hold a trace against limits; exit with 1 when one is broken.

    PERCENT is written 1% or 0.01. A metric that the source cannot tell breaks its limit. Where
    only the baseline cannot be judged against, the exit code is 2.
    """
    given = {metric: bound for metric, bound in bounds.items() if bound is not None}
    if not given and not baseline and max_slowdown is None:
        raise click.UsageError("No limit given; give at least one, such as --max-fallback 1%.")
    if phase and period != "all":
        raise click.UsageError("Give --phase or --period, not both: rates are kept by either.")
    if max_slowdown is not None and not baseline:
        raise click.UsageError("--max-slowdown needs --baseline: the trace to be no slower than.")
    slowdowns = []
    if not baseline:
        report = common.diagnose(sources)
    else:
        found = common.compare(baseline, sources)
        report = found.candidate
        bound = max_slowdown or parse_slowdown(DEFAULT)
        slowdowns = [hold_slowdown(found, bound, steady=period == "steady")]
    results = hold(report, given, phase, None if period == "all" else period)

    from graphdiag.reporters import check

    broken = check.broken_lines(report, results, slowdowns)
    if not broken:
        click.echo(check.held_line(report, results, slowdowns))
        return
    for line in broken:
        click.echo(line)
    limits = len(results) + len(slowdowns)
    if len(broken) == sum(not slowdown.is_judged for slowdown in slowdowns):
        raise NotJudged(f"{report.source} cannot be held against the baseline.")
    raise CheckFailed(f"{len(broken)} of {limits} limits broken by {report.source}.")
