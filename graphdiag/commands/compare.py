"""``graphdiag compare``: what changed a step's time from one run to another, and why."""

from __future__ import annotations

import sys
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from graphdiag.commands import common

if TYPE_CHECKING:
    from graphdiag.comparison.answer import Comparison


class Milliseconds(click.FloatRange):
    """A finite number of milliseconds above 0."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is no number of milliseconds.", param, ctx)
        return number


MILLISECONDS = Milliseconds(0, min_open=True)


@click.command()
@common.path_argument("base")
@common.path_argument("candidate")
@common.forms("Print Markdown, for an issue.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
@click.option(
    "--slo-itl-ms",
    type=MILLISECONDS,
    metavar="MS",
    help="Objective for the time between tokens: say the goodput within it.",
)
@click.option(
    "--slo-ttft-ms", type=MILLISECONDS, metavar="MS", help="Objective for the first token."
)
def command(
    base: str,
    candidate: str,
    as_json: bool,
    as_markdown: bool,
    output: str | None,
    slo_itl_ms: float | None,
    slo_ttft_ms: float | None,
) -> None:
    """Say why one run's steps are slower than another's.

    BASE and CANDIDATE are each a recorded trace (a file, a folder or a quoted glob), a server log,
    or a profiler's JSON; one of them may be -, standard input. The change from BASE to CANDIDATE is
    split into terms in ms a step that add up to it.
    """
    form = common.form(as_json, as_markdown)
    output = None if output == "-" else output
    if output is not None:
        common.refuse_output(output)
        common.keep_sources(output, (base, candidate))
    found = common.compare(base, candidate, slo_itl_ms, slo_ttft_ms)
    text = _render(found, form, to_terminal=output is None and sys.stdout.isatty())
    common.deliver(text, output, raw=form is not None)


def _render(found: Comparison, form: str | None, *, to_terminal: bool) -> str:
    if form == "json":
        from graphdiag.reporters import json

        return json.render(found)
    if form == "markdown":
        from graphdiag.reporters import compare_markdown

        return compare_markdown.render(found)
    from graphdiag.reporters import compare_text

    width, color = common.page(to_terminal=to_terminal)
    return compare_text.render(found, width=width, color=color)
