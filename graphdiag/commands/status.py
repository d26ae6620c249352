"""``graphdiag status``: what the collectors of running engines do."""

from __future__ import annotations

import click


@click.command()
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
@click.pass_context
def command(context: click.Context, pid: int | None, as_json: bool) -> None:
    """Say what a running engine records.

    Rows, drops, and which hooks are on, off or missing; without PID, of every process that can be
    attached to.
    """
    from graphdiag import attaching
    from graphdiag.reporters import attaching as lines

    answers = attaching.status_of_all() if pid is None else attaching.status(pid)
    if as_json:
        click.echo(lines.as_json(answers))
    elif not answers:
        click.echo("No process of yours can be attached to; graphdiag attach --help says how.")
    else:
        for answer in answers:
            if answer.error is not None:
                click.echo(lines.error_line(answer), err=True)
                continue
            for line in lines.status_lines(answer):
                click.echo(line)
    context.exit(2 if any(answer.error for answer in answers) else 0)
