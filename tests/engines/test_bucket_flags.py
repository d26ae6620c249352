"""The rules of buckets and their flags, against what the real engines make of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graphdiag.buckets.engines import Rules, flag, rules_for

HERE = Path(__file__).parent
LISTS = [[32, 1, 8, 8, 2], [1, 2, 9000], [9000], [], [1, 2, 4, 6], [5], [3], [4, 6, 8, 60, 64]]

pytestmark = pytest.mark.slow


def ask(engine: str, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    variable = f"GRAPHDIAG_{engine.upper()}_PYTHON"
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"needs the real engine: set {variable} to a Python that has {engine}")
    env = dict(os.environ, HOME=str(folder), VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    child = HERE / f"bucket_flags_{engine}.py"
    done = subprocess.run(
        [python, str(child), json.dumps(given)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def agree(rules: Rules, buckets: list[int], real: list[int] | str) -> None:
    if isinstance(real, str):
        assert rules.refusals(buckets), (buckets, real)
        assert rules.normalised(buckets) == []
    else:
        assert rules.normalised(buckets) == real, buckets
    assert bool(rules.refusals(buckets)) == (real != sorted(set(buckets)) or not real)


def test_vllm(tmp_path: Path) -> None:
    run = {"engine": "vllm", "engine_version": "0.32.0", "mode": "FULL_AND_PIECEWISE"}
    cases = [
        {"buckets": buckets, "token_budget": budget, "speculative_tokens": drafted}
        for buckets in LISTS
        for budget in (64, 8192)
        for drafted in (0, 3)
    ]
    old = rules_for("vllm", {**run, "engine_version": "0.11.0"}, None, None)
    flags = [flag(rules_for("vllm", run, None, None), [1, 8]), flag(old, [1, 8])]
    found = ask("vllm", tmp_path, {"cases": cases, "flags": flags})
    for case, real in zip(cases, found["lists"], strict=True):
        agree(rules_for("vllm", {**run, **case}, None, None), case["buckets"], real)
    assert found["flags"] == [[1, 8], [1, 8]]


def test_sglang(tmp_path: Path) -> None:
    run = {"engine": "sglang", "engine_version": "0.5.23"}
    cases = [
        {"buckets": buckets, "pool": pool, "ranks": ranks}
        for buckets in LISTS
        for pool in (50, 4096)
        for ranks in (1, 4)
    ]
    rules = [rules_for("sglang", run, None, phase) for phase in ("decode", "prefill")]
    old = rules_for("sglang", {**run, "engine_version": "0.5.13"}, None, "decode")
    flags = [*(flag(phase, [4, 8]) for phase in rules), flag(old, [4, 8])]
    found = ask("sglang", tmp_path, {"cases": cases, "flags": flags})
    for case, real in zip(cases, found["lists"], strict=True):
        ranks = case["ranks"]
        told = {"request_pool": case["pool"], "tensor_parallel": ranks, "capture_sizes": [ranks]}
        agree(rules_for("sglang", {**run, **told}, "requests", "decode"), case["buckets"], real)
    assert found["flags"] == [[[4, 8], None], [None, [4, 8]], None]
