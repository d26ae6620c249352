"""The hooks on the V1 runner, on stand-ins shaped like several versions of vLLM."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, vllm_capture, vllm_draft, vllm_v1
from graphdiag_collectors.vllm_state import State
from tests.collectors.rows import Row, read, steps
from tests.collectors.vllm_standins import (
    SIZES,
    V1_VERSIONS,
    Mode,
    NewDescriptor,
    plan,
    v1_modules,
    vllm_config,
)


class Engine:
    """A hooked runner of one version."""

    def __init__(
        self, version: str, mode: Mode, folder: Path, stride: int = 1, **more: Any
    ) -> None:
        self.state = State()
        dispatchers, runners = v1_modules(version)
        vllm_v1.hook_dispatcher(self.state, dispatchers)
        vllm_v1.hook_runner(self.state, runners)
        vllm_capture.hook_runner(self.state, runners)
        config = vllm_config(**more)
        self.dispatcher = dispatchers.CudagraphDispatcher(config)
        self.dispatcher.initialize_cudagraph_keys(mode, stride)
        self.output = runners.AsyncGPUModelRunnerOutput
        self.runner = runners.GPUModelRunner(self.dispatcher, config, stride)
        self.folder = folder

    def step(self, *args: Any, **kwargs: Any) -> Any:
        result = self.runner.execute_model(plan(*args, **kwargs))
        return result if result is not None else self.runner.sample_tokens(None)

    def rows(self) -> list[Row]:
        session.close()
        return steps(self.folder)


Make = Callable[..., Engine]


@pytest.fixture
def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    monkeypatch.setattr(sys.modules["graphdiag_collectors.vllm_state"].atexit, "register", print)
    session.close()
    yield lambda version, mode=Mode.FULL_AND_PIECEWISE, **more: Engine(
        version, mode, folder, **more
    )
    session.close()


@pytest.mark.parametrize("version", V1_VERSIONS)
def test_outcomes_in_every_version(make: Make, version: str) -> None:
    engine = make(version)
    for decodes in (4, 5, 33):
        engine.step(decodes)
    engine.step(3, (6,))
    engine.step(0, (40,))
    rows = engine.rows()
    assert [row["requested"] for row in rows] == [4, 5, 33, 9, 40]
    assert [row["bucket"] for row in rows] == [4, 8, None, 16, None]
    assert [row["outcome"] for row in rows] == ["exact", "padded", "fallback", "padded", "fallback"]
    assert [row["reason"] for row in rows] == [None, None, "over_max", None, "over_max"]
    assert [row["mode"] for row in rows] == ["full", "full", "eager", "piecewise", "eager"]
    assert [row["phase"] for row in rows] == ["decode", "decode", "decode", "mixed", "prefill"]
    assert [row["num_reqs"] for row in rows] == [4, 5, 33, 4, 1]
    assert [row["artifact"] for row in rows] == ["full/4", "full/8", None, "piecewise/16", None]
    assert [row["replays"] for row in rows] == [1, 1, 0, None, 0]
    assert [row["tokens_out"] for row in rows] == [4, 5, 33, 4, 1]
    assert [row["kv_tokens"] for row in rows] == [404, 505, 3333, 309, 40]
    for row in rows:
        assert row["axis"] == "tokens"
        assert row["rank"] == 7
        assert 0 < row["dispatch_ns"] <= row["host_ns"] <= row["dur_ns"]
    assert engine.state.hooks.describe()["failures"] == {}


@pytest.mark.parametrize("version", V1_VERSIONS)
def test_the_engine_gets_its_own_results_and_exceptions(make: Make, version: str) -> None:
    engine = make(version)
    assert engine.runner.execute_model(plan()) == "empty"
    assert engine.step(3).sampled_token_ids == [[7]] * 3
    engine.runner.fail = True
    with pytest.raises(RuntimeError, match="the model"):
        engine.step(4)
    engine.runner.fail = False
    assert engine.runner.execute_model(plan()) == "empty"
    assert engine.runner._dummy_run(2) == "dummy"
    engine.step(6)
    rows = engine.rows()
    assert [(row["requested"], row["kind"]) for row in rows] == [
        *((3, None), (2, "dummy"), (6, None))
    ]


def test_context_grows_by_the_tokens_of_each_step(make: Make) -> None:
    engine = make("0.32")
    for seen in range(100, 105):
        engine.step(3, seen=seen)
    engine.step(2, seen=50)
    assert [row["kv_tokens"] for row in engine.rows()] == [303, 306, 309, 312, 315, 102]


def test_mixed_batches_without_decode_graphs_for_them(make: Make) -> None:
    engine = make("0.32", Mode.FULL_DECODE_ONLY)
    engine.step(3, (5,))
    engine.step(3)
    rows = engine.rows()
    assert [row["reason"] for row in rows] == ["mode_excluded", None]
    assert [row["phase"] for row in rows] == ["mixed", "decode"]


def test_graphs_off_is_no_fallback(make: Make) -> None:
    engine = make("0.32", Mode.NONE)
    engine.step(3)
    (row,) = engine.rows()
    assert (row["outcome"], row["reason"], row["mode"]) == ("eager", None, "eager")
    opened, run = read(engine.folder, "run")
    assert json.loads(opened["config"]) == {"axis": "tokens", "engine": "vllm"}
    config = json.loads(run["config"])
    assert config["graphs_off"] == ["decode", "prefill", "mixed", "verify"]
    assert config["kv_tokens"] == 1600
    assert config["config_hash"] == "abc123"


def test_speculative_stride_and_missed_full_graphs(make: Make) -> None:
    speculative = {"speculative_config": SimpleNamespace(), "num_speculative_tokens": 3}
    engine = make("0.32", stride=4, **speculative)
    engine.step(3, stride=4)  # 12 tokens
    engine.step(5, stride=3)  # no uniform decode
    engine.dispatcher.cudagraph_keys[Mode.FULL] = {NewDescriptor(16, 4, True)}
    engine.runner._graphdiag.changed()
    engine.step(8, stride=4)  # 32 tokens, and no full graph for them
    rows = engine.rows()
    assert [row["phase"] for row in rows] == ["verify", "decode", "verify"]
    assert [row["query_len"] for row in rows] == [4, None, 4]
    assert [row["artifact"] for row in rows] == ["full/16/q4", "piecewise/16", "piecewise/32"]
    assert [row["reason"] for row in rows] == [None, None, "no_key"]


def test_loras_asked_for_and_replayed(make: Make) -> None:
    engine = make("0.32", lora_config=SimpleNamespace(max_loras=4))
    keys = engine.dispatcher.cudagraph_keys
    keys[Mode.FULL] = {NewDescriptor(8, 8, True, True, 5)}
    keys[Mode.PIECEWISE] = set()
    engine.runner.input_batch.lora_id_to_lora_request = {1: "a", 2: "b"}
    engine.step(7)
    engine.runner.input_batch.lora_id_to_lora_request = {}
    keys[Mode.FULL].clear()
    find = engine.dispatcher.dispatch
    keys[Mode.FULL] = {NewDescriptor(8, 8, True, True, 5)}
    engine.dispatcher._find = lambda tokens, uniform: (Mode.NONE, NewDescriptor(tokens))
    engine.step(7)
    assert find is not None
    rows = engine.rows()
    assert [row["loras"] for row in rows] == [2, 0]
    assert [row["loras_replayed"] for row in rows] == [5, None]
    assert [row["artifact"] for row in rows] == ["full/8/lora5", None]
    assert rows[1]["reason"] == "lora"


def test_a_peer_that_wants_eager(make: Make) -> None:
    parallel = SimpleNamespace(rank=0, data_parallel_size=2, pipeline_parallel_size=1)
    engine = make("0.32", parallel_config=parallel)
    engine.dispatcher._find = lambda tokens, uniform: (Mode.NONE, NewDescriptor(tokens))
    engine.step(7)
    (row,) = engine.rows()
    assert (row["outcome"], row["reason"]) == ("fallback", "dp_sync")


def test_results_fetched_by_another_thread(make: Make) -> None:
    scheduler = SimpleNamespace(async_scheduling=True, max_num_seqs=8, max_num_batched_tokens=64)
    engine = make("0.32", scheduler_config=scheduler)
    engine.runner.wrap = engine.output
    first, second = engine.step(3), engine.step(4)
    assert first.get_output().sampled_token_ids == [[7]] * 3
    assert second.get_output().sampled_token_ids == [[7]] * 4
    for _ in range(12):  # on a rank whose results nobody fetches
        engine.step(5)
    engine.runner._graphdiag.drain()
    rows = engine.rows()
    fetched = [row for row in rows if row["dur_ns"] is not None]
    assert [row["requested"] for row in fetched] == [3, 4]
    assert fetched[1]["t_ns"] >= fetched[0]["t_ns"] + fetched[0]["dur_ns"] - 1
    assert len(rows) == 14
    assert {row["tokens_out"] for row in rows if row["dur_ns"] is None} == {None}


def test_kinds_of_dummy_runs(make: Make) -> None:
    engine = make("0.32")
    engine.runner._dummy_run(64, is_profile=True)
    engine.runner._dummy_run(16)
    engine.step(3)
    with engine.state.doing("filler"):
        engine.runner._dummy_run(1, uniform_decode=True)
    engine.runner._dummy_run(2)
    rows = [row for row in engine.rows() if row["kind"]]
    assert [(row["kind"], row["requested"], row["outcome"]) for row in rows] == [
        ("profile", 64, "eager"),
        ("warmup", 16, "exact"),
        ("filler", 1, "exact"),
        ("dummy", 2, "exact"),
    ]


@pytest.mark.parametrize("version", V1_VERSIONS)
def test_captures(make: Make, version: str) -> None:
    engine = make(version)
    engine.runner._dummy_run(4)
    if version in ("0.19", "0.32"):
        engine.runner.profile_cudagraph_memory()
    assert engine.runner.capture_model() == 1234
    session.close()
    captures = read(engine.folder, "capture")
    real = [row for row in captures if row["kind"] == "cudagraph"]
    sizes = sorted(SIZES, reverse=True)
    assert [(row["mode"], row["size"]) for row in real] == [
        *(("piecewise", size) for size in sizes),
        *(("full", size) for size in sizes),
    ]
    assert real[0]["artifact"] == "piecewise/32"
    assert all(row["dur_ns"] > 0 and row["weight"] == 1 for row in real)
    assert json.loads(real[-1]["key"])["num_tokens"] == 1
    profiled = [row for row in captures if row["kind"] == "profile"]
    assert len(profiled) == (version in ("0.19", "0.32"))
    assert all(row["weight"] == 0 and row["artifact"] is None for row in profiled)
    kinds = [row["kind"] for row in steps(engine.folder)]
    assert kinds.count("capture") == 2 * len(sizes)
    assert json.loads(read(engine.folder, "run")[-1]["config"])["graph_bytes"] == 1234


def test_drafters_have_steps_of_their_own(make: Make) -> None:
    engine = make("0.32", speculative_config=SimpleNamespace())
    asked = engine.dispatcher

    class Proposer:
        cudagraph_dispatcher = asked

        def _determine_batch_execution_and_padding(
            self, num_tokens: int, use_cudagraphs: bool = True
        ) -> tuple[Any, int, None]:
            return (Mode.PIECEWISE, 8, None) if use_cudagraphs else (Mode.NONE, num_tokens, None)

    vllm_draft.hook_drafters(engine.state, SimpleNamespace(Proposer=Proposer))  # type: ignore[arg-type]
    proposer = Proposer()
    engine.runner.wrap = lambda output: (
        proposer._determine_batch_execution_and_padding(6),
        proposer._determine_batch_execution_and_padding(3, use_cudagraphs=False),
        output,
    )[2]
    engine.step(3)
    rows = engine.rows()
    assert [row["requested"] for row in rows if row["runner"] == "target"] == [3]
    drafts = [row for row in rows if row["runner"] == "draft"]
    assert [(row["requested"], row["bucket"], row["outcome"]) for row in drafts] == [
        *((6, 8, "padded"), (3, None, "fallback"))
    ]
    assert drafts[0]["artifact"] == "draft/piecewise/8"
    assert drafts[1]["reason"] == "mode_excluded"
    assert drafts[0]["t_ns"] + drafts[0]["dur_ns"] <= drafts[1]["t_ns"] + 1


def test_a_hook_that_raises_switches_itself_off(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make("0.32")
    engine.step(1)

    def broken(*_: Any) -> None:
        raise ValueError("injected")

    monkeypatch.setattr(engine.runner._graphdiag, "_shapes", None)
    for _ in range(5):
        assert engine.step(2).sampled_token_ids == [[7]] * 2
    guard = engine.state.hooks.guards["vllm.v1.step"]
    assert (guard.on, guard.failures) == (False, 3)
    rows = engine.rows()
    assert [row["requested"] for row in rows] == [1]
    (mark,) = [row for row in read(engine.folder, "mark") if row["kind"] == "hook_off"]
    assert json.loads(mark["config"])["hook"] == "vllm.v1.step"


def test_changed_keys_are_told_and_forget_what_was_known(make: Make) -> None:
    engine = make("0.32")
    engine.step(9)
    engine.dispatcher.compilation_config.cudagraph_capture_sizes = [1, 12]
    engine.dispatcher.initialize_cudagraph_keys(Mode.FULL)
    engine.step(9)
    assert [row["bucket"] for row in engine.rows()] == [16, 12]
    runs = [json.loads(row["config"]) for row in read(engine.folder, "run")[1:]]
    assert [run["mode"] for run in runs] == ["FULL_AND_PIECEWISE", "FULL"]
    assert runs[-1]["capture_sizes"] == [1, 12]


def test_without_a_folder_the_engine_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(tmp_path / "file" / "trace"))
    engine = make("0.32")
    for _ in range(5):
        assert engine.step(2).sampled_token_ids == [[7]] * 2
        assert engine.runner._dummy_run(2) == "dummy"
    assert capsys.readouterr().err.count("graphdiag: not recording") == 1
