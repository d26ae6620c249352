"""The vLLM collector in the real vLLM on a CPU, in child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.rows import read, steps
from tests.engines.vllm_lab import describe, describe_plugin, make_model

HERE = Path(__file__).parent
COLLECTORS = HERE.parents[1] / "collectors"
PLUGINS = {
    "graphdiag": "graphdiag_collectors.vllm:register",
    "forced": "vllm_forced:register",
}

pytestmark = pytest.mark.slow

Found = dict[str, Any]
Run = Callable[..., Found]


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("GRAPHDIAG_VLLM_PYTHON")
    if not found:
        pytest.skip("needs the real vLLM: set GRAPHDIAG_VLLM_PYTHON to a Python that has it")
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """A tiny model, and the plugins' metadata for engines that have them not installed."""
    home = tmp_path_factory.mktemp("vllm")
    for name, entry in PLUGINS.items():
        describe_plugin(home / "plugins", name, **{name: entry})
    # The CPU wheel has another name; without this vLLM does not know its own version.
    describe(home / "plugins", "vllm", "0.32.0+cpu")
    make_model(python, home / "tiny")
    return home


@pytest.fixture(scope="module")
def run(python: str, home: Path) -> Run:
    """Run ``vllm_child.py`` once for each use; the trace folder is its last argument."""

    def child(what: str, trace: Path | None = None, **environment: str) -> Found:
        path = os.pathsep.join(map(str, (home / "plugins", COLLECTORS, HERE)))
        env = dict(
            os.environ,
            PYTHONPATH=path,
            HOME=str(home),
            VLLM_CPU_KVCACHE_SPACE="1",
            OMP_NUM_THREADS="1",
            VLLM_CPU_OMP_THREADS_BIND="nobind",
            VLLM_NO_USAGE_STATS="1",
            HF_HUB_OFFLINE="1",
            VLLM_LOGGING_LEVEL="ERROR",
            **environment,
        )
        for name in ("GRAPHDIAG_TRACE", "GRAPHDIAG_RUN"):
            env.pop(name, None)
        if trace is not None:
            env["GRAPHDIAG_TRACE"] = str(trace)
        command = [python, str(HERE / "vllm_child.py"), str(home / "tiny"), what]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found: Found = json.loads(lines[-1])
        return {**found, "stderr": done.stderr}

    return child


@pytest.fixture(scope="module")
def plain(run: Run) -> Found:
    return run("plain")


@pytest.fixture(scope="module")
def forced(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Path]:
    trace = tmp_path_factory.mktemp("forced") / "trace.parquet"
    return run("forced", trace), trace


def test_without_the_variable_the_plugin_does_nothing(plain: Found) -> None:
    assert "graphdiag_collectors.vllm" in plain["modules"]
    assert len(plain["NONE"]) == 40


def test_the_same_tokens_with_and_without_in_every_mode(
    plain: Found, forced: tuple[Found, Path]
) -> None:
    found, _ = forced
    for mode in ("NONE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL"):
        assert found[mode] == plain["NONE"]


def test_every_step_is_there_once_with_what_the_engine_dispatched(
    forced: tuple[Found, Path],
) -> None:
    found, trace = forced
    real = [row for row in steps(trace) if row["kind"] is None]
    told = [
        [row["requested"], row["mode"].replace("eager", "none").upper(), row["bucket"]]
        for row in real
    ]
    assert [[n, mode, b if mode != "NONE" else None] for n, mode, b in found["truth"]] == told
    assert [[row["num_tokens"], row["num_reqs"]] for row in real] == found["steps"]
    assert [row["step"] for row in steps(trace)] == list(range(len(steps(trace))))


def test_outcomes_and_reasons(forced: tuple[Found, Path]) -> None:
    _, trace = forced
    real = [row for row in steps(trace) if row["kind"] is None]
    outcomes = Counter(row["outcome"] for row in real)
    assert set(outcomes) == {"exact", "padded", "fallback", "eager"}
    for row in real:
        if row["outcome"] == "fallback":
            assert row["reason"] == ("over_max" if row["requested"] > 32 else "mode_excluded")
        elif row["outcome"] == "exact":
            assert row["bucket"] == row["requested"]
            assert row["replays"] in (1, None)
        elif row["outcome"] == "padded":
            assert row["bucket"] > row["requested"]
            assert row["artifact"] == f"{row['mode']}/{row['bucket']}"


