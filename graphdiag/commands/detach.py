"""``graphdiag detach``: switch the collectors of a running engine off."""

from __future__ import annotations

import shlex

import click

from graphdiag.paths import printable


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.pass_context
def command(context: click.Context, pid: int) -> None:
    """Switch the collectors of a running engine off.

    What was recorded is sealed. The engine runs on as if graphdiag had never been there.
    """
    from graphdiag import attaching
    from graphdiag.reporters import attaching as lines

    answers = attaching.detach(pid)
    for answer in answers:
        failed = answer.error is not None
        line = lines.error_line(answer) if failed else lines.detached_line(answer)
        click.echo(line, err=failed)
    traces = {str(answer.told["trace"]): None for answer in answers if answer.told.get("trace")}
    for trace in traces:
        click.echo(f"Next: graphdiag report {shlex.quote(printable(trace))}")
    context.exit(2 if any(answer.error for answer in answers) else 0)
