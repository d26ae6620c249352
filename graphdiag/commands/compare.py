"""``graphdiag compare``: what changed a step's time from one run to another, and why."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from graphdiag.commands import common

if TYPE_CHECKING:
    pass


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
@common.further("base")
@common.further("candidate")
@common.forms("Print Markdown, for an issue.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
@common.html_page
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
    more_base: tuple[str, ...],
    more_candidate: tuple[str, ...],
    as_json: bool,
    as_markdown: bool,
    output: str | None,
    html: str | None,
    slo_itl_ms: float | None,
    slo_ttft_ms: float | None,
) -> None:
    """Say why one run's steps are slower than another's.

    BASE and CANDIDATE are each a recorded trace (a file, a folder or a quoted glob), a server log,
    or a profiler's JSON; one of them may be -, standard input. Where a run is in several files,
    name the others with --base and --candidate. The change from BASE to CANDIDATE is split into
    terms in ms a step that add up to it.
    """
    form = common.form(as_json, as_markdown)
    output = None if output == "-" else output
    bases, candidates = (base, *more_base), (candidate, *more_candidate)
    common.check_outputs(output, html, (*bases, *candidates))
    found, first, second = common.compare_runs(bases, candidates, slo_itl_ms, slo_ttft_ms)
    if html is not None:
        from graphdiag.reporters import compare_html

        with common.working("drawing"):
            page = compare_html.render(found, first.summary, second.summary)
        common.deliver(page, html, raw=True)
    common.show(found, form, output, markdown="compare_markdown", text="compare_text")