def test_sizes_times_and_context_of_a_step(forced: tuple[Found, Path]) -> None:
    found, trace = forced
    real = [row for row in steps(trace) if row["kind"] is None]
    produced = sum(len(tokens) for mode in found if mode.isupper() for tokens in found[mode])
    assert sum(row["tokens_out"] for row in real) == produced
    for row in real:
        assert 0 < row["dispatch_ns"] < row["host_ns"] <= row["dur_ns"]
        assert row["phase"] in ("decode", "prefill", "mixed")
        assert (row["query_len"] == 1) == (row["phase"] == "decode")
        assert row["rank"] == 0
    decodes = [row for row in real if row["phase"] == "decode"]
    for before, after in pairwise(real):
        if before["num_reqs"] == after["num_reqs"] and after["phase"] == "decode":
            assert after["kv_tokens"] == before["kv_tokens"] + after["num_tokens"]
    assert decodes[-1]["num_reqs"] == 1  # the longest request: 4 to 30 of prompt, at most 40 more
    assert 4 <= decodes[-1]["kv_tokens"] <= 70


def test_steps_that_serve_nobody_are_apart(forced: tuple[Found, Path]) -> None:
    _, trace = forced
    kinds = Counter(row["kind"] for row in steps(trace) if row["kind"])
    assert kinds["dummy"] == 1
    assert [row["requested"] for row in steps(trace) if row["kind"] == "dummy"] == [5]


def test_the_run_event_has_the_configuration_in_force(forced: tuple[Found, Path]) -> None:
    _, trace = forced
    runs = [json.loads(row["config"]) for row in read(trace, "run")[1:]]  # after the opening
    assert [run["mode"] for run in runs] == [
        *("NONE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL")
    ]
    assert runs[0]["graphs_off"] == ["decode", "prefill", "mixed", "verify"]
    assert runs[-1]["capture_sizes"] == [1, 2, 4, 8, 16, 32]
    assert runs[-1]["max_num_seqs"] == 48
    assert runs[-1]["token_budget"] == 256
    assert runs[-1]["engine_version"].startswith("0.32")
    assert runs[-1]["hooks"]["missing"] == {}
    assert runs[-1]["hooks"]["off"] == {}


def test_faults_change_nothing_for_the_engine(run: Run, plain: Found, tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    found = run("faults", trace)
    for fault in ("first", "twice", "raising", "deleted"):
        assert found[fault] == plain["NONE"]
    assert found["wrapped_once"]
    on, failures, last = found["guard"]
    assert (on, failures, last) == (False, 3, "RuntimeError: injected")
    kept = Path(f"{trace}.kept")
    marks = [row for row in read(kept, "mark") if row["kind"] == "hook_off"]
    assert [json.loads(row["config"])["hook"] for row in marks] == ["vllm.v1.step"]
    real = [row["requested"] for row in steps(kept) if row["kind"] is None]
    half = len(real) // 2
    assert real[:half] == real[half:]  # the second load recorded no step twice
    assert "error" in found["status"]


def test_a_folder_that_cannot_be_made(run: Run, plain: Found, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = run("plain", tmp_path / "file" / "trace.parquet")
    assert found["NONE"] == plain["NONE"]
    assert "graphdiag: not recording" in found["stderr"]


@pytest.mark.parametrize("end", ["shutdown", "kill"])
def test_the_last_rows_of_the_worker_are_there(
    run: Run, plain: Found, tmp_path: Path, end: str
) -> None:
    trace, log = tmp_path / "trace.parquet", tmp_path / "log"
    found = run(end, trace, FORCED_LOG=str(log))
    assert found["FULL_AND_PIECEWISE"] == plain["NONE"]
    worker, *sizes = map(int, log.read_text().split())
    real = [row for row in steps(trace) if row["kind"] is None]
    assert [row["requested"] for row in real] == sizes
    assert {row["pid"] for row in steps(trace)} == {worker}
    assert {row["outcome"] for row in real} == {"exact", "padded", "fallback"}
    assert len(list(trace.iterdir())) == 1  # the other processes of the engine opened nothing


if sys.platform != "linux":
    pytestmark = pytest.mark.skip("the CPU wheel of vLLM is for Linux")
