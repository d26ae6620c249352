"""The vLLM collector taken off and put on again, forked, and what a batch is called."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, vllm
from graphdiag_collectors.vllm_batch import mixed_of, phase_of, preempted_in
from tests.collectors.rows import read, steps
from tests.collectors.test_vllm_v1 import Make, make
from tests.collectors.vllm_standins import plan

__all__ = ["make"]


def test_a_second_recording_has_steps_of_its_own(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    engine = make("0.32")
    engine.step(3)
    engine.state.forget()
    session.close()
    second = tmp_path / "second.parquet"
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(second))
    engine.step(4)
    session.close()
    assert [row["requested"] for row in steps(engine.folder)] == [3]
    assert [row["requested"] for row in steps(second)] == [4]
    assert len(read(second, "run")) > 1


def test_a_child_does_not_write_what_waits_in_its_parent(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SimpleNamespace(async_scheduling=True, max_num_seqs=8, max_num_batched_tokens=64)
    engine = make("0.32", scheduler_config=scheduler)
    monkeypatch.setattr(vllm, "STATE", engine.state)
    engine.runner.wrap = engine.output
    waiting = engine.step(3)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            waiting.get_output()
            engine.runner._graphdiag.drain()
            engine.step(5).get_output()
            session.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    waiting.get_output()
    rows = engine.rows()
    assert sorted((row["pid"], row["requested"]) for row in rows) == sorted(
        [(os.getpid(), 3), (child, 5)]
    )


def test_a_batch_with_drafts_of_different_lengths_verifies() -> None:
    batch = plan(3)
    assert phase_of(batch) == "decode"
    batch.scheduled_spec_decode_tokens = {"a": [1, 2]}
    assert phase_of(batch) == "verify"
    assert mixed_of(batch, 5)[0] == "verify"
    assert mixed_of(_with_drafts(plan(3, (6,))), 9)[0] == "mixed"


def test_requests_that_had_to_leave(make: Make) -> None:
    assert preempted_in(SimpleNamespace()) == 0
    engine = make("0.32")
    execute = type(engine.runner).execute_model
    engine.step(3)
    gone = plan(2)
    gone.preempted_req_ids = {"a"}
    assert execute(engine.runner, gone) is None
    engine.runner.sample_tokens(None)
    engine.step(2)
    mixed = plan(2, (5,))
    mixed.preempted_req_ids = {"a", "b"}
    execute(engine.runner, mixed)
    engine.runner.sample_tokens(None)
    assert [row["preempted"] for row in engine.rows()] == [None, 1, None, 2]


def _with_drafts(batch: Any) -> Any:
    batch.scheduled_spec_decode_tokens = {"a": [1, 2]}
    return batch
