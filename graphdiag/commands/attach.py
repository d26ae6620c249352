"""``graphdiag attach``: switch the collectors of a running engine on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from graphdiag.commands.common import trace_folder
from graphdiag.paths import printable


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@trace_folder
@click.option("--append", is_flag=True, help="Add to a trace that exists already.")
@click.option(
    "--inject",
    is_flag=True,
    help="Bring the collectors into a process that was started without them.",
)
@click.pass_context
def command(context: click.Context, pid: int, output: str, append: bool, inject: bool) -> None:
    """Switch the collectors of a running engine on.

    PID is the engine's process or one that started it: all of its processes are attached to.
    """
    from graphdiag import attaching

    if inject:
        from graphdiag import injecting

        injecting.inject(pid)
    answers = attaching.attach(pid, Path(output), append)

    from graphdiag.reporters import attaching as lines

    for answer in answers:
        failed = answer.error is not None
        line = lines.error_line(answer) if failed else lines.attached_line(answer)
        click.echo(line, err=failed)
    if all(answer.error for answer in answers):
        context.exit(2)
    shown = printable(str(Path(output).absolute()))
    click.echo(f"Trace: {shown}")
    click.echo(
        f"Next: graphdiag report {shlex.quote(shown)}, and graphdiag detach {pid} at the end"
    )
    context.exit(2 if any(answer.error for answer in answers) else 0)
