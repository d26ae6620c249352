"""The command line: finds the command, and turns every failure into one sentence.

Nothing heavier than click is imported before a command runs.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import NoReturn, cast

import click

from graphdiag import __version__
from graphdiag.errors import GraphdiagError

COMMANDS = {
    "report": "report",
    "compare": "compare",
    "buckets": "buckets",
    "check": "check",
    "experiment": "experiment",
    "import": "import_trace",
    "export": "export",
    "dashboard": "dashboard",
    "record": "record",
    "attach": "attach",
    "detach": "detach",
    "status": "status",
    "profile": "profile",
    "pack": "pack",
    "schema": "schema",
}
"""Name of each command and the module of :mod:`graphdiag.commands` that holds it."""

COLLECTED = (50_000, 20, 50)
"""Thresholds of the garbage collector: a command makes hundreds of thousands of objects that live
until it ends, and Python's own (700, 10, 10) would walk them again and again for nothing."""

INTERRUPTED = 130
BUG = 70
UNUSABLE = 2


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called ``cmd_name``, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"graphdiag.commands.{COMMANDS[cmd_name]}")
        return cast(click.Command, module.command)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="graphdiag")
def cli() -> None:
    """Say why CUDA graphs and torch.compile disappoint, and what to change.

    Start with:  graphdiag report server.log
    """


def main() -> NoReturn:
    """Run the command line and exit: 0 fine, 1 a broken limit, 2 unusable input."""
    gc.set_threshold(*COLLECTED)
    code = run(sys.argv[1:])
    gc.freeze()  # it ends: walking every object once more takes a third of a second
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; failures become a sentence on stderr."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    try:
        return int(cli.main(arguments, prog_name="graphdiag", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except GraphdiagError as error:
        return _fail(str(error), error.exit_code)
    except PermissionError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}you may not use it; check its permissions.", UNUSABLE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}.", UNUSABLE)
    except Exception as error:
        if os.environ.get("GRAPHDIAG_DEBUG"):
            raise
        return _fail(
            f"this is a bug in graphdiag ({type(error).__name__}: {error}); "
            "run it again with GRAPHDIAG_DEBUG=1 and report the traceback.",
            BUG,
        )


def _open_closed_streams() -> None:
    """Give the commands somewhere to write where the shell closed a stream (``>&-``)."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _fail(sentence: str, code: int) -> int:
    from graphdiag.paths import printable
    from graphdiag.reporters.format import clean

    click.echo(f"graphdiag: {clean(printable(sentence))}", err=True)
    return code
