"""The vLLM collector on real parts of vLLM that need a GPU or several ranks in an engine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.rows import Row, read, steps

HERE = Path(__file__).parent
SIZES = [32, 16, 8, 4, 2, 1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    python = os.environ.get("GRAPHDIAG_VLLM_PYTHON")
    if not python:
        pytest.skip("needs the real vLLM: set GRAPHDIAG_VLLM_PYTHON to a Python that has it")
    folder = tmp_path_factory.mktemp("parts")
    env = dict(
        os.environ,
        PYTHONPATH=str(HERE.parents[1] / "collectors"),
        HOME=str(folder),
        GRAPHDIAG_TRACE=str(folder / "trace.parquet"),
        VLLM_NO_USAGE_STATS="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    env.pop("GRAPHDIAG_RUN", None)
    command = [python, str(HERE / "vllm_parts.py"), str(folder / "cache")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "trace.parquet", json.loads(done.stdout.splitlines()[-1])["hooks"]


Parts = tuple[Path, dict[str, Any]]


def served(parts: Parts) -> list[Row]:
    return sorted((row for row in steps(parts[0]) if row["kind"] is None), key=lambda r: r["t_ns"])


def test_no_hook_failed_and_none_was_missing(parts: Parts) -> None:
    _, hooks = parts
    assert hooks["failures"] == {}
    assert hooks["off"] == {}
    assert hooks["missing"] == {}


def test_captures_of_the_real_wrapper_and_of_the_real_manager(parts: Parts) -> None:
    captures = read(parts[0], "capture")
    told = [(row["mode"], row["size"], json.loads(row["identity"])["graphs"]) for row in captures]
    one = [("piecewise", size, 3) for size in SIZES] + [("full", size, 1) for size in SIZES]
    two = [("piecewise", size, 1) for size in SIZES] + [("full", size, 1) for size in SIZES]
    assert told == one + two
    assert {row["kind"] for row in captures} == {"cudagraph"}
    assert all(row["dur_ns"] > 0 for row in captures)
    captured = {row["artifact"] for row in captures}
    replayed = {row["artifact"] for row in served(parts) if row["artifact"]}
    assert replayed <= captured


def test_steps_of_the_v1_runner(parts: Parts) -> None:
    rows = served(parts)[:5]
    assert [row["requested"] for row in rows] == [5, 11, 33, 3, 3]
    assert [row["bucket"] for row in rows] == [8, 16, None, 16, None]
    assert [row["mode"] for row in rows] == ["full", "piecewise", "eager", "full", "eager"]
    assert [row["replays"] for row in rows] == [1, 3, 0, 1, 0]
    assert [row["reason"] for row in rows] == [None, None, "over_max", None, "dp_sync"]


def test_steps_of_the_v2_runner(parts: Parts) -> None:
    rows = served(parts)[5:]
    assert [row["requested"] for row in rows] == [2, 5, 11, 33, 3, 3]
    assert [row["bucket"] for row in rows] == [None, 8, 16, None, 16, None]
    assert [row["mode"] for row in rows] == ["eager", "full", "piecewise", "eager", "full", "eager"]
    reasons = ["not_captured", None, None, "over_max", None, "dp_sync"]
    assert [row["reason"] for row in rows] == reasons
    assert [row["tokens_out"] for row in rows] == [2, 5, 3, 33, 3, 3]


def test_both_dispatches_of_a_data_parallel_step_are_one_row(parts: Parts) -> None:
    synced = [row for row in served(parts) if row["requested"] == 3]
    assert [(row["bucket"], row["outcome"]) for row in synced] == [
        *((16, "padded"), (None, "fallback"), (16, "padded"), (None, "fallback"))
    ]


def test_kinds(parts: Parts) -> None:
    kinds = [row["kind"] for row in steps(parts[0]) if row["kind"]]
    assert kinds.count("warmup") == 12
    assert kinds.count("capture") == 12
    assert kinds.count("profile") == 1


def test_compilations_and_cache_loads(parts: Parts) -> None:
    rows = read(parts[0], "compile")
    assert [(row["kind"], row["cache"], row["weight"]) for row in rows] == [
        ("region", "miss", 1),
        ("region", "miss", 1),
        ("dynamo", "none", 0),
        ("region", "hit", 1),
        ("region", "hit", 1),
        ("failed load", "miss", 0),
    ]
    assert rows[0]["artifact"] == "compiled/(1, 8192)/0"
    assert json.loads(rows[0]["key"])["compiler"] == "eager"
    identity = json.loads(rows[0]["identity"])
    assert identity["cache"] == "0a1b2c3d4e/rank_0_0/backbone"
    assert identity["factors"]["config_hash"] == "aa"
    assert len(identity["factors"]["env_hash"]) == 16
    assert "s3cret" not in json.dumps(rows)
    assert rows[-1]["artifact"] == "model/0123abcd"
    assert rows[-1]["reason"] == "the cached artifact could not be loaded"
