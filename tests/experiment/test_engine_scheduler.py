"""Continuous batching over a paged cache, without a model: every token is its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.experiment.engine.kv_cache import NULL_BLOCK, Blocks
from graphdiag.experiment.engine.scheduler import Batch, Scheduler, Sequence


def sequence(number: int, prompt: int, output: int) -> Sequence:
    return Sequence(number, list(range(prompt)), prompt, output)


def run(scheduler: Scheduler, most: int = 10_000) -> list[Batch]:
    batches = []
    while (batch := scheduler.schedule(len(batches))) is not None:
        batches.append(batch)
        scheduler.finish(batch, [7] * sum(row.samples for row in batch.rows), len(batches))
        assert len(batches) < most
    return batches


def test_blocks_are_given_and_taken_back() -> None:
    blocks, table = Blocks(4, 8), []
    assert blocks.grow(table, 9)
    assert len(set(table)) == 2
    assert NULL_BLOCK not in table
    assert blocks.slot(table, 8) == table[1] * 8
    assert not blocks.grow(table, 33)
    assert len(table) == 2
    blocks.release(table)
    assert (blocks.free, table) == (4, [])


def test_a_prompt_comes_in_chunks_beside_what_decodes() -> None:
    scheduler = Scheduler(Blocks(64, 4), max_requests=4, token_budget=8)
    scheduler.add(sequence(0, 3, 4))
    first = scheduler.schedule(0)
    assert first is not None
    assert (first.phase, first.tokens, first.uniform) == ("prefill", 3, False)
    scheduler.finish(first, [7], 0)
    scheduler.add(sequence(1, 20, 2))
    phases = [(batch.phase, batch.decodes, batch.tokens) for batch in run(scheduler)]
    assert phases == [("mixed", 1, 8), ("mixed", 1, 8), ("mixed", 1, 7), ("decode", 1, 1)]


def test_what_came_last_makes_room_and_computes_again() -> None:
    blocks = Blocks(4, 4)
    scheduler = Scheduler(blocks, max_requests=4, token_budget=64)
    sequences = [sequence(number, 7, 8) for number in range(2)]
    for one in sequences:
        scheduler.add(one)
    batches = run(scheduler)
    assert sum(batch.preempted for batch in batches) > 0
    assert all(one.is_done for one in sequences)
    assert sequences[0].ended_ns < sequences[1].ended_ns
    assert blocks.free == 4


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 24),
    st.integers(11, 40),
)
def test_everything_ends_within_the_limits(
    wanted: list[tuple[int, int]], most: int, budget: int, count: int
) -> None:
    blocks = Blocks(count, 4)
    scheduler = Scheduler(blocks, most, budget)
    sequences = [sequence(number, *one) for number, one in enumerate(wanted)]
    for one in sequences:
        scheduler.add(one)
    for batch in run(scheduler):
        assert 0 < len(batch.rows) <= most
        assert batch.tokens == sum(row.length for row in batch.rows) <= max(budget, 1)
        lengths = [row.length for row in batch.rows]
        assert lengths[: batch.decodes] == [1] * batch.decodes
        assert all(length > 1 for length in lengths[batch.decodes :])
    assert all(one.is_done for one in sequences)
    assert blocks.free == count
    assert all(one.arrived_ns <= one.first_ns <= one.ended_ns for one in sequences)


def test_two_never_hold_one_block() -> None:
    blocks = Blocks(30, 2)
    scheduler = Scheduler(blocks, 8, 16)
    for number in range(8):
        scheduler.add(sequence(number, 3, 3))
    while (batch := scheduler.schedule(0)) is not None:
        held = [block for row in batch.rows for block in row.sequence.table]
        assert len(held) == len(set(held))
        scheduler.finish(batch, [1] * sum(row.samples for row in batch.rows), 1)


@pytest.mark.parametrize("waits", [0, 3])
def test_a_batch_tells_who_waits(waits: int) -> None:
    scheduler = Scheduler(Blocks(64, 4), max_requests=2, token_budget=64)
    for number in range(2 + waits):
        scheduler.add(sequence(number, 2, 2))
    batch = scheduler.schedule(5)
    assert batch is not None
    assert batch.queued == waits
    assert batch.rows[0].sequence.scheduled_ns == 5
