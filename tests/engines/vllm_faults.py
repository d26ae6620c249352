"""Breaks the collector in the real vLLM, and notes what the engine did meanwhile.

``vllm_faults.py MODEL FOLDER [DISK READONLY]`` runs every fault in one engine, each with a trace of
its own in FOLDER, or on DISK, a small file system, and prints one line of JSON: by fault the sizes
of the steps in the order the engine ran them, and whether the tokens were those of the engine
without a recording. With ``STEP_LOG`` it kills the worker of an engine instead.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import multiprocessing
import os
import resource
import shutil
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_faulty import OPTIONS, Disk, Engine, Found, ask, fill, recording, started_with


def full(engine: Engine, disk: Path) -> Found:
    """The disk is full for a while."""
    found: Found = {}
    with recording(disk / "full.parquet", found) as flush:
        engine.serve(found)
        flush()
        ballast = fill(disk)
        for _ in range(3):
            engine.serve(found)
            flush()
        ballast.unlink()
        engine.serve(found)
    shutil.copytree(disk / "full.parquet", Path(sys.argv[2]) / "full.parquet")
    shutil.rmtree(disk / "full.parquet")
    return found


def full_to_the_end(engine: Engine, disk: Path) -> Found:
    """The disk is full when the first row comes and stays so."""
    found: Found = {}
    with recording(disk / "never.parquet", found):
        fill(disk)
        engine.serve(found)
    found["files"] = [path.name for path in (disk / "never.parquet").iterdir()]
    (disk / "ballast").unlink()
    return found


def limited(engine: Engine, folder: Path) -> Found:
    """A file may not grow any more for a while."""
    found: Found = {}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    trace = folder / "limited.parquet"
    with recording(trace, found) as flush:
        engine.serve(found)
        flush()
        (tail,) = trace.iterdir()
        resource.setrlimit(resource.RLIMIT_FSIZE, (tail.stat().st_size + 100, before[1]))
        engine.serve(found)
        flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        engine.serve(found)
    return found


def deleted(engine: Engine, folder: Path) -> Found:
    """Somebody removes the folder."""
    found: Found = {}
    trace = folder / "deleted.parquet"
    with recording(trace, found) as flush:
        engine.serve(found)
        flush()
        shutil.rmtree(trace)
        engine.serve(found)
        flush()
        engine.serve(found)
    return found


def slow(engine: Engine, folder: Path, disk: Disk) -> Found:
    """Every write takes two seconds."""
    found: Found = {}
    took: dict[str, list[float]] = {"plain": [], "slow": []}
    during = 0
    for _ in range(3):
        engine.generate()
        took["plain"] += engine.intervals()
    with recording(folder / "slow.parquet", found):
        engine.serve(found)
        disk.seconds = 2.0
        assert disk.sleeping.wait(10)
        while during <= 100 or len(disk.slept) < 1:
            engine.serve(found)
            took["slow"] += engine.intervals()
            during += sum(_asleep(disk, start) for start, _ in engine.steps)
        disk.seconds = 0.0
    for _ in range(3):
        engine.generate()
        took["plain"] += engine.intervals()
    found["median_s"] = {name: statistics.median(each) for name, each in took.items()}
    found["longest_s"] = {name: max(each) for name, each in took.items()}
    found["during"] = during
    return found


def _asleep(disk: Disk, moment: float) -> bool:
    past = any(start <= moment <= end for start, end in disk.slept)
    return past or (disk.sleeping.is_set() and moment <= time.perf_counter())


def behind(engine: Engine, folder: Path, disk: Disk) -> Found:
    """The writer hangs at the disk until the rows do not fit into memory any more."""
    from graphdiag_collectors import blocks

    found: Found = {}
    room = blocks.BLOCKS, blocks.BLOCK_ROWS
    blocks.BLOCKS, blocks.BLOCK_ROWS = 4, 32
    with recording(folder / "behind.parquet", found) as flush:
        engine.serve(found)
        disk.seconds = 600.0
        assert disk.sleeping.wait(10)
        for _ in range(5):
            engine.serve(found)
        disk.seconds = 0.0
        disk.awake.set()
        for _ in range(3):  # the engine's thread looks for room again after 64 rows
            flush()
            engine.serve(found)
    blocks.BLOCKS, blocks.BLOCK_ROWS = room
    return found


def fork(engine: Engine, folder: Path, disk: Disk) -> Found:
    """The worker forks in the middle of a step, while the writer is busy writing."""
    from graphdiag_collectors import session

    found: Found = {"parent": os.getpid(), "children": {}, "codes": {}}

    def child_that(name: str, work: Callable[[], None]) -> None:
        disk.seconds = 0.5
        assert disk.sleeping.wait(10)
        disk.seconds = 0.0
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        found["children"][name] = child
        found["codes"][name] = os.waitpid(child, 0)[1]

    def records() -> None:
        recorder = session.current()
        assert recorder is not None
        for _ in range(3):
            recorder.record(requested=7)
        session.close()

    with recording(folder / "fork.parquet", found):
        engine.at_step = {
            10: lambda: child_that("leaves", lambda: None),
            15: lambda: child_that("records", records),
            20: lambda: child_that("closes", session.close),
        }
        engine.serve(found)
    return found


def twice(engine: Engine, folder: Path) -> Found:
    """The plugin is loaded again: by its two entry points, and as a module of another name."""
    import vllm.plugins

    from graphdiag_collectors import vllm as collector

    found: Found = {}
    with recording(folder / "twice.parquet", found):
        engine.serve(found)
        vllm.plugins.plugins_loaded = False
        vllm.plugins.load_general_plugins()
        engine.serve(found)
        spec = importlib.util.spec_from_file_location("again", str(collector.__file__))
        assert spec is not None
        assert spec.loader is not None
        again = importlib.util.module_from_spec(spec)
        sys.modules["again"] = again
        spec.loader.exec_module(again)
        again.register()
        again.install()
        engine.serve(found)
        again.uninstall()
        engine.serve(found)
    engine.serve(found)  # off again
    return found


def raising(engine: Engine, folder: Path) -> Found:
    """A hook raises twice in three steps, and then at every step."""
    from graphdiag_collectors import vllm_steps

    found: Found = {}
    finish = vllm_steps.Steps.finish
    calls = iter(range(10**9))

    def sometimes(*args: Any) -> None:
        if next(calls) % 3:
            raise RuntimeError("injected now and then")
        finish(*args)

    def always(*_: Any) -> None:
        raise RuntimeError("injected always")

    with recording(folder / "raising.parquet", found) as flush:
        engine.serve(found)
        vllm_steps.Steps.finish = sometimes  # type: ignore[method-assign]
        engine.serve(found)
        flush()
        found["sometimes"] = ask("status")["collectors"]["vllm"]["off"]
        vllm_steps.Steps.finish = finish  # type: ignore[method-assign]
        engine.serve(found)
        flush()
        vllm_steps.Steps.finish = always  # type: ignore[method-assign]
        engine.serve(found)
        vllm_steps.Steps.finish = finish  # type: ignore[method-assign]
        engine.serve(found)  # it stays off
    return found


def garbage(engine: Engine, folder: Path) -> Found:
    """The garbage collector runs all the time, on everything, or on nothing."""
    found: Found = {}
    threshold = gc.get_threshold()
    with recording(folder / "garbage.parquet", found):
        gc.set_threshold(5, 1, 1)
        engine.serve(found)
        gc.freeze()
        engine.serve(found)
        gc.disable()
        engine.serve(found)
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*threshold)
        gc.collect()
        engine.serve(found)
    return found


def spawned(engine: Engine, folder: Path) -> Found:
    """The engine starts processes that inherit its environment; one of them records."""
    found: Found = {"parent": os.getpid(), "children": {}, "codes": []}
    context = multiprocessing.get_context("spawn")
    with recording(folder / "spawned.parquet", found):
        engine.serve(found)
        for work in (loads, loads_and_records):
            process = context.Process(target=work)
            process.start()
            process.join(60)
            found["children"][work.__name__] = process.pid
            found["codes"].append(process.exitcode)
        engine.serve(found)
    return found


def loads() -> None:
    from graphdiag_collectors import vllm

    vllm.register()
    assert vllm.STATE is not None  # GRAPHDIAG_TRACE came along


def loads_and_records() -> None:
    from graphdiag_collectors import session

    loads()
    recorder = session.recorder({"engine": "mine"})
    assert recorder is not None
    recorder.record(requested=7)


def another_run(engine: Engine, folder: Path) -> Found:
    """The folder holds another run."""
    found: Found = {}
    trace = folder / "runs.parquet"
    with recording(trace, found, "first"):
        engine.serve(found)
    (part,) = trace.iterdir()
    found["part"] = part.name
    before = part.read_bytes()
    with recording(trace, found, "second"):
        engine.serve(found)
    found["kept"] = part.read_bytes() == before
    return found


def a_file(engine: Engine, folder: Path) -> Found:
    """``GRAPHDIAG_TRACE`` names a file."""
    found: Found = {}
    trace = folder / "file.parquet"
    trace.write_text("mine")
    with started_with(trace):
        engine.serve(found)
    found["text"] = trace.read_text()
    return found


def read_only(engine: Engine, place: Path) -> Found:
    """``GRAPHDIAG_TRACE`` names a folder that cannot be made, and one nobody may write into."""
    found: Found = {}
    for name in ("missing", "there"):
        with started_with(place / name):
            engine.serve(found)
    return found


def killed(model: str) -> None:
    """Kill the worker of an engine of several processes while it steps, after three seconds."""
    from vllm import LLM
    from vllm_child import generate
    from vllm_lab import logged

    llm = LLM(model=model, **OPTIONS)
    log = Path(os.environ["STEP_LOG"])
    times: list[int] = []

    def kill() -> None:
        while not log.exists() or len(steps := logged(log)[1]) < 300:
            time.sleep(0.1)
        time.sleep(max(0.0, 3.2 - (time.time_ns() - steps[0][0]) * 1e-9))
        times.append(time.time_ns())
        os.kill(logged(log)[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    error = None
    while error is None and len(times) < 1:
        try:
            generate(llm)
        except Exception as raised:
            error = type(raised).__name__
    print(json.dumps({"killed_ns": times[0], "error": error}), flush=True)
    os._exit(0)


def main() -> None:
    model, folder, *mounted = sys.argv[1:]
    if "STEP_LOG" in os.environ:
        killed(model)
        return
    home = Path(folder)
    engine = Engine(model)
    found: Found = {}

    def run(fault: Callable[..., Found], *places: Any) -> None:
        start = time.perf_counter()
        found[fault.__name__] = fault(engine, *places)
        print(f"{fault.__name__}: {time.perf_counter() - start:.1f} s", file=sys.stderr)

    disk = Disk()
    for fault in (limited, deleted, twice, raising, garbage, spawned, another_run, a_file):
        run(fault, home)
    for fault in (slow, behind, fork):
        run(fault, home, disk)
    if mounted:
        small, closed = map(Path, mounted)
        run(full, small)
        run(full_to_the_end, small)
        run(read_only, closed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
