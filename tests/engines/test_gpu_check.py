"""The GPU script as far as it goes without a GPU: real torch, with stand-ins for CUDA."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_check.py"
PYTHON = os.environ.get("GRAPHDIAG_TORCH_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="GRAPHDIAG_TORCH_PYTHON names no python that has torch and pyarrow"
    ),
]

STAND_INS = """
import sys, time
import torch

class Event:
    def __init__(self, enable_timing):
        self.at = None
    def record(self):
        self.at = time.perf_counter()
    def query(self):
        return True
    def elapsed_time(self, last):
        return (last.at - self.at) * 1e3

class CUDAGraph:
    def capture_begin(self, pool=None):
        held[0] += 2 << 20
    def capture_end(self):
        pass
    def replay(self):
        time.sleep(0.0005)
    def reset(self):
        pass
    def pool(self):
        return (0, 1)

class graph:
    def __init__(self, cuda_graph, pool=None):
        self.cuda_graph = cuda_graph
    def __enter__(self):
        self.cuda_graph.capture_begin()
    def __exit__(self, *_):
        held[0] += 6 << 20
        self.cuda_graph.capture_end()

held = [1 << 30]
graphs = torch.cuda.graphs
graphs.CUDAGraph, graphs.graph = torch.cuda.CUDAGraph, torch.cuda.graph = CUDAGraph, graph
torch.cuda.Event = Event
for name, answer in {
    "is_available": True, "is_initialized": True, "get_device_name": "Stand-in GPU",
    "is_current_stream_capturing": False, "current_stream": 0, "synchronize": None,
    "empty_cache": None, "mem_get_info": (1 << 30, 1 << 31),
}.items():
    setattr(torch.cuda, name, lambda answer=answer: answer)
torch.cuda.memory_reserved = lambda: held[0]

import gpu_check
# Torch on a CPU has no GPU activities to profile.
real = torch.profiler.profile
torch.profiler.profile = lambda activities: real(activities=activities[:1])
gpu_check.DEVICE = "cpu"
gpu_check.LAYERS, gpu_check.HIDDEN, gpu_check.HEADS, gpu_check.CONTEXT = 1, 64, 4, 8
gpu_check.STEPS, gpu_check.PROFILED = 100, 5
sys.exit(gpu_check.main(sys.argv[1:]))
"""


def run(*command: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [PYTHON, *command], env=environment, capture_output=True, text=True, timeout=170
    )
    return done.returncode, done.stdout, done.stderr


def test_without_a_gpu_it_says_that_nothing_was_checked(tmp_path: Path) -> None:
    code, out, err = run(str(SCRIPT), "-o", str(tmp_path / "trace.parquet"))
    assert (code, out, err) == (3, "", "no GPU: nothing checked\n")
    assert not list(tmp_path.iterdir())


def test_all_but_the_gpus_own_activities_by_stand_ins(tmp_path: Path) -> None:
    from graphdiag.trace import open_trace

    output = tmp_path / "trace.parquet"
    code, out, err = run("-c", textwrap.dedent(STAND_INS), "-o", str(output))
    assert code == 1, err
    failed = {
        line.split("  ")[1].partition(":")[0] for line in out.splitlines() if "FAILED" in line
    }
    assert failed == {
        "a window profiled every step asked for",
        "a replay's kernels are its graph's",
        "GPU span by the profiler agrees with CUDA events",
        "the window has its mark",
    }, out
    assert len(out.splitlines()) == 12
    assert len(open_trace(output).steps().collect()) > 100
