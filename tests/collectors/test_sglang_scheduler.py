"""The time of a step and what the scheduler knows of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_scheduler import patch_batch
from tests.collectors import sglang_standins as fake
from tests.collectors.sglang_harness import fresh_hooks, rows, scheduled_target


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


def test_step_times_add_up_to_the_time_at_work(hooks: Hooks, folder: Path) -> None:
    scheduler = scheduled_target(hooks)
    scheduler.waiting_queue = [1, 2]
    batches = [fake.scheduled(fake.batch(size=n)) for n in (1, 2, 3)]
    begin = time.perf_counter()
    results = [scheduler.run_batch(batches[0])]
    for number in (1, 2):  # the next is launched before the result of the last is there
        results.append(scheduler.run_batch(batches[number]))
        time.sleep(0.02)
        scheduler.process_batch_result(batches[number - 1], results[number - 1])
    scheduler.process_batch_result(batches[2], results[2])
    worked = time.perf_counter() - begin
    found = rows(folder)
    assert [row["requested"] for row in found] == [1, 2, 3]
    assert [row["queued"] for row in found] == [2, 2, 2]
    total = sum(row["dur_ns"] for row in found) / 1e9
    assert total == pytest.approx(worked, rel=0.05)
    assert found[1]["t_ns"] == pytest.approx(found[0]["t_ns"] + found[0]["dur_ns"], abs=2_000)


def test_a_batch_whose_result_never_comes_is_recorded_all_the_same(
    hooks: Hooks, folder: Path
) -> None:
    scheduler = scheduled_target(hooks)
    kept = [scheduler.run_batch(fake.scheduled(fake.batch(size=1))) for _ in range(20)]
    assert len(kept) == 20
    found = rows(folder)
    assert len(found) == 12  # eight may be outstanding
    assert {row["dur_ns"] for row in found} == {None}


def test_a_batch_that_raises_passes_through(hooks: Hooks, folder: Path) -> None:
    scheduler = scheduled_target(hooks)
    broken = fake.scheduled(fake.batch(size=1), fake.batch(size=2, forward_mode=None))
    with pytest.raises(AttributeError, match="name"):
        scheduler.run_batch(broken)
    result = scheduler.run_batch(fake.scheduled(fake.batch(size=4)))
    scheduler.process_batch_result(fake.scheduled(), result)
    assert [row["requested"] for row in rows(folder)] == [1, 4]


def test_health_checks_are_told_apart(hooks: Hooks, folder: Path) -> None:
    scheduler = scheduled_target(hooks)
    check = fake.scheduled(fake.batch(size=1), rids=("HEALTH_CHECK_17",))
    scheduler.process_batch_result(check, scheduler.run_batch(check))
    (row,) = rows(folder)
    assert row["kind"] == "dummy"


def test_verified_tokens_are_the_accepted_and_one_more(hooks: Hooks, folder: Path) -> None:
    scheduler = scheduled_target(hooks)
    verify = fake.scheduled(fake.batch("TARGET_VERIFY", 2, 8))
    result = scheduler.run_batch(verify)
    result.num_correct_drafts_per_req_cpu = [3, 0]
    scheduler.process_batch_result(verify, result)
    (row,) = rows(folder)
    assert row["tokens_out"] == 5


def test_retracted_requests_are_counted(hooks: Hooks, folder: Path) -> None:
    class ScheduleBatch:
        def retract_decode(self) -> Any:
            return ["a", "b"], 0.5

    patch_batch(hooks, ScheduleBatch)
    scheduler = scheduled_target(hooks)
    assert ScheduleBatch().retract_decode() == (["a", "b"], 0.5)
    one = fake.scheduled(fake.batch(size=1))
    scheduler.process_batch_result(one, scheduler.run_batch(one))
    scheduler.process_batch_result(one, scheduler.run_batch(one))
    assert [row["preempted"] for row in rows(folder)] == [2, None]
