from __future__ import annotations

import threading
from queue import SimpleQueue

import numpy as np

from graphdiag_collectors.blocks import (
    BLOCK_ROWS,
    BLOCKS,
    NARROW_ROW,
    NARROW_WIDTH,
    NULL,
    RARE_AT,
    WIDE_ROW,
    Lane,
    join,
    pack_narrow,
)


def lane() -> Lane:
    lane = Lane(NARROW_ROW, SimpleQueue())
    lane.start(SimpleQueue())
    return lane


def put(lane: Lane, number: int) -> None:
    if lane.offset + NARROW_WIDTH > len(lane.block):
        lane.swap()
    pack_narrow(lane.block, lane.offset, float(number), 0.0, number, NULL, 0)
    lane.offset += NARROW_WIDTH


def numbers(lane: Lane) -> list[int]:
    fields = lane.take()
    return [] if fields is None else fields["requested"].tolist()


def test_the_layout_is_that_of_the_packed_records() -> None:
    assert (NARROW_WIDTH, NARROW_ROW.itemsize) == (32, 32)
    assert WIDE_ROW.fields is not None
    assert WIDE_ROW.fields["has_rare"][1] == 28
    assert WIDE_ROW.fields["rare_64"][1] == RARE_AT


def test_rows_are_taken_once_and_in_order() -> None:
    source = lane()
    assert source.take() is None
    put(source, 1)
    put(source, 2)
    assert numbers(source) == [1, 2]
    assert source.take() is None
    for number in range(3, 3 * BLOCK_ROWS):
        put(source, number)
    assert numbers(source) == list(range(3, 3 * BLOCK_ROWS))
    put(source, 7)
    assert numbers(source) == [7]
    assert source.dropped() == 0


def test_rows_without_a_free_block_are_dropped_and_counted() -> None:
    source = lane()
    room = BLOCKS * BLOCK_ROWS
    for number in range(room + 1000):
        put(source, number)
    assert source.dropped() == 1000
    assert numbers(source) == list(range(room))
    for number in range(100):
        put(source, number)
    kept = numbers(source)
    assert kept == list(range(100 - len(kept), 100))
    assert source.dropped() == 1000 + 100 - len(kept)


def test_a_stopped_lane_keeps_what_it_has_and_takes_no_more() -> None:
    source = lane()
    put(source, 1)
    source.stop()
    put(source, 2)
    assert numbers(source) == [1]
    assert source.dropped() == 1


def test_a_sleeping_lane_forgets() -> None:
    source = lane()
    put(source, 1)
    source.sleep()
    assert source.take() is None
    assert not source.block


def test_no_row_is_lost_or_torn_between_two_threads() -> None:
    source = lane()
    count = 300_000
    taken: list[int] = []
    done = threading.Event()

    def consume() -> None:
        while not done.is_set():
            taken.extend(numbers(source))

    consumer = threading.Thread(target=consume)
    consumer.start()
    for number in range(count):
        put(source, number)
    done.set()
    consumer.join()
    taken.extend(numbers(source))
    assert len(taken) + source.dropped() == count
    assert np.all(np.diff(taken) > 0)
    if not source.dropped():
        assert taken == list(range(count))


def test_join_orders_by_start() -> None:
    narrow = {name: np.array([1, 4], dtype) for name, dtype in _kinds()}
    wide = {name: np.array([2, 3, 5], dtype) for name, dtype in _kinds()}
    wide["kv_tokens"] = np.array([20, 30, 50])
    both = join(narrow, wide)
    assert both is not None
    assert both["start"].tolist() == [1, 2, 3, 4, 5]
    assert both["kv_tokens"].tolist() == [NULL, 20, 30, NULL, 50]
    assert join(None, wide) is wide
    assert join(narrow, None) is narrow
    assert join(None, None) is None


def _kinds() -> list[tuple[str, str]]:
    return [(name, "f8" if name in ("start", "end") else "i4") for name in NARROW_ROW.names or ()]
