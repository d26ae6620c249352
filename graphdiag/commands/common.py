"""What several commands need: opening, progress, writing, refusing to overwrite."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphdiag.errors import GraphdiagError

if TYPE_CHECKING:
    from graphdiag.findings import Report

sources = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)


def diagnose(paths: Sequence[str]) -> Report:
    """Open what ``paths`` name and return its report."""
    from graphdiag.diagnosis import diagnose
    from graphdiag.sources import open_source

    with working("reading and diagnosing"), open_source(paths) as trace:
        return diagnose(trace, ", ".join(map(printable, paths)))


def printable(path: str) -> str:
    """Return a path whose undecodable bytes are replaced, so that it can be printed as UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr while the body runs, only where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"graphdiag: {what}"):
        yield


def keep_sources(output: str, paths: Sequence[str]) -> None:
    """Raise GraphdiagError when ``output`` is one of the sources, which it would destroy."""
    target = Path(output)
    if target.exists():
        for path in map(Path, paths):
            if path.exists() and path.samefile(target):
                raise GraphdiagError(f"{output}: is the source itself; name another output file.")


def refuse_overwrite(output: str, force: bool) -> None:
    """Raise GraphdiagError when ``output`` exists and ``--force`` was not given."""
    if Path(output).exists() and not force:
        raise GraphdiagError(f"{output}: exists already; name another file or give --force.")


def written(rows: int, output: str) -> None:
    """Say what was written and which command comes next."""
    click.echo(f"Wrote {rows:,} rows to {printable(output)}.")
    click.echo(f"Next: graphdiag report {shlex.quote(printable(output))}")
