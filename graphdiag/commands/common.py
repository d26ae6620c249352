"""What several commands need: opening, progress, writing, refusing to overwrite."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable

if TYPE_CHECKING:
    from graphdiag.findings import Report

Command = TypeVar("Command", bound=Callable[..., Any])
Paths = TypeVar("Paths", str, tuple[str, ...])


def _given(context: click.Context, parameter: click.Parameter, value: Paths) -> Paths:
    """Refuse an empty path, which Python would take for the current folder."""
    if "" in (value if isinstance(value, tuple) else (value,)):
        raise click.BadParameter(
            "an empty string names no file (an unset variable?).", context, parameter
        )
    return value


sources = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, callback=_given)


def path_argument(name: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an argument for a path."""
    return click.argument(name, callback=_given)


def forms(markdown_help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--json`` and ``--markdown``."""

    def add(function: Command) -> Command:
        as_markdown = click.option("--markdown", "as_markdown", is_flag=True, help=markdown_help)
        as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
        return as_json(as_markdown(function))

    return add


def form(as_json: bool, as_markdown: bool) -> str | None:
    """Return ``json``, ``markdown`` or None for text.

    Raises
    ------
    click.UsageError
        When both are asked for.
    """
    if as_json and as_markdown:
        raise click.UsageError("Give --json or --markdown, not both.")
    return "json" if as_json else "markdown" if as_markdown else None


def diagnose(paths: Sequence[str]) -> Report:
    """Open what ``paths`` name and return its report."""
    from graphdiag.diagnosis import diagnose
    from graphdiag.sources import open_source

    shown = ["standard input" if path == "-" else printable(path) for path in paths]
    with working("reading and diagnosing"), open_source(paths) as trace:
        return diagnose(trace, ", ".join(shown))


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
                raise GraphdiagError(
                    f"{printable(output)}: is the source itself; name another output file."
                )


def refuse_overwrite(output: str, force: bool) -> None:
    """Raise GraphdiagError when ``output`` is no file to write, or exists without ``--force``."""
    refuse_output(output)
    if output == "-":
        raise GraphdiagError("-: a trace is not written to standard output; name a file.")
    if Path(output).exists() and not force:
        raise GraphdiagError(
            f"{printable(output)}: exists already; name another file or give --force."
        )


def refuse_output(output: str) -> None:
    """Raise GraphdiagError, before any work is done, when no file can be at ``output``."""
    target, shown = Path(output), printable(output)
    if not output:
        raise GraphdiagError("-o: an empty string names no file (an unset variable?).")
    if target.is_dir():
        raise GraphdiagError(f"{shown}: is a folder; name the file to write in it.")
    if not target.absolute().parent.exists():
        raise GraphdiagError(f"{shown}: its folder does not exist; make it first.")


def written(rows: int, output: str) -> None:
    """Say what was written and which command comes next."""
    click.echo(f"Wrote {rows:,} rows to {printable(output)}.")
    click.echo(f"Next: graphdiag report {shlex.quote(printable(output))}")
