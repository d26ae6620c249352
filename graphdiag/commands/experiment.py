"""``graphdiag experiment``: eager, compiled and graph replay on one engine, full cost included."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphdiag.commands import common
from graphdiag.commands.buckets import AMOUNT, SIZES
from graphdiag.commands.compare import MILLISECONDS
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable

if TYPE_CHECKING:
    from graphdiag.experiment.answer import Experiment
    from graphdiag.experiment.setting import Setting

BUCKETS = (1, 4, 8, 16, 32)
_BUNDLED = {"--fault": "faults", "--piecewise": "piecewise", "--by-cpu-time": "by_cpu_time"}
"""Options that other engines do not have, and their parameters."""
FAILED = 1
INTERRUPTED = 130


class Modes(click.ParamType[tuple[str, ...]]):
    """A list of modes: ``eager,compiled,graphs``."""

    name = "modes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the modes as they were given."""
        if isinstance(value, tuple):
            return value
        from graphdiag.experiment.plan import MODES

        told = tuple(part.strip() for part in str(value).split(","))
        unknown = [mode for mode in told if mode not in MODES]
        if unknown:
            self.fail(f"{unknown[0]!r} is no mode; give some of {','.join(MODES)}.", param, ctx)
        if len(set(told)) < len(told):
            self.fail("names a mode twice; name each once.", param, ctx)
        return told


