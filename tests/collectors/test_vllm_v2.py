"""The hooks on the V2 runner, on stand-ins shaped like vLLM 0.19, 0.25 and 0.32."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, vllm_capture, vllm_v2
from graphdiag_collectors.vllm_state import State
from tests.collectors.rows import Row, read, steps
from tests.collectors.vllm_standins import (
    Manager,
    Mode,
    Plan,
    peer_eager,
    plan,
    v2_descriptor,
    vllm_config,
)

DP_UTILS = "vllm.v1.worker.gpu.dp_utils"
MANAGERS = "vllm.v1.worker.gpu.cudagraph_utils"


def dispatch_cg_and_sync_dp(
    cudagraph_manager: Any,
    num_reqs: int,
    num_tokens: int,
    uniform_token_count: int | None,
    dp_size: int,
    dp_rank: int,
    max_query_len: int | None = None,
    need_eager: bool = False,
    num_active_loras: int = 0,
) -> tuple[Any, Any]:
    if need_eager or cudagraph_manager is None:
        none = v2_descriptor(Manager(Mode.NONE), num_reqs, num_tokens, None)
        return none, None
    desc = cudagraph_manager.dispatch(num_reqs, num_tokens, uniform_token_count)
    if dp_size > 1:  # the peer asks for eager
        return peer_eager(desc, num_tokens, num_reqs), "sync"
    return desc, None


class Output:
    def __init__(self, output: Any) -> None:
        self.output = output

    def get_output(self) -> Any:
        return self.output


def runner_class(version: str, dp_utils: ModuleType) -> type[Any]:
    class GPUModelRunner:
        def __init__(self, config: Any, manager: Any) -> None:
            self.vllm_config = config
            self.cudagraph_manager = manager
            self.speculator_manager: Any = None
            self.is_encoder_decoder = config.model_config.is_encoder_decoder
            self.dp_size = config.parallel_config.data_parallel_size
            self.device = SimpleNamespace(type="cuda")
            self.reqs = 0

        def execute_model(
            self,
            scheduler_output: Plan,
            intermediate_tensors: Any = None,
            dummy_run: bool = False,
            skip_attn_for_dummy_run: bool = False,
            is_profile: bool = False,
        ) -> Any:
            self.reqs = len(scheduler_output.num_scheduled_tokens)
            tokens = scheduler_output.total_num_scheduled_tokens
            if not tokens:
                return "empty"
            longest = max(scheduler_output.num_scheduled_tokens.values())
            new = scheduler_output.scheduled_new_reqs
            uniform = None if new or tokens != longest * self.reqs else longest
            if version == "0.19":
                self.cudagraph_manager.dispatch(self.reqs, tokens, uniform)
            else:
                dp_utils.dispatch_cg_and_sync_dp(
                    self.cudagraph_manager,
                    self.reqs,
                    tokens,
                    uniform,
                    self.dp_size,
                    0,
                    max_query_len=longest,
                    need_eager=is_profile or bool(scheduler_output.scheduled_encoder_inputs),
                )
            return None

        def sample_tokens(self, grammar_output: Any) -> Any:
            if self.speculator_manager is not None:
                for count in (4, 1):
                    dp_utils.dispatch_cg_and_sync_dp(
                        self.speculator_manager, self.reqs, self.reqs * count, count, 1, 0
                    )
            return Output(SimpleNamespace(sampled_token_ids=[[7]] * self.reqs))

        def capture_model(self, *, profile_only: bool = False) -> int:
            self.cudagraph_manager.capture(lambda desc, warmup: lambda mode: None)
            return 4321

        def profile_cudagraph_memory(self) -> int:
            return int(self.capture_model(profile_only=True))

    return GPUModelRunner


class Engine:
    def __init__(
        self, version: str, mode: Mode, monkeypatch: pytest.MonkeyPatch, **more: Any
    ) -> None:
        dp_utils, managers, runners = map(ModuleType, (DP_UTILS, MANAGERS, "runners"))
        manager_class = type("ModelCudaGraphManager", (Manager,), dict(vars(Manager)))
        managers.CudaGraphManager = manager_class  # type: ignore[attr-defined]
        if version != "0.19":
            dp_utils.dispatch_cg_and_sync_dp = dispatch_cg_and_sync_dp  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, DP_UTILS, dp_utils)
        monkeypatch.setitem(sys.modules, MANAGERS, managers)
        self.state = State()
        vllm_v2.hook_dispatch(self.state, dp_utils)
        vllm_capture.hook_manager(self.state, managers)
        runners.GPUModelRunner = runner_class(version, dp_utils)  # type: ignore[attr-defined]
        vllm_v2.hook_runner(self.state, runners)
        vllm_capture.hook_runner(self.state, runners)
        outputs = SimpleNamespace(AsyncOutput=Output)
        vllm_v2.hook_output(self.state, outputs)  # type: ignore[arg-type]
        self.manager = manager_class(mode, **({"stride": 4} if more.pop("stride", 0) else {}))
        self.runner = runners.GPUModelRunner(vllm_config(**more), self.manager)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        result = self.runner.execute_model(plan(*args, **kwargs))
        return result if result is not None else self.runner.sample_tokens(None).get_output()


Make = Callable[..., Engine]


@pytest.fixture
def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    monkeypatch.setattr(sys.modules["graphdiag_collectors.vllm_state"].atexit, "register", print)
    monkeypatch.setattr(Output, "get_output", vars(Output)["get_output"])
    session.close()
    yield lambda version, mode=Mode.FULL_AND_PIECEWISE, **more: Engine(
        version, mode, monkeypatch, **more
    )
    session.close()


def rows(folder: Path) -> list[Row]:
    session.close()
    return steps(folder)


@pytest.mark.parametrize("version", ["0.19", "0.25", "0.32"])
def test_outcomes(make: Make, folder: Path, version: str) -> None:
    engine = make(version)
    for decodes in (4, 5, 33):
        assert engine.step(decodes).sampled_token_ids == [[7]] * decodes
    engine.step(3, (6,))
    engine.step(0, (40,))
    found = rows(folder)
    assert [row["requested"] for row in found] == [4, 5, 33, 9, 40]
    assert [row["bucket"] for row in found] == [4, 8, None, 16, None]
    assert [row["reason"] for row in found] == [None, None, "over_max", None, "over_max"]
    assert [row["phase"] for row in found] == ["decode", "decode", "decode", "mixed", "prefill"]
    assert [row["artifact"] for row in found] == ["full/4", "full/8", None, "piecewise/16", None]
    assert [row["tokens_out"] for row in found] == [4, 5, 33, 4, 1]
    assert [row["step"] for row in found] == [0, 1, 2, 3, 4]
    assert all(row["dur_ns"] > 0 and row["rank"] == 7 for row in found)
    assert engine.state.hooks.describe()["failures"] == {}


def test_reasons_of_the_manager(make: Make, folder: Path) -> None:
    engine = make("0.32", Mode.FULL_DECODE_ONLY)
    engine.manager._graphs_captured = False
    engine.step(4)
    engine.manager._graphs_captured = True
    engine.runner._graphdiag.changed()
    engine.step(3, (2,))
    engine.manager._graphs_captured = True
    assert [row["reason"] for row in rows(folder)] == ["not_captured", "mode_excluded"]


def test_forced_eager_and_a_peer(make: Make, folder: Path) -> None:
    model = SimpleNamespace(model="whisper", is_encoder_decoder=True)
    engine = make("0.32", model_config=model)
    batch = plan(2)
    batch.scheduled_encoder_inputs = {"cmpl-0": [0]}
    engine.runner.execute_model(batch)
    engine.runner.sample_tokens(None).get_output()
    engine.step(2)
    engine.runner.dp_size = 2
    engine.runner._graphdiag.ranks = 2
    engine.step(4)
    found = rows(folder)
    assert [row["reason"] for row in found] == ["mode_excluded", None, "dp_sync"]


def test_what_serves_nobody(make: Make, folder: Path) -> None:
    engine = make("0.32")
    engine.runner.execute_model(plan(8), dummy_run=True, is_profile=True)
    warm = plan(2)
    warm.num_scheduled_tokens = {"_warmup_0": 1, "_warmup_1": 1}
    engine.runner.execute_model(warm)
    engine.runner.sample_tokens(None).get_output()
    assert engine.runner.execute_model(plan()) == "empty"
    engine.step(3)
    with engine.state.doing("filler"):
        engine.runner.execute_model(plan(1), dummy_run=True)
    found = rows(folder)
    assert [(row["kind"], row["requested"]) for row in sorted(found, key=lambda r: r["t_ns"])] == [
        *(("profile", 8), ("warmup", 2), (None, 3), ("filler", 1))
    ]


def test_drafters_and_their_dispatches(make: Make, folder: Path) -> None:
    engine = make("0.32", stride=4, speculative_config=SimpleNamespace())
    engine.runner.speculator_manager = Manager(Mode.FULL)
    engine.step(3, stride=4)
    found = rows(folder)
    target = [row for row in found if row["runner"] == "target"]
    assert [(row["requested"], row["bucket"], row["phase"]) for row in target] == [
        (12, 16, "verify")
    ]
    assert target[0]["artifact"] == "full/16/q4"
    drafts = [row for row in found if row["runner"] == "draft"]
    assert [(row["requested"], row["bucket"]) for row in drafts] == [(12, None), (3, 4)]
    assert drafts[0]["reason"] == "no_key"


def test_captures(make: Make, folder: Path) -> None:
    engine = make("0.32")
    engine.runner.profile_cudagraph_memory()
    engine.runner.execute_model(plan(1), dummy_run=True)
    assert engine.runner.capture_model() == 4321
    session.close()
    captures = read(folder, "capture")
    assert [row["kind"] for row in captures] == ["profile"] * 12 + ["cudagraph"] * 12
    real = captures[12:]
    assert [row["artifact"] for row in real][:2] == ["piecewise/32", "piecewise/16"]
    assert real[-1]["artifact"] == "full/1"
    assert json.loads(real[-1]["key"]) == {
        "cg_mode": "FULL",
        "num_tokens": 1,
        "num_reqs": 1,
        "uniform_token_count": 1,
        "max_query_len": None,
        "num_active_loras": 0,
    }
    config = json.loads(read(folder, "run")[-1]["config"])
    assert config["graph_bytes"] == 4321
    assert config["mode"] == "FULL_AND_PIECEWISE"
    assert config["capture_sizes"] == [1, 2, 4, 8, 16, 32]
