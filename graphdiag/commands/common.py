"""What several commands need: opening, progress, writing, refusing to overwrite."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable, unwritable

if TYPE_CHECKING:
    from graphdiag.comparison.answer import Comparison
    from graphdiag.comparison.compare import Run, Slo
    from graphdiag.diagnosis import Diagnosis
    from graphdiag.findings import Report
    from graphdiag.summary import Summary
    from graphdiag.timerange import WindowWish

NARROWEST, WIDEST = 40, 100

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


trace_folder = click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default="trace.parquet",
    show_default=True,
    help="Folder of the trace.",
)
"""The option of a command that records: where the trace goes."""


class Window(click.ParamType["WindowWish"]):
    """``START..END``: seconds after the first event, or ISO times."""

    name = "window"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> WindowWish:
        """Return the window asked for."""
        from graphdiag.timerange import parse_window

        try:
            return parse_window(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


window = click.option(
    "--window",
    type=Window(),
    metavar="START..END",
    help="Only what began then: seconds after the first event, or ISO times.",
)
"""The option of a command that can look at a stretch of a trace."""


html_page = click.option(
    "--html", metavar="FILE", help="Also write pictures to FILE, one page, no network."
)
"""The option of a command that has a page with pictures."""


def path_argument(name: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an argument for a path."""
    return click.argument(name, callback=_given)


def further(side: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for the further files of one of two runs."""
    return click.option(
        f"--{side}",
        f"more_{side}",
        multiple=True,
        metavar="FILE",
        callback=_given,
        help=f"A further file of the {side}; repeat it for each.",
    )


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


def page(*, to_terminal: bool) -> tuple[int, bool]:
    """Return the columns of a page of text, and whether it may be in colour.

    A terminal is as wide as it says; a pipe or a file as COLUMNS where a person set it, else 80.
    """
    from graphdiag.reporters.text import WIDTH

    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isascii() and told.isdigit() and int(told) else WIDTH
    if to_terminal:
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return min(max(columns, NARROWEST), WIDEST), to_terminal and not plain


def diagnose(paths: Sequence[str], window: WindowWish | None = None) -> Report:
    """Open what ``paths`` name and return its report, or that of what began in ``window``.

    Raises
    ------
    GraphdiagError
        When no step began in it.
    """
    return examine(paths, window)[0].report


def examine(paths: Sequence[str], window: WindowWish | None = None) -> tuple[Diagnosis, Summary]:
    """Return the report as :func:`diagnose`, with its setting, and the summary it is of."""
    from graphdiag.diagnosis import diagnosis_of
    from graphdiag.sources import open_source
    from graphdiag.summary import summarize
    from graphdiag.timerange import iso

    with working("reading and diagnosing"), open_source(paths) as trace:
        if window is None:
            summary = summarize(trace)
            return diagnosis_of(summary, shown(paths)), summary
        first = trace.first_ns() or 0
        summary = summarize(trace, window=window.over(first))
        found = diagnosis_of(summary, shown(paths))
    if not found.report.steps:
        raise GraphdiagError(
            f"{shown(paths)}: no step began {window.over(first).words()}; its first event is of "
            f"{iso(first)}."
        )
    return found, summary


def shown(paths: Sequence[str]) -> str:
    """Return what sentences call the source that ``paths`` are the parts of."""
    return ", ".join("standard input" if path == "-" else printable(path) for path in paths)


def compare(
    base: Sequence[str],
    candidate: Sequence[str],
    slo_itl_ms: float | None = None,
    slo_ttft_ms: float | None = None,
) -> Comparison:
    """Open two sources and compare them; the paths of each are the parts of one."""
    return compare_runs(base, candidate, slo_itl_ms, slo_ttft_ms)[0]


def compare_runs(
    base: Sequence[str],
    candidate: Sequence[str],
    slo_itl_ms: float | None = None,
    slo_ttft_ms: float | None = None,
) -> tuple[Comparison, Run, Run]:
    """Return the comparison as :func:`compare`, and the two runs that it was computed from."""
    from graphdiag.comparison import compare as comparing

    if "-" in base and "-" in candidate:
        raise GraphdiagError("-: standard input can be read once; name a file for one of the two.")
    slo = comparing.Slo(slo_itl_ms, slo_ttft_ms) if slo_itl_ms or slo_ttft_ms else None
    with working("reading and comparing"):
        first, second = _run(base, slo), _run(candidate, slo)
        return comparing.compare(first, second, slo), first, second


def _run(paths: Sequence[str], slo: Slo | None) -> Run:
    from graphdiag.comparison.compare import run_of
    from graphdiag.sources import open_source

    with open_source(paths) as trace:
        return run_of(trace, shown(paths), slo)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr while the body runs, only where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"graphdiag: {what}"):
        yield


@contextmanager
def advancing(what: str) -> Iterator[Callable[[float], None]]:
    """Yield what is told the share that is done, and shows it only where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"graphdiag: {what}") as status:
        yield lambda share: status.update(f"graphdiag: {what}, {share:.0%}")


def deliver(text: str, output: str | None, *, raw: bool = False) -> None:
    """Write ``text`` to the file ``output``, or print it; ``raw`` whatever the terminal's encoding.

    Raises
    ------
    GraphdiagError
        When the file cannot be written.
    """
    if output is None or output == "-":
        click.echo(text.encode() if raw else text, nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise GraphdiagError(unwritable(printable(output), error)) from error


def show(found: Any, form: str | None, output: str | None, *, markdown: str, text: str) -> None:
    """Write ``found`` to ``output`` or print it, in the form that was asked for.

    Raises
    ------
    GraphdiagError
        When the file cannot be written.
    """
    to_terminal = output in (None, "-") and sys.stdout.isatty()
    told = rendered(found, form, to_terminal=to_terminal, markdown=markdown, text=text)
    deliver(told, output, raw=form is not None)


def rendered(found: Any, form: str | None, *, to_terminal: bool, markdown: str, text: str) -> str:
    """Return ``found`` as JSON, or by the reporter that is called ``markdown`` or ``text``."""
    name = {"json": "json", "markdown": markdown}.get(form or "", text)
    reporter = import_module(f"graphdiag.reporters.{name}")
    if form is not None:
        return str(reporter.render(found))
    width, color = page(to_terminal=to_terminal)
    return str(reporter.render(found, width=width, color=color))


def check_outputs(output: str | None, html: str | None, sources: Sequence[str]) -> None:
    """Refuse, before any work is done, outputs that cannot be written or would destroy a source.

    Raises
    ------
    click.UsageError
        When both name one file, or the page is to go where the report is printed.
    GraphdiagError
        When no file can be at one of them, or one is a source.
    """
    if html == "-":
        raise click.UsageError("--html: a page is not printed beside the report; name a file.")
    if html is not None and output is not None and Path(html).resolve() == Path(output).resolve():
        raise click.UsageError("-o and --html name one file; give each its own.")
    for target in (output, html):
        if target is not None and target != "-":
            refuse_output(target)
            keep_sources(target, sources)


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
