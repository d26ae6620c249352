"""``graphdiag schema``: the trace format, column by column."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "form", flag_value="json", help="Print JSON, for machines.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, for a page.")
def command(form: str | None) -> None:
    """Print the trace format: every column with its unit and meaning."""
    from graphdiag.reporters import schema_page

    if form == "json":
        text = schema_page.render_json()
    elif form == "markdown":
        text = schema_page.render_markdown()
    else:
        text = schema_page.render_text()
    click.echo(text, nl=False)
