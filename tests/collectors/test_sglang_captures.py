"""Captures, the run event, and that no hook harms the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors import session
from graphdiag_collectors.guard import Hooks
from tests.collectors import sglang_standins as fake
from tests.collectors.rows import read
from tests.collectors.sglang_harness import fresh_hooks, install, new_target, rows, scheduled_target
from tests.collectors.sglang_old_standins import old_engine


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


def test_captures_are_told_in_their_order(hooks: Hooks, folder: Path) -> None:
    new_target(hooks)
    session.close()
    *graphs, rest = read(folder, "capture")
    assert [row["artifact"] for row in graphs] == ["decode/8", "decode/4", "decode/1"]
    assert [row["size"] for row in graphs] == [8, 4, 1]
    assert all(row["dur_ns"] > 0 and row["weight"] == 1 for row in graphs)
    assert graphs[0]["key"] == '{"runner": "DecodeCudaGraphRunner", "size": 8}'
    assert '"model_path": "tiny"' in graphs[0]["identity"]
    assert (rest["weight"], rest["artifact"], rest["kind"]) == (0, None, "decode")
    assert {row["rank"] for row in graphs} == {1}


def test_a_capture_that_calls_the_one_it_inherits_is_one_session(
    hooks: Hooks, folder: Path
) -> None:
    engine = install(hooks, old_engine())
    engine.EAGLEDraftCudaGraphRunner(engine.ModelRunner(draft=True), [2, 4])
    session.close()
    captures = read(folder, "capture")
    assert [row["artifact"] for row in captures] == ["draft-decode/4", "draft-decode/2", None]
    assert {row["runner"] for row in captures} == {"draft"}


def test_the_run_event_holds_what_the_engine_resolved(hooks: Hooks, folder: Path) -> None:

    scheduler = scheduled_target(hooks)
    assert scheduler is not None
    session.close()
    first, told = (json.loads(row["config"]) for row in read(folder, "run"))
    assert first["engine"] == "sglang"
    assert told["capture_sizes"] == [1, 4, 8]
    assert told["graphs_off"] == ["prefill", "mixed"]
    assert (told["max_num_seqs"], told["request_pool"], told["token_budget"]) == (64, 64, 2048)
    assert (told["kv_tokens"], told["tensor_parallel"], told["mode"]) == (4096, 2, "full")
    assert told["graph_bytes"] == 3 * (1 << 28)
    assert told["padding"] is True
    assert "sglang.forward" in told["hooks"]["on"]
    assert told["hooks"]["missing"] == {}


def test_a_recapture_tells_the_configuration_again(hooks: Hooks, folder: Path) -> None:
    engine, model = new_target(hooks)
    model.forward(fake.batch(size=1))
    model.decode_cuda_graph_runner = engine.DecodeCudaGraphRunner(model, [1, 16])
    model.forward(fake.batch(size=1))
    session.close()
    configs = [row["config"] for row in read(folder, "run")]
    assert ["[1, 4, 8]" in text for text in configs] == [False, True, False]
    assert "[1, 16]" in configs[-1]


def test_a_hook_that_raises_switches_itself_off(
    hooks: Hooks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphdiag_collectors import sglang_forward, sglang_runners

    _, model = new_target(hooks)

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(sglang_forward, "_ask", broken)
    monkeypatch.setattr(sglang_runners, "_refused", broken)
    outputs = [model.forward(fake.batch(size=n)).logits_output for n in (3, 9, 9, 9, 9, 4)]
    assert outputs == ["graph 4", "eager 9", "eager 9", "eager 9", "eager 9", "graph 4"]
    state = hooks.describe()
    assert state["off"] == {
        "sglang.forward": "RuntimeError: broken on purpose",
        "sglang.can_run_graph": "RuntimeError: broken on purpose",
    }
    session.close()
    marks = [row["kind"] for row in read(folder, "mark")]
    assert marks == ["hook_off", "hook_off"]


def test_patching_twice_is_patching_once(hooks: Hooks, folder: Path) -> None:
    engine, model = new_target(hooks)
    install(hooks, engine)
    model.forward(fake.batch(size=3))
    assert len(rows(folder)) == 1


def test_unpatching_puts_the_engine_back(hooks: Hooks, folder: Path) -> None:
    engine = fake.new_engine()
    before = engine.ModelRunner.forward
    install(hooks, engine)
    assert engine.ModelRunner.forward is not before
    hooks.unpatch()
    assert engine.ModelRunner.forward is before


def test_without_a_trace_nothing_is_recorded(
    hooks: Hooks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAPHDIAG_TRACE")
    _, model = new_target(hooks)
    assert model.forward(fake.batch(size=3)).logits_output == "graph 4"
    assert not folder.exists()
