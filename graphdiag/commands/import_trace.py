"""``graphdiag import``: any source as a trace."""

from __future__ import annotations

import click

from graphdiag.commands import common


@click.command("import")
@common.sources
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="Trace to write, e.g. trace.parquet."
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(sources: tuple[str, ...], output: str, force: bool) -> None:
    """Write server logs or profiler traces as a trace in Parquet.

    Several SOURCEs are the parts of one, such as rotated logs, in the order given; - is standard
    input.
    """
    common.keep_sources(output, sources)
    common.refuse_overwrite(output, force)
    from graphdiag.sources import import_source

    with common.working("importing"):
        rows = import_source(sources, output)
    common.written(rows, output)
