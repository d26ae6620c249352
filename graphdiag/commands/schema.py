"""``graphdiag schema``: the trace format, column by column."""

from __future__ import annotations

import click

from graphdiag.commands import common


@click.command()
@common.forms("Print Markdown, for a page.")
def command(as_json: bool, as_markdown: bool) -> None:
    """Print the trace format: each column, its unit and meaning."""
    form = common.form(as_json, as_markdown)
    from graphdiag.reporters import schema_page

    if form == "json":
        text = schema_page.render_json()
    elif form == "markdown":
        text = schema_page.render_markdown()
    else:
        text = schema_page.render_text()
    click.echo(text, nl=False)
