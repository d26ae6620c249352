"""The sums of one pass are those of two: one that finds the first executions, and one that sums."""

import pytest
from polars.testing import assert_frame_equal

from graphdiag import onepass
from graphdiag.onepass import sums_and_periods, sums_of
from graphdiag.periods import find_periods, find_start_up
from tests.build import MS, event, step, trace

GRID = (24, 28)


def in_two_passes(opened):
    periods = find_periods(opened, opened.events())
    return sums_of(opened, periods, *GRID), periods


def in_one(opened):
    return sums_and_periods(opened, find_start_up(opened, opened.events()), *GRID)


def replays(count, from_ms, size, **columns):
    return [step(size, size, from_ms + i, dur_ns=MS // 2, **columns) for i in range(count)]


CAPTURES = [event("capture", 0, dur_ns=MS), event("capture", 2, dur_ns=MS)]
IN_ORDER = [*CAPTURES, *replays(50, 10, 4), *replays(50, 70, 8), *replays(50, 130, 4)]
RANKS = [row for rank in (0, 1) for row in replays(40, 10 + rank / 4, 4, rank=rank)]
LATE_PART = [*replays(40, 100, 4), *replays(40, 10, 4), *replays(40, 60, 8)]
COARSE = [step(4, 4, 1000.0 * (i // 50), weight=1) for i in range(200)]
ROWS = {
    "in order": IN_ORDER,
    "ranks": RANKS,
    "same time": [row for rank in (0, 1) for row in replays(40, 10, 4, rank=rank, pid=rank)],
    "late part": LATE_PART,
    "coarse": COARSE,
    "impossible": [step(8, 4, 10, dur_ns=MS), *replays(40, 11, 4)],
    "dummies": [*replays(5, 5, 4, kind="dummy"), *replays(40, 11, 4)],
    "no time": [step(4, 4, 0.0, t_ns=None), *replays(10, 5, 4)],
    "captures": CAPTURES,
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("batch", [7, 64, 1 << 18])
def test_one_pass_gives_what_two_give(rows, batch, monkeypatch):
    monkeypatch.setattr("graphdiag.parts.BATCH_ROWS", batch)
    one, periods = in_one(trace(rows))
    two, expected = in_two_passes(trace(rows))
    assert periods == expected
    for mine, theirs in zip(one, two, strict=True):
        assert_frame_equal(mine.table(), theirs.table())


@pytest.mark.parametrize(
    ("rows", "again"), [(IN_ORDER, False), (RANKS, False), (COARSE, False), (LATE_PART, True)]
)
def test_a_trace_in_order_is_read_once(rows, again, monkeypatch):
    monkeypatch.setattr("graphdiag.parts.BATCH_ROWS", 32)
    calls = []
    monkeypatch.setattr(onepass, "sums_of", lambda *given: calls.append(given) or sums_of(*given))
    in_one(trace(rows))
    assert bool(calls) == again
