"""``graphdiag report``: the diagnosis of a trace or of any source that can be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphdiag.commands import common

if TYPE_CHECKING:
    from graphdiag.timerange import WindowWish


@click.command()
@common.sources
@common.forms("Print Markdown, for an issue.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
@common.html_page
@common.window
def command(
    sources: tuple[str, ...],
    as_json: bool,
    as_markdown: bool,
    output: str | None,
    html: str | None,
    window: WindowWish | None,
) -> None:
    """Say which of the four cases a trace has, why, and what to do.

    SOURCE is a recorded trace (a file, a folder or a glob), a server log of vLLM or SGLang,
    or a profiler's JSON; several SOURCEs are the parts of one, and - is standard input.
    """
    form = common.form(as_json, as_markdown)
    output = None if output == "-" else output
    common.check_outputs(output, html, sources)
    found, summary = common.examine(sources, window)
    if html is not None:
        from graphdiag.bucket_advice import plan_beside
        from graphdiag.reporters import report_html

        with common.working("drawing"):
            plan = plan_beside(found.report, summary, found.setting)
            page = report_html.render(found.report, summary, plan)
        common.deliver(page, html, raw=True)
    common.show(found.report, form, output, markdown="markdown", text="text")
