"""What the torch collector costs: per graph replay, and per call of a compiled function.

The replay is that of a stand-in for ``torch.cuda.CUDAGraph`` with the Python that torch 2.13 and
2.14 run around the launch and no launch, so that the difference is the hook alone. The compiled
call is torch's own: set ``GRAPHDIAG_TORCH_PYTHON`` to a Python that has it. With and without
alternate; CPU time of the thread, minima.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

REPLAYS = 100_000
ROUNDS = 10
VARIABLE = "GRAPHDIAG_TORCH_PYTHON"
_CALL = """
import sys, time, torch
from graphdiag_collectors import torch_hooks
torch.set_num_threads(1)
compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
x = torch.ones(4)
compiled(x)
def cost():
    start = time.thread_time()
    for _ in range(10_000):
        compiled(x)
    return (time.thread_time() - start) * 100
without, hooked = [], []
for _ in range(15):
    without.append(cost())
    torch_hooks.install()
    hooked.append(cost())
    torch_hooks.uninstall()
print(min(without), min(hooked))
"""


def rows() -> list[Row]:
    found = []
    for version, official in (("2.13, class patched", False), ("2.14, official hook", True)):
        without, hooked = _replay(official)
        yardstick = f"{without:.2f} us (the replay's own Python)"
        found.append(Row(f"CUDA graph replay, torch {version}", hooked, "us", "< 0.35", yardstick))
    python = os.environ.get(VARIABLE)
    if not python:
        print(f"torch_hooks: set {VARIABLE} to a Python that has torch", file=sys.stderr)
        return found
    with tempfile.TemporaryDirectory() as folder:
        collectors = str(Path(__file__).parents[1] / "collectors")
        environment = dict(os.environ, PYTHONPATH=collectors, GRAPHDIAG_TRACE=f"{folder}/trace")
        child = [python, "-c", _CALL]
        done = subprocess.run(child, env=environment, check=True, capture_output=True, text=True)
    without, hooked = map(float, done.stdout.split())
    yardstick = f"{without:.2f} us (without)"
    found.append(
        Row("torch.compile, a call that compiles nothing", hooked, "us", "same", yardstick)
    )
    return found


def _replay(official: bool) -> tuple[float, float]:
    """Return µs a replay without the hooks, and µs that they add."""
    from graphdiag_collectors import Recorder, torch_hooks

    module = _stand_in(official)
    before = {name: sys.modules.get(name) for name in ("torch", module.__name__)}
    sys.modules["torch"] = SimpleNamespace(cuda=None, __version__="")  # type: ignore[assignment]
    sys.modules[module.__name__] = module
    replay = module.CUDAGraph().replay if official else None
    graph = module.CUDAGraph()
    without, hooked = [], []
    with tempfile.TemporaryDirectory() as folder, Recorder(folder) as recorder:
        for _ in range(ROUNDS):
            without.append(_cost(replay or graph.replay))
            torch_hooks.install(recorder)
            hooked.append(_cost(replay or graph.replay))
            torch_hooks.uninstall()
    for name, old in before.items():
        sys.modules.pop(name)
        if old is not None:
            sys.modules[name] = old
    return min(without), min(hooked) - min(without)


def _cost(replay: Callable[[], None]) -> float:
    start = time.thread_time()
    for _ in range(REPLAYS):
        replay()
    return (time.thread_time() - start) / REPLAYS * 1e6


def _stand_in(official: bool) -> ModuleType:
    """Return ``torch.cuda.graphs`` as far as a replay goes through it."""
    module = ModuleType("torch.cuda.graphs")
    ends: OrderedDict[int, Any] = OrderedDict()

    class Base:
        def replay(self) -> None:
            pass

        def reset(self) -> None:
            pass

    class Graph(Base):
        _tracker = None

        def replay(self) -> None:
            if self._tracker is not None:
                pass
            super().replay()

        def capture_begin(self) -> None:
            pass

        def capture_end(self) -> None:
            pass

        def reset(self) -> None:
            pass

    class Official(Graph):
        def replay(self) -> None:
            if self._tracker is not None:
                pass
            try:
                Base.replay(self)
            finally:
                if ends:
                    for hook in list(ends.values()):
                        try:  # noqa: SIM105  as torch has it
                            hook(self)
                        except Exception:
                            pass

    class Block:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    def register(hook: Any) -> Any:
        ends[0] = hook
        return SimpleNamespace(remove=ends.clear)

    vars(module).update(CUDAGraph=Official if official else Graph, graph=Block)
    if official:
        vars(module)["register_graph_replay_end_hook"] = register
    return module


if __name__ == "__main__":
    for row in rows():
        print(row)