@click.command()
@common.forms("Print Markdown, for an issue.")
@click.option(
    "--workload",
    metavar="NAME",
    default="practice",
    show_default=True,
    help="practice, sweep, poisson:RATE, bursts or azure:FILE.",
)
@click.option("--modes", type=Modes(), help="Some of eager,compiled,graphs.")
@click.option(
    "--buckets",
    type=SIZES,
    help="Sizes to capture; by default 1,4,8,16,32, or those an installed engine chooses.",
)
@click.option(
    "--piecewise",
    type=SIZES,
    metavar="LIST",
    help="Sizes in tokens to capture around attention, for batches with prompts.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 20),
    default=2,
    show_default=True,
    help="Runs of each mode; the first has an empty compile cache.",
)
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="Switch a fault on.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="cpu by default; an installed engine runs where it finds itself.",
)
@click.option(
    "--slo-itl-ms",
    type=MILLISECONDS,
    metavar="MS",
    help="Objective for the time between tokens; by default 1.5 times eager's mean step.",
)
@click.option(
    "--out",
    metavar="DIR",
    default="experiment",
    show_default=True,
    help="New folder for the traces.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
@common.html_page
@click.option(
    "--number", type=click.IntRange(1), metavar="N", help="Lots of a workload, or its requests."
)
@click.option(
    "--speed",
    type=AMOUNT,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Let arrivals come so many times as fast.",
)
@click.option(
    "--by-cpu-time",
    is_flag=True,
    help="Let requests arrive by the engine's CPU time, on a machine that is busy.",
)
@click.option("--max-requests", type=click.IntRange(1, 256), metavar="N", help="Batch limit.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--engine", type=click.Choice(["bundled", "vllm"]), default="bundled", show_default=True
)
@click.option("--model", metavar="PATH", help="Model that vLLM is to serve.")
@click.option("--python", metavar="PROGRAM", help="Python of the engine's environment.")
@click.pass_context
def command(
    context: click.Context,
    /,
    as_json: bool,
    as_markdown: bool,
    out: str,
    output: str | None,
    html: str | None,
    **asked: Any,
) -> None:
    """Say which pays on one engine: eager, compiled, or graphs.

    Each mode runs in processes of its own, interleaved with the others, first with an empty compile
    cache. Its traces are kept in DIR, with the answer as experiment.json.
    """
    form = common.form(as_json, as_markdown)
    output = None if output == "-" else output
    common.check_outputs(output, html, ())
    from graphdiag.experiment.outcome import outcome
    from graphdiag.experiment.probe import check_python
    from graphdiag.experiment.run import check_folder, make_folder, run_all

    setting = _setting(Path(out), asked)
    check_folder(setting.folder)
    device = check_python(setting.python, setting.engine, asked["device"], setting.modes)
    setting = _on_device(setting, device)
    make_folder(setting.folder)
    ran, interrupted = run_all(setting, lambda line: click.echo(f"graphdiag: {line}", err=True))
    try:
        with common.working("reading and judging"):
            found = outcome(setting, ran, interrupted=interrupted)
    except GraphdiagError as error:
        if interrupted:
            error.exit_code = INTERRUPTED
        raise
    _keep(found, setting.folder)
    if html is not None:
        _draw(found, html)
    common.show(found, form, output, markdown="experiment_markdown", text="experiment_text")
    if interrupted:
        context.exit(INTERRUPTED)
    if any(run.ended == "failed" for run in found.runs):
        context.exit(FAILED)


def _setting(folder: Path, asked: dict[str, Any]) -> Setting:
    from graphdiag.experiment.plan import MODES, EngineSize
    from graphdiag.experiment.setting import Setting
    from graphdiag.experiment.workloads import Wanted, make_workload

    engine, model = asked["engine"], asked["model"]
    _check_engine(engine, model, asked)
    if not asked["speed"]:
        raise click.UsageError("--speed 0: no request would ever come; give more than 0.")
    most = asked["max_requests"]
    size = EngineSize() if most is None else EngineSize(max_requests=most)
    wanted = Wanted(size, asked["seed"], asked["number"], asked["speed"])
    buckets = asked["buckets"] or (BUCKETS if engine == "bundled" else ())
    return Setting(
        workload=make_workload(asked["workload"], wanted),
        python=_program(asked["python"]),
        folder=folder,
        modes=asked["modes"] or MODES,
        buckets=tuple(sorted(set(buckets))),
        engine=engine,
        model=None if model is None else str(Path(model).absolute()),
        rounds=asked["rounds"],
        size=size,
        seed=asked["seed"],
        faults=asked["faults"],
        slo_itl_ms=asked["slo_itl_ms"],
        piecewise=asked["piecewise"] or (),
        by_cpu_time=asked["by_cpu_time"],
    )


def _program(python: str | None) -> str:
    """Return the engine's Python; one that is named by its path is found from every folder."""
    if python is None:
        return sys.executable
    return str(Path(python).absolute()) if os.sep in python else python


def _check_engine(engine: str, model: str | None, asked: dict[str, Any]) -> None:
    from graphdiag.experiment.engine.faults import FAULTS

    if (engine == "vllm") != (model is not None):
        raise click.UsageError("--engine vllm and --model PATH go together.")
    if model is not None and not Path(model).exists():
        raise GraphdiagError(f"--model {printable(model)}: no such file or folder; check the path.")
    for option, name in _BUNDLED.items():
        if engine != "bundled" and asked[name]:
            raise click.UsageError(f"{option} is of the bundled engine; others run as they are.")
    _check_sizes(engine, asked)
    faults = asked["faults"]
    known = [fault.name for fault in FAULTS]
    unknown = [name for name in faults if name not in known]
    if unknown:
        raise GraphdiagError(
            f"--fault {printable(unknown[0])}: no fault is called so; give one of "
            f"{', '.join(known)}."
        )


def _check_sizes(engine: str, asked: dict[str, Any]) -> None:
    """Refuse sizes that no batch of the bundled engine has."""
    from graphdiag.experiment.plan import MOST_REQUESTS, EngineSize

    most = {
        "buckets": (MOST_REQUESTS, "requests"),
        "piecewise": (EngineSize().token_budget, "tokens"),
    }
    for name, (largest, what) in most.items():
        size = max(asked[name] or (0,))
        if engine == "bundled" and size > largest:
            raise GraphdiagError(
                f"--{name} {size}: a batch of the bundled engine has {largest} {what} at most; "
                "leave it out."
            )


def _on_device(setting: Setting, device: str) -> Setting:
    """Return ``setting`` on a device, without the modes that the engine does not have there."""
    if setting.engine == "bundled" or device != "cpu" or "graphs" not in setting.modes:
        return replace(setting, device=device)
    told = f"graphs was left out: {setting.engine} has no CUDA graphs on a CPU."
    rest = tuple(mode for mode in setting.modes if mode != "graphs")
    if not rest:
        raise GraphdiagError(f"--modes graphs: {told}")
    return replace(setting, device=device, modes=rest, left_out=(told,))


def _keep(found: Experiment, folder: Path) -> None:
    from graphdiag.reporters import json

    common.deliver(json.render(found), str(folder / "experiment.json"))


def _draw(found: Experiment, html: str) -> None:
    """Write the compare page of the base and the last mode, of their last runs that ended whole."""
    from graphdiag.reporters import compare_html

    last = {run.mode: run.trace for run in found.runs if run.trace and run.ended == "whole"}
    modes = [mode.mode for mode in found.modes if mode.mode != found.base and mode.mode in last]
    base = last.get(str(found.base))
    if base is None or not modes:
        raise GraphdiagError(f"--html {printable(html)}: no two modes ran to hold side by side.")
    told, first, second = common.compare_runs((base,), (last[modes[-1]],), found.slo_itl_ms)
    with common.working("drawing"):
        page = compare_html.render(told, first.summary, second.summary)
    common.deliver(page, html, raw=True)
