"""Runs every mode of an experiment in a process of its own, with a compile cache of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import graphdiag
import graphdiag_collectors
from graphdiag.errors import GraphdiagError
from graphdiag.experiment.child import run_child
from graphdiag.experiment.plan import RunPlan, RunResult
from graphdiag.experiment.setting import Ran, Setting
from graphdiag.paths import printable, unwritable
from graphdiag.recording import has_rows
from graphdiag.wording import count, duration
from graphdiag_collectors.recorder import RUN_VARIABLE, TRACE_VARIABLE

WORKERS = {"bundled": "graphdiag.experiment.engine", "vllm": "graphdiag.experiment.vllm_worker"}
"""The module that runs one plan, by engine."""

_BOOT = """
import runpy, sys
from importlib.util import module_from_spec, spec_from_file_location
for package in sys.argv[1:3]:
    name = package.rpartition("/")[2]
    spec = spec_from_file_location(
        name, f"{package}/__init__.py", submodule_search_locations=[package]
    )
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
sys.argv[1:] = sys.argv[3:]
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module of this graphdiag: the engine's Python may have another, or none."""

Tell = Callable[[str], None]


def check_folder(folder: Path) -> None:
    """Check that the folder of an experiment is new or empty.

    Raises
    ------
    GraphdiagError
        When something lies there.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        shown = printable(str(folder))
        raise GraphdiagError(f"{shown}: exists already; name another folder with --out.")


def make_folder(folder: Path) -> None:
    """Make the folder of an experiment.

    Raises
    ------
    GraphdiagError
        When it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphdiagError(unwritable(printable(str(folder)), error)) from error


def run_all(setting: Setting, tell: Tell) -> tuple[list[Ran], bool]:
    """Run every mode and round; return what ran, and whether a person broke it off.

    ``tell`` is given a line for each run. A run that fails is told and does not end the others,
    except that its mode is not tried again.
    """
    ran: list[Ran] = []
    order = setting.order()
    with contextlib.suppress(KeyboardInterrupt), _workshop(setting) as workshop:
        for index, (mode, number) in enumerate(order, 1):
            if any(one.mode == mode and one.ended == "failed" for one in ran):
                continue
            tell(f"[{index}/{len(order)}] {mode}, {'cold' if number == 1 else 'warm'} start ...")
            one = workshop.run(mode, number)
            ran.append(one)
            tell(f"[{index}/{len(order)}] {mode}: {_told(one)}")
            if one.ended == "interrupted":
                break
        else:
            return ran, False
    return ran, True


class _Workshop:
    """Where runs happen: ``place`` holds the compile caches."""

    def __init__(self, setting: Setting, place: Path) -> None:
        self.setting, self.place = setting, place
        self.packages = [
            str(Path(str(package.__file__)).resolve().parent)
            for package in (graphdiag, graphdiag_collectors)
        ]

    def run(self, mode: str, number: int) -> Ran:
        folder, name = self.setting.folder, f"{mode}-{number}"
        trace, log = folder / f"{name}.parquet", folder / f"{name}.log"
        plan, result = folder / f"{name}.plan.json", folder / f"{name}.result.json"
        plan.write_bytes(msgspec.json.encode(self._plan(mode, number, trace)))
        command = [self.setting.python, "-c", _BOOT, *self.packages]
        command += [WORKERS[self.setting.engine], str(plan.absolute()), str(result.absolute())]
        with log.open("wb") as output:
            code, interrupted = run_child(command, self._environment(mode), output.fileno(), folder)
        recorded = trace if has_rows(trace) else None
        found = _result(result)
        if interrupted or (found is not None and found.interrupted):
            told = "was interrupted" + ("" if recorded else " before it had recorded anything")
            return Ran(mode, number, "interrupted", recorded, log, found, f"{mode} {told}.")
        if code or found is None or recorded is None:
            why = f"{mode}: {_why(code, log)}; all of it is in {printable(str(log))}."
            return Ran(mode, number, "failed", recorded, log, None, why)
        return Ran(mode, number, "whole", recorded, log, found)

    def _plan(self, mode: str, number: int, trace: Path) -> RunPlan:
        setting = self.setting
        return RunPlan(
            mode=mode,
            trace=str(trace.absolute()),
            requests=setting.workload.requests,
            buckets=setting.buckets,
            size=setting.size,
            device=setting.device,
            seed=setting.seed,
            faults=setting.faults,
            piecewise=setting.piecewise,
            model=setting.model,
            by_cpu_time=setting.by_cpu_time,
            identity={
                "experiment_mode": mode,
                "experiment_round": str(number),
                "experiment_cache": "empty" if number == 1 else "kept",
                "experiment_workload": setting.workload.sentence,
            },
        )

    def _environment(self, mode: str) -> dict[str, str]:
        cache = self.place / f"cache-{mode}"
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in (TRACE_VARIABLE, RUN_VARIABLE)
        }
        return {
            **kept,
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "VLLM_CACHE_ROOT": str(cache / "vllm"),
        }


@contextlib.contextmanager
def _workshop(setting: Setting) -> Iterator[_Workshop]:
    place = Path(tempfile.mkdtemp(prefix="graphdiag-experiment-"))
    try:
        yield _Workshop(setting, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _result(path: Path) -> RunResult | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunResult)
    except (OSError, msgspec.DecodeError):
        return None


def _why(code: int, log: Path) -> str:
    """Return why a run failed, with the last words of its log."""
    how = f"signal {-code} ended it" if code < 0 else f"it ended with code {code}"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it said nothing")
    return f"{how} ({last.removeprefix('error: ')[:300]})"


def _told(ran: Ran) -> str:
    if ran.ended != "whole" or ran.result is None:
        return str(ran.sentence).removeprefix(f"{ran.mode}: ").removeprefix(f"{ran.mode} ")
    result = ran.result
    ready = f"ready after {duration(result.ready_s)}"
    return f"{ready}, {count(result.steps, 'step')}, ended after {duration(result.ended_s)}"
