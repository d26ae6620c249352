"""Steps of SGLang from 0.5.14 on, by stand-ins: what ran, why not, and that none counts twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, sglang_rows, sglang_steps
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_scheduler import patch_scheduler
from tests.collectors import sglang_standins as fake
from tests.collectors.rows import read
from tests.collectors.sglang_harness import (
    fresh_hooks,
    install,
    new_target,
    rows,
    scheduled_target,
    seen,
)


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


def test_decode_is_exact_padded_or_over_the_largest_bucket(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks)
    outputs = [model.forward(fake.batch(size=n)).logits_output for n in (4, 3, 9)]
    assert outputs == ["graph 4", "graph 4", "eager 9"]
    assert [seen(row) for row in rows(folder)] == [
        ("target", "decode", 4, 4, "exact", None, "decode/4"),
        ("target", "decode", 3, 4, "padded", None, "decode/4"),
        ("target", "decode", 9, None, "fallback", "over_max", None),
    ]


def test_a_row_says_what_the_step_cost_and_held(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks)
    model.forward(forward_batch=fake.batch(size=3))
    (row,) = rows(folder)
    assert (row["axis"], row["mode"], row["replays"]) == ("requests", "full", 1)
    assert (row["num_reqs"], row["num_tokens"], row["kv_tokens"]) == (3, 3, 103)
    assert row["tokens_out"] == 3
    assert 0 < row["graph_launch_ns"] <= row["host_ns"]
    assert 0 < row["dispatch_ns"] <= row["host_ns"]
    assert row["dur_ns"] is None  # on a GPU the result is not there when forward returns
    assert row["kind"] is None


@pytest.mark.parametrize(
    ("runner", "batch", "reason"),
    [
        ({"disable_padding": True}, {"size": 3}, "no_key"),
        ({}, {"size": 2, "replace_embeds": object()}, "dynamic"),
        (
            {"require_mlp_sync": True},
            {"size": 2, "can_run_decode_cuda_graph": False, "can_run_dp_cuda_graph": True},
            "dp_sync",
        ),
        (
            {"is_encoder_decoder": True},
            {"size": 2, "encoder_answer": False},
            "dynamic",
        ),
    ],
)
def test_decode_reasons(hooks: Hooks, folder: Path, runner: Any, batch: Any, reason: str) -> None:
    _, model = new_target(hooks, **runner)
    model.forward(fake.batch(**batch))
    (row,) = rows(folder)
    assert (row["outcome"], row["reason"]) == ("fallback", reason)


def test_graphs_that_are_off_are_no_fallback(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, fake.new_engine())
    model = engine.ModelRunner()
    model.prefill_cuda_graph_runner = model.eager_runner
    model.forward(fake.batch(size=2))
    model.forward(fake.batch("EXTEND", 2, 50))
    assert [(r["outcome"], r["reason"], r["mode"]) for r in rows(folder)] == [
        ("eager", None, "eager"),
        ("eager", None, "eager"),
    ]


def test_prefill_counts_tokens_and_explains_itself(hooks: Hooks, folder: Path) -> None:
    engine, model = new_target(hooks)
    model.prefill_cuda_graph_runner = engine.PrefillCudaGraphRunner(model, [64, 128, 512])
    for tokens, more in ((100, {}), (128, {}), (20, {}), (600, {}), (60, {"return_logprob": True})):
        model.forward(fake.batch("EXTEND", 2, tokens, **more))
    model.forward(fake.batch("MIXED", 3, 700))
    found = rows(folder)
    assert [seen(row)[1:] for row in found] == [
        ("prefill", 100, 128, "padded", None, "prefill/128"),
        ("prefill", 128, 128, "exact", None, "prefill/128"),
        ("prefill", 20, None, "fallback", "no_key", None),
        ("prefill", 600, None, "fallback", "over_max", None),
        ("prefill", 60, None, "fallback", "dynamic", None),
        ("mixed", 700, None, "fallback", "over_max", None),
    ]
    assert {row["axis"] for row in found} == {"tokens"}
    assert (found[0]["mode"], found[0]["replays"]) == ("breakable", 3)


def test_a_batch_that_the_engine_pads_keeps_the_size_asked_for(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks, require_mlp_sync=True)
    padded = fake.batch(size=9, global_num_tokens_cpu=[9, 3], can_run_decode_cuda_graph=True)
    model.forward(padded)
    assert padded.batch_size == 14
    (row,) = rows(folder)
    assert (row["requested"], row["num_reqs"]) == (9, 9)


def test_the_bucket_of_another_rank_is_named(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks, require_mlp_tp_gather=True)
    model.forward(fake.batch(size=1, original_global_num_tokens_cpu=[1, 7]))
    model.forward(fake.batch("IDLE", 0, original_global_num_tokens_cpu=[0, 4]))
    busy, idle = rows(folder)
    assert seen(busy)[2:] == (1, 8, "padded", "dp_sync", "decode/8")
    assert (idle["kind"], idle["requested"], idle["bucket"]) == ("filler", 0, 4)


def test_an_answer_on_the_device_is_not_read(hooks: Hooks, folder: Path) -> None:
    engine, model = new_target(hooks)
    decide = engine.DecodeCudaGraphRunner.can_run_graph
    answer = decide.__wrapped__  # the engine itself may read it, a hook not
    runner = model.decode_cuda_graph_runner
    runner.is_encoder_decoder = True
    asked = fake.batch(size=2, encoder_answer=fake.Tensor())
    assert isinstance(decide(runner, asked), fake.Tensor)
    assert isinstance(answer(runner, asked), fake.Tensor)
    assert not hooks.describe()["failures"]


def test_verify_counts_requests_and_names_its_stride(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks, captured_req_width=4)
    spec = SimpleNamespace(num_tokens_per_req=4)
    model.forward(fake.batch("TARGET_VERIFY", 3, 12, spec_info=spec))
    (row,) = rows(folder)
    assert seen(row) == ("target", "verify", 3, 4, "padded", None, "decode/4")
    assert (row["query_len"], row["num_tokens"]) == (4, 12)


def test_a_draft_replay_is_counted_once_with_its_own_size(hooks: Hooks, folder: Path) -> None:
    engine, _ = new_target(hooks)
    draft = engine.ModelRunner(draft=True)
    runner = engine.EAGLEDraftCudaGraphRunner(draft, [2, 4])
    asked = fake.batch(size=3)
    assert runner.can_run_graph(asked)
    assert runner.execute(asked) == "graph 4"
    assert not runner.can_run_graph(fake.batch(size=5))
    draft.forward(fake.batch(size=5))  # the eager loop of one inner step
    assert [seen(row) for row in rows(folder)] == [
        ("draft", "decode", 3, 4, "padded", None, "draft-decode/4"),
        ("draft", "decode", 5, None, "fallback", "over_max", None),
    ]


def test_a_prefill_in_groups_of_layers_is_one_step(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks)
    split = fake.batch("SPLIT_PREFILL", 1, 40, split_index=0)
    for _ in range(4):
        model.forward(split)
    (row,) = rows(folder)
    assert (row["phase"], row["requested"]) == ("prefill", 40)


def test_forwards_inside_a_capture_are_told_apart(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, fake.new_engine())
    draft = engine.ModelRunner(draft=True)

    class Runner(engine.DecodeCudaGraphRunner):  # type: ignore[misc,name-defined]
        def _run(self) -> None:
            draft.forward(fake.batch(size=1))

        def capture_loop(self) -> None:
            self.backend.capture_one(fake.ShapeKey(1), self._run)

    original = engine.DecodeCudaGraphRunner.capture
    Runner.capture = lambda self: (original(self), self.capture_loop())[0]
    hooks.patch(Runner, "capture", engine_capture(hooks))
    Runner(draft, [1])
    assert [(row["kind"], row["runner"]) for row in rows(folder)] == [("capture", "draft")]


def engine_capture(hooks: Hooks) -> Any:
    from graphdiag_collectors.sglang_captures import _session

    return lambda original: _session(original, hooks)


def test_a_replay_of_unknown_size_is_no_step_but_is_told(hooks: Hooks, folder: Path) -> None:
    _, model = new_target(hooks)
    backend = model.decode_cuda_graph_runner.backend
    for _ in range(3):
        assert backend.replay(fake.ShapeKey(4), SimpleNamespace()) == "graph 4"
    assert rows(folder) == []
    (mark,) = read(folder, "mark")
    assert (mark["kind"], mark["config"]) == ("unsized_replay", '{"artifact": "decode/4"}')


def traffic(scheduler: Any) -> None:
    """Every outcome of a decode and a prefill, with and without reason, singly and overlapped."""
    reject = {"replace_embeds": object()}
    batches = [
        *(fake.scheduled(fake.batch(size=size)) for size in (4, 3, 9, 4, 8, 9)),
        *(fake.scheduled(fake.batch("EXTEND", 2, tokens)) for tokens in (100, 128, 20, 600)),
        fake.scheduled(fake.batch("MIXED", 3, 700)),
        fake.scheduled(fake.batch(size=2, **reject)),
        fake.scheduled(fake.batch(size=2), fake.batch(size=3)),
        fake.scheduled(fake.batch("IDLE", 0)),
        fake.scheduled(fake.batch("TARGET_VERIFY", 2, 8)),
        fake.scheduled(fake.batch("TARGET_VERIFY", 5, 20)),
        fake.scheduled(fake.batch(size=1), rids=("HEALTH_CHECK_1",)),
        fake.scheduled(fake.batch(size=1, seq_lens_sum=None), rids=("one",)),
    ]
    for one in batches:
        scheduler.process_batch_result(one, scheduler.run_batch(one))
    results = [(one, scheduler.run_batch(one)) for one in batches[:3]]
    for one, result in results:
        scheduler.process_batch_result(one, result)


def by_all_its_columns(
    row: Any, begin: float, end: float, queued: int = NULL, result: Any = None
) -> None:
    sglang_rows.write(row[0].whole(row), begin, end, queued, result)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_usual_steps_take_a_shorter_way_to_the_same_rows(
    device: str, hooks: Hooks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[bool] = []
    record = sglang_rows.profiler.record
    monkeypatch.setattr(
        sglang_rows.profiler,
        "record",
        lambda *args, **more: (slow.append(True), record(*args, **more)),
    )
    found, by_name = [], []
    for usual in (True, False):
        engine, model = new_target(hooks)
        model.device = device
        model.prefill_cuda_graph_runner = engine.PrefillCudaGraphRunner(model, [64, 128, 512])
        owner = fake.scheduler_class()
        patch_scheduler(hooks, owner)
        if not usual:
            monkeypatch.setattr(sglang_steps, "write_usual", by_all_its_columns)
        slow.clear()
        traffic(owner(model))
        by_name.append(len(slow))
        found.append(rows(folder))
        shutil.rmtree(folder)
        session.close()
    times = ("t_ns", "dur_ns", "host_ns", "dispatch_ns", "graph_launch_ns", "pid")
    short, long = (
        sorted(
            repr({**row, "step": None} | {name: row[name] is None for name in times}) for row in one
        )
        for one in found  # rows of one batch may change places
    )
    assert short == long
    assert len(short) == 22
    assert by_name == [1, 22]  # the health check alone


def test_a_usual_row_holds_what_was_measured(hooks: Hooks, folder: Path) -> None:
    scheduler = scheduled_target(hooks)
    batch = fake.scheduled(fake.batch(size=3))
    scheduler.process_batch_result(batch, scheduler.run_batch(batch))
    (row,) = rows(folder)
    assert 0 < row["dispatch_ns"] < row["host_ns"] < row["dur_ns"]
    assert 0 < row["graph_launch_ns"] < row["host_ns"]
    assert row["dispatch_ns"] + row["graph_launch_ns"] < row["host_ns"]
