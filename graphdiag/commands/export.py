"""``graphdiag export``: the rows of a trace for another viewer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable, unwritable

if TYPE_CHECKING:
    from graphdiag.timerange import WindowWish


@click.command()
@common.sources
@click.option(
    "--perfetto",
    "output",
    metavar="FILE",
    required=True,
    help="Write Chrome trace-event JSON to FILE (gzip where it ends in .gz), or to - for a pipe.",
)
@common.window
@click.option(
    "--beside",
    metavar="PROFILE",
    help="Count times from the base of this profiler trace; by default that of a new one.",
)
def command(
    sources: tuple[str, ...], output: str, window: WindowWish | None, beside: str | None
) -> None:
    """Write steps, captures and counters for ui.perfetto.dev.

    SOURCE is a recorded trace, a server log or a profiler's JSON. The file's clock is that of a
    torch.profiler trace, so that both opened together line up.
    """
    if output != "-":
        common.refuse_output(output)
        common.keep_sources(output, sources if beside is None else (*sources, beside))
    from graphdiag.reporters import perfetto
    from graphdiag.sources import open_source

    base_ns = None if beside is None else _base_of(beside)
    with (
        common.advancing("exporting") as advance,
        open_source(sources) as opened,
        _opened(output) as file,
    ):
        trace = opened
        if window is not None:
            trace = opened.within(window.over(opened.first_ns() or 0))
        written = perfetto.write(trace, file, base_ns, advance)
    for note in written.notes:
        click.echo(f"Note: {note}", err=True)
    shown = "standard output" if output == "-" else printable(output)
    click.echo(f"Wrote {written.events:,} events to {shown}.", err=output == "-")
    if output != "-":
        click.echo("Next: open it in https://ui.perfetto.dev")


def _base_of(profile: str) -> int:
    from graphdiag.importers.kineto import clock_base
    from graphdiag.importers.source import Source

    return clock_base(Source(profile))


@contextmanager
def _opened(output: str) -> Iterator[BinaryIO]:
    """Yield where the file goes; one on disk appears when it is whole, or not at all."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from isal import igzip

    target = Path(output)
    beside = target.with_name(f".{target.name}.writing")
    try:
        with igzip.open(beside, "wb") if output.endswith(".gz") else beside.open("wb") as file:
            yield file
        beside.replace(target)
    except OSError as error:
        raise GraphdiagError(unwritable(printable(output), error)) from error
    finally:
        beside.unlink(missing_ok=True)
