"""``graphdiag report``: the diagnosis of a trace or of any source that can be imported."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable, unwritable

if TYPE_CHECKING:
    from graphdiag.findings import Report

NARROWEST, WIDEST = 40, 100


@click.command()
@common.sources
@common.forms("Print Markdown, for an issue.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
def command(sources: tuple[str, ...], as_json: bool, as_markdown: bool, output: str | None) -> None:
    """Say which of the four cases a trace has, why, and what to do.

    SOURCE is a recorded trace (a file, a folder or a glob), a server log of vLLM or SGLang,
    or a profiler's JSON; several SOURCEs are the parts of one, and - is standard input.
    """
    form = common.form(as_json, as_markdown)
    output = None if output == "-" else output
    if output is not None:
        common.refuse_output(output)
        common.keep_sources(output, sources)
    report = common.diagnose(sources)
    text = _render(report, form, to_terminal=output is None and sys.stdout.isatty())
    if output is not None:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise GraphdiagError(unwritable(printable(output), error)) from error
    elif form is not None:
        click.echo(text.encode(), nl=False)
    else:
        click.echo(text, nl=False)


def _render(report: Report, form: str | None, *, to_terminal: bool) -> str:
    if form == "json":
        from graphdiag.reporters import json

        return json.render(report)
    if form == "markdown":
        from graphdiag.reporters import markdown

        return markdown.render(report)
    from graphdiag.reporters import text

    columns = shutil.get_terminal_size((text.WIDTH, 24)).columns if to_terminal else _columns()
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    width = min(max(columns, NARROWEST), WIDEST)
    return text.render(report, width=width, color=to_terminal and not plain)


def _columns() -> int:
    """Return the width for a pipe or a file: COLUMNS where a person set it, else 80."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isascii() and columns.isdigit() and int(columns) else 80
