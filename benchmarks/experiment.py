"""What the bundled engine adds to the model that it runs: dispatch, replay, recording.

Set ``GRAPHDIAG_TORCH_PYTHON`` to a Python that has torch, pyarrow, numpy and msgspec, and have a
C++ compiler: the replay is that of inductor's code for one bucket. What is compared takes turns;
medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row, interleaved

VARIABLE = "GRAPHDIAG_TORCH_PYTHON"
ROOT = Path(__file__).parents[1]
BUCKET = 16
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def rows() -> list[Row]:
    python = os.environ.get(VARIABLE)
    if not python:
        print(f"experiment: set {VARIABLE} to a Python that has torch", file=sys.stderr)
        return []
    path = os.pathsep.join((str(ROOT), str(ROOT / "collectors")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    environment.pop("GRAPHDIAG_TRACE", None)
    command = [python, __file__, "measure"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        Row("dispatcher, a decision", found["dispatch_us"], "us", "< 1"),
        Row(
            f"replay of bucket {BUCKET} on a CPU, on top of the compiled call",
            100 * (found["replay_us"] / found["bare_us"] - 1),
            "%",
            "< 10",
            f"{found['bare_us']:,.0f} us (the bare compiled call)",
        ),
        Row(
            "recording, share of a decode step",
            100 * found["record_us"] / found["step_us"],
            "%",
            "< 0.5",
            f"{found['record_us']:.1f} of {found['step_us']:,.0f} us (the step)",
        ),
    ]


def measure() -> dict[str, float]:
    """Return the figures, in µs; runs where torch is."""
    import torch

    from graphdiag.experiment.engine.backends.static import own_code
    from graphdiag.experiment.engine.dispatcher import FULL, Dispatcher
    from graphdiag.experiment.engine.engine import Engine
    from graphdiag.experiment.engine.faults import set_up
    from graphdiag.experiment.engine.kv_cache import Blocks
    from graphdiag.experiment.engine.scheduler import Scheduler, Sequence
    from graphdiag.experiment.plan import EngineSize, Request, RunPlan
    from graphdiag_collectors import Recorder, torch_hooks

    torch.set_num_threads(1)
    dispatcher = Dispatcher()
    dispatcher.initialize(SIZES, SIZES)
    found = {"dispatch_us": _per_call(dispatcher) / 1e3}
    size = EngineSize(max_requests=BUCKET)
    plan = RunPlan("graphs", "", (Request(0, 28, 100),), (BUCKET,), size)
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.inference_mode(),
        Recorder(folder) as recorder,
    ):
        torch_hooks.install(recorder)
        blocks = Blocks(BUCKET * 8, size.block_tokens)
        engine = Engine(plan, set_up(plan), blocks, recorder)
        engine.warm_up(lambda: False)
        artifact = engine.current[FULL, BUCKET]
        (region,) = engine.state.regions(FULL)
        bare = torch.compile(own_code(region.function, "bare"), dynamic=False)
        given = region.arguments(BUCKET, artifact.result)
        bare(*given)
        graphs: Any = engine.backends.graphs
        replay_ns, bare_ns = interleaved(
            (lambda: graphs.replay(artifact, BUCKET, BUCKET), lambda: bare(*given)), 40, 25
        )
        found |= {"replay_us": replay_ns / 1e3, "bare_us": bare_ns / 1e3}

        scheduler = Scheduler(blocks, BUCKET, 256)
        for number in range(BUCKET):
            scheduler.add(Sequence(number, [1], 1, 100))
        batch = scheduler.schedule(0)
        assert batch is not None
        engine.step(batch)
        (step_ns,) = interleaved((lambda: engine.step(batch),), 40, 25)
        # The model is taken out, so that a few µs can be told apart.
        tokens = torch.zeros(BUCKET, dtype=torch.long)
        graphs.replay = lambda *_: None
        engine._sample = lambda *_: tokens  # type: ignore[method-assign]

        def recorded() -> None:
            engine.recorder = recorder
            engine.step(batch)

        def unrecorded() -> None:
            engine.recorder = nothing
            engine.step(batch)

        nothing: Any = _Nothing()
        with_ns, without_ns = interleaved((recorded, unrecorded), 40, 200)
        torch_hooks.uninstall()
    return found | {"step_us": step_ns / 1e3, "record_us": (with_ns - without_ns) / 1e3}


class _Nothing:
    """A recorder that records nothing, and is its own step."""

    def step(self, **columns: Any) -> _Nothing:
        return self

    eager = fallback = captured = replayed = set = lambda self, *told, **columns: None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _per_call(dispatcher: Any, calls: int = 10_000) -> float:
    dispatch, times = dispatcher.dispatch, []
    for turn in range(60):
        start = perf_counter_ns()
        for number in range(calls):
            dispatch(number % 600, turn % 2 == 0)
        times.append((perf_counter_ns() - start) / calls)
    return median(times)


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measure()))
    else:
        for row in rows():
            print(row)
