"""Steps of SGLang up to 0.5.13, whose runners hold their graphs, and of the CPU graph runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors.guard import Hooks
from tests.collectors import sglang_standins as fake
from tests.collectors.sglang_harness import fresh_hooks, install, rows, seen
from tests.collectors.sglang_old_standins import old_engine


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


@pytest.mark.parametrize(
    ("tuples", "owner"),
    [(True, "cuda_graph_runner"), (True, "graph_runner"), (False, "graph_runner")],
    ids=["0.4.6", "0.5.6", "0.5.10"],
)
def test_old_runners(hooks: Hooks, folder: Path, tuples: bool, owner: str) -> None:
    engine = install(hooks, old_engine(tuples, owner))
    model = engine.ModelRunner()
    setattr(model, owner, engine.CudaGraphRunner(model, [1, 4, 8]))
    for asked in (fake.batch(size=4), fake.batch(size=5), fake.batch(size=9)):
        model.forward(asked)
    hidden = fake.batch(size=2, capture_hidden_mode=fake.CaptureHiddenMode.LAST)
    model.forward(hidden)
    model.forward(fake.batch("EXTEND", 1, 30))
    assert [seen(row)[1:] for row in rows(folder)] == [
        ("decode", 4, 4, "exact", None, "decode/4"),
        ("decode", 5, 8, "padded", None, "decode/8"),
        ("decode", 9, None, "fallback", "over_max", None),
        ("decode", 2, None, "fallback", "mode_excluded", None),
        ("prefill", 30, None, "eager", None, None),
    ]


def test_old_piecewise_prefill(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, old_engine(tuples=False))
    model = engine.ModelRunner()
    model.piecewise_cuda_graph_runner = engine.PiecewiseCudaGraphRunner(model, [16, 64])
    model.forward(fake.batch("EXTEND", 2, 20))
    model.forward(fake.batch("EXTEND", 2, 65))
    first, second = rows(folder)
    assert seen(first)[1:] == ("prefill", 20, 64, "padded", None, "prefill/64")
    assert first["mode"] == "piecewise"
    assert seen(second)[1:] == ("prefill", 65, None, "fallback", "over_max", None)


def test_old_draft_runner_keeps_no_sizes(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, old_engine())
    runner = engine.EAGLEDraftCudaGraphRunner(engine.ModelRunner(draft=True), [2, 4])
    assert runner.replay(fake.batch(size=3)) == "draft 4"
    (row,) = rows(folder)
    assert seen(row) == ("draft", "decode", 3, 4, "padded", None, "draft-decode/4")


def test_old_data_parallel_adds_the_ranks_up(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, old_engine(owner="cuda_graph_runner"))
    model = engine.ModelRunner()
    runner = engine.CudaGraphRunner(model, [1, 4, 8], enable_dp_attention=True)
    model.cuda_graph_runner = runner
    model.forward(fake.batch(size=3, global_num_tokens_cpu=[3, 6], can_run_dp_cuda_graph=True))
    (row,) = rows(folder)
    assert (row["requested"], row["reason"]) == (3, "over_max")


def test_the_cpu_runner_leaves_stale_sizes_after_an_exact_hit(hooks: Hooks, folder: Path) -> None:
    engine = install(hooks, old_engine(tuples=False))
    model = engine.ModelRunner(device="cpu")
    model.graph_runner = engine.CPUGraphRunner(model, [1, 2, 4])
    for size in (3, 2, 5):
        model.forward(fake.batch(size=size))
    model.forward(fake.batch("TARGET_VERIFY", 1, 2))
    found = rows(folder)
    assert [seen(row)[2:5] for row in found[:3]] == [
        (3, 4, "padded"),
        (2, 2, "exact"),
        (5, None, "fallback"),
    ]
    assert found[0]["mode"] == "compiled"
    assert all(row["dur_ns"] for row in found)


def test_a_replay_that_calls_the_one_it_inherits_is_one(hooks: Hooks, folder: Path) -> None:
    engine = old_engine()

    class NPUGraphRunner(engine.CudaGraphRunner):  # type: ignore[misc,name-defined]
        def replay(self, forward_batch: Any, **kwargs: Any) -> Any:
            return super().replay(forward_batch, **kwargs)

    engine.NPUGraphRunner = NPUGraphRunner
    install(hooks, engine)
    model = engine.ModelRunner()
    model.graph_runner = NPUGraphRunner(model, [4])
    model.forward(fake.batch(size=3))
    model.graph_runner.replay(fake.batch(size=4))  # outside of a forward
    first, second = rows(folder)
    assert (first["requested"], first["bucket"], first["replays"]) == (3, 4, 1)
    assert (second["requested"], second["bucket"], second["replays"]) == (4, 4, 1)
