"""``graphdiag dashboard``: the live page over traces that may still be written."""

from __future__ import annotations

import sys

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError


@click.command()
@common.sources
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5007,
    show_default=True,
    help="Port on this machine's own address; 0 takes a free one.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
def command(sources: tuple[str, ...], port: int, show: bool) -> None:
    """Serve the findings as a page that keeps up with a live trace.

    Each SOURCE is a trace of its own, side by side: a recording's folder, a trace, a log or a
    profiler's JSON. The page is served to this machine alone and only reads what is named here.
    """
    if "-" in sources:
        raise GraphdiagError("-: a page that reads again needs a file; name one.")
    try:
        from graphdiag.dashboard.app import serve
    except ModuleNotFoundError as error:
        if error.name not in ("panel", "param"):
            raise
        raise GraphdiagError(
            'The dashboard needs Panel: pip install "graphdiag[dashboard]".'
        ) from error
    if sys.stderr.isatty():
        click.echo("Reading ...", err=True)
    serve(sources, port, show=show, ready=_say)


def _say(url: str) -> None:
    click.echo(f"The dashboard is at {url}; Ctrl-C ends it.", err=True)
