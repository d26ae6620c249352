"""Profile windows over SGLang's steps, with stand-ins for the engine and for torch's profiler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors import profiler, profiler_window
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_scheduler import patch_profiler
from tests.attachable import until
from tests.collectors import profiler_standins
from tests.collectors import sglang_standins as fake
from tests.collectors.profiler_standins import Torch
from tests.collectors.rows import read
from tests.collectors.sglang_harness import fresh_hooks, new_target, rows, scheduled_target
from tests.collectors.test_profiler import replaying


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Torch]:
    monkeypatch.setattr(profiler, "_given", None)
    monkeypatch.setattr(profiler, "_guard", None)
    monkeypatch.setattr(profiler, "_warm", True)
    yield profiler_standins.install(monkeypatch)
    if profiler.window is not None:
        profiler.window.cancel("the test is over")
        profiler._close()


def opened(count: int) -> profiler_window.Window:
    window = profiler.open_window(count, 30)
    until(lambda: window.state != "starting")
    return window


def run(scheduler: Any, *sizes: int, forwards: int = 1) -> None:
    for size in sizes:
        one = fake.scheduled(*(fake.batch(size=size) for _ in range(forwards)))
        scheduler.process_batch_result(one, scheduler.run_batch(one))


def kernels(folder: Path) -> list[tuple[Any, ...]]:
    return [(row["requested"], row["kernels"], row["gpu_ns"]) for row in rows(folder)]


def test_the_steps_of_a_window_have_its_figures(hooks: Hooks, folder: Path, torch: Torch) -> None:
    torch.serve = replaying
    scheduler = scheduled_target(hooks)
    run(scheduler, 4, 3)
    window = opened(2)
    run(scheduler, 1, 2, 3, 4)  # the first one prepares it
    assert window.finished.wait(10)
    assert window.error is None
    run(scheduler, 8)
    told = kernels(folder)
    assert [one[0] for one in told] == [4, 3, 1, 2, 3, 4, 8]
    assert [one[1] for one in told] == [None, None, None, 1, 2, None, None]
    assert [one[2] for one in told if one[1]] == [7_500, 10_000]


def test_results_that_come_late_have_their_own_figures(
    hooks: Hooks, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    scheduler = scheduled_target(hooks)
    run(scheduler, 4)
    window = opened(3)
    waiting: list[Any] = []
    for size in (1, 2, 3, 4, 8):  # each launched before the result of the last is there
        one = fake.scheduled(fake.batch(size=size))
        waiting.append((one, scheduler.run_batch(one)))
        if len(waiting) > 1:
            scheduler.process_batch_result(*waiting.pop(0))
    scheduler.process_batch_result(*waiting.pop())
    assert window.finished.wait(10)
    assert [one[:2] for one in kernels(folder)] == [
        *((4, None), (1, None), (2, 1), (3, 2), (4, 3), (8, None)),
    ]


def test_a_batch_of_several_forwards_is_one_step(hooks: Hooks, folder: Path, torch: Torch) -> None:
    torch.serve = replaying
    scheduler = scheduled_target(hooks)
    run(scheduler, 4)
    window = opened(1)
    run(scheduler, 1, 2, 3, forwards=2)
    assert window.finished.wait(10)
    told = kernels(folder)
    assert sorted(one[0] for one in told) == [1, 1, 2, 2, 3, 3, 4]
    of_step = [one[1] for one in told if one[0] == 2]
    assert sorted(of_step, key=lambda known: known or 0) == [None, 1]  # one row has it


def test_forwards_that_no_scheduler_runs_are_steps(
    hooks: Hooks, folder: Path, torch: Torch
) -> None:
    torch.serve = replaying
    _, model = new_target(hooks)
    model.forward(fake.batch(size=4))
    window = opened(2)
    for size in (1, 2, 3, 8):
        model.forward(fake.batch(size=size), pp_proxy_tensors=None)
    assert window.finished.wait(10)
    assert [one[:2] for one in kernels(folder)] == [(4, None), (1, None), (2, 1), (3, 2), (8, None)]


def test_the_engines_own_profiler_comes_first(hooks: Hooks, folder: Path, torch: Torch) -> None:
    class profile:
        started = 0

        def start(self) -> str:
            profile.started += 1
            return "theirs"

    patch_profiler(hooks, profile)
    scheduler = scheduled_target(hooks)
    run(scheduler, 4)
    assert profile().start() == "theirs"
    window = opened(50)
    run(scheduler, 1, 2, 3)
    assert profile().start() == "theirs"
    assert torch.calls[-1] == "stop"
    assert window.state == "failed"
    assert profiler.window is None
    run(scheduler, 8)
    assert profile.started == 2
    assert [one[:2] for one in kernels(folder)] == [(n, None) for n in (4, 1, 2, 3, 8)]
    (mark,) = (json.loads(row["config"]) for row in read(folder, "mark"))
    assert mark["error"] == "the engine's own profiler was started in it"
