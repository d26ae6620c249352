"""``graphdiag profile``: profile the next steps of a running engine."""

from __future__ import annotations

import click


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.option(
    "--steps",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Steps to profile.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when the steps have not come by then.",
)
@click.pass_context
def command(context: click.Context, pid: int, steps: int, timeout: float) -> None:
    """Profile the next steps of a running engine that records.

    What the GPU did in them, launches and kernels land in those steps' rows of its trace.
    """
    from graphdiag import profiling
    from graphdiag.reporters.attaching import error_line
    from graphdiag.reporters.format import clean
    from graphdiag.wording import count, measure

    answers = profiling.profile(pid, steps, timeout)
    for answer in answers:
        if answer.error is not None:
            click.echo(error_line(answer), err=True)
            continue
        figures = answer.told.get("figures", {})
        profiled = count(int(figures.get("steps", 0)), "step")
        took = measure(figures.get("cost_ns", 0) / 1e6, "ms")
        click.echo(f"{answer.pid}  {profiled} profiled; the window took {took}")
        for note in figures.get("notes", []):
            click.echo(f"  {clean(str(note))}")
    context.exit(2 if all(answer.error for answer in answers) else 0)
