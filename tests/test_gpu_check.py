"""The judgements of the GPU script, over rows made by hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_check.py"
MS = 1_000_000


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


gpu_check = _load()
COLUMNS = (
    *("event", "step", "kind", "bucket", "replays", "dur_ns", "pool_bytes", "gpu_ns", "gap_ns"),
    *("gpu_span_ns", "launches", "kernels", "graph_kernels", "blocked_ns"),
)


def row(event: str, **columns: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "event": event, **columns}


def rows() -> list[dict[str, Any]]:
    """A run in which all is well: every step takes 2 ms, one in ten ran eager."""
    found = [row("capture", dur_ns=30 * MS, pool_bytes=100 << 20)] * 5
    for index in range(gpu_check.STEPS):
        eager = index % 10 == 5
        found.append(row("step", step=index, bucket=None if eager else 8, replays=1 - eager))
        if index % gpu_check.EVERY == 9:
            found[-1]["gpu_span_ns"] = 2 * MS + 30_000
    for index in range(gpu_check.STEPS, gpu_check.STEPS + gpu_check.PROFILED):
        profile = {"gpu_ns": 1_700_000, "gap_ns": 200_000, "launches": 1, "blocked_ns": MS}
        kernels = {"kernels": 60, "graph_kernels": 60}
        found.append(row("step", step=index, bucket=8, replays=1, **profile, **kernels))
    return [*found, row("mark", kind="gpu_window")]


def measured(**other: Any) -> Any:
    count = gpu_check.STEPS + gpu_check.PROFILED
    told = {
        "replays": count - gpu_check.STEPS // 10,
        "spans_ms": [2.0] * count,
        "capture_ns": [31 * MS] * 5,
        "pool_bytes": 500 << 20,
    }
    return gpu_check.Measured(**{**told, **other})


def failed(found: list[dict[str, Any]], own: Any) -> list[str]:
    return [one.what for one in gpu_check.check(found, own) if not one.holds]


def test_where_all_is_well_every_check_holds() -> None:
    assert failed(rows(), measured()) == []


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"replays": 7}, "every replay is in its step's row"),
        ({"capture_ns": [60 * MS] * 5}, "captures take the time they took"),
        ({"capture_ns": [31 * MS] * 4}, "captures take the time they took"),
        ({"pool_bytes": 300 << 20}, "the pool grew by what the allocator took"),
    ],
)
def test_each_figure_is_held_against_the_scripts_own(other: dict[str, Any], what: str) -> None:
    assert failed(rows(), measured(**other)) == [what]


def test_device_times_that_do_not_agree() -> None:
    wrong = measured(spans_ms=[3.0] * (gpu_check.STEPS + gpu_check.PROFILED))
    assert failed(rows(), wrong) == [
        "GPU span by the profiler agrees with CUDA events",
        "GPU span by event pair agrees with CUDA events",
    ]


def test_rows_that_are_missing_are_seen() -> None:
    found = rows()
    lost = found.pop(20)
    assert failed(found, measured()) == [
        "each step has one row, in order",
        *(["every replay is in its step's row"] if lost["replays"] else []),
    ]


def test_an_empty_trace_fails_every_check() -> None:
    checks = list(gpu_check.check([], measured()))
    assert [one.what for one in checks if one.holds] == []


def test_without_torch_or_a_gpu_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import types\ncuda = types.SimpleNamespace(is_available=lambda: False)\n"
    )
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "-o", str(tmp_path / "trace.parquet")],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (3, "no GPU: nothing checked\n")
    assert not (tmp_path / "trace.parquet").exists()
