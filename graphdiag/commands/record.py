"""``graphdiag record``: run an engine with its collectors on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from graphdiag.commands.common import trace_folder
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@trace_folder
@click.option("--append", is_flag=True, help="Add this run to a trace that exists already.")
@click.argument("command_line", metavar="COMMAND...", nargs=-1, required=True)
@click.pass_context
def command(
    context: click.Context, output: str, append: bool, command_line: tuple[str, ...]
) -> None:
    """Run COMMAND and record every step of the engine in it.

    Example:  graphdiag record -- vllm serve MODEL

    The engine's collectors are switched on by the environment; signals, output and the exit code
    pass through. graphdiag must be installed in the environment that COMMAND runs in.
    """
    trace = Path(output)
    if trace.exists() and not append:
        raise GraphdiagError(
            f"{printable(output)}: exists already; name another folder, or give --append to add a "
            "run to it."
        )
    from graphdiag.recording import has_rows, record_command

    code = record_command(command_line, trace)
    shown = printable(output)
    if has_rows(trace):
        click.echo(f"graphdiag: recorded into {shown}", err=True)
        click.echo(f"Next: graphdiag report {shlex.quote(shown)}", err=True)
    else:
        click.echo(
            f"graphdiag: nothing was recorded into {shown}: no collector ran a step in that "
            "command; is graphdiag installed in its environment?",
            err=True,
        )
    context.exit(code)
