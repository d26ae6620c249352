import pytest

from graphdiag.buckets.engines import Variant, variants
from graphdiag.buckets.memory import MIB, Memory, given, measure_memory
from tests.buckets.making import engine_rows, summary
from tests.build import event

ONE = (Variant("", None),)


def capture(size, mib, at=0.0, **columns):
    took = {"pool_bytes": round(mib * MIB)} if mib is not None else {}
    return event("capture", at, size=size, dur_ns=700_000_000, **took, **columns)


LADDER = [capture(32, 2048 + 10, 0), *(capture(size, 10, 1) for size in (16, 8, 4, 1))]


def memory(rows, which=ONE, **config):
    return measure_memory(summary(rows, **config), which)


def test_the_first_and_largest_capture_carries_the_pool():
    found = memory([*LADDER, *engine_rows([9])])
    assert (found.pool_mib, found.pool_size, found.graph_mib) == (2048, 32, 10)
    assert found.graph_seconds == pytest.approx(0.7)
    assert found.notes == ()
    assert found.mib([1, 4, 8, 16, 32]) == 2048 + 50
    assert found.mib([8, 16]) == 1024 + 20  # the pool shrinks with the largest bucket
    assert found.seconds([8, 16]) == pytest.approx(1.4)


def test_free_memory_before_and_after_tells_the_same():
    rows = [
        {**capture(size, None), "mem_before": 90_000 * MIB, "mem_after": (90_000 - mib) * MIB}
        for size, mib in ((32, 2058), (16, 10), (8, 10))
    ]
    found = memory(rows)
    assert (found.pool_mib, found.graph_mib) == (2048, 10)


def test_the_fullest_rank_of_the_last_run_counts():
    old = [capture(64, 9_999, run="run-0"), capture(32, 9_999, run="run-0")]
    other = [capture(32, 5, rank=1), capture(16, 5, rank=1)]
    found = memory([*old, *LADDER, *other])
    assert (found.pool_mib, found.graph_mib) == (2048, 10)


def test_smallest_first_does_not_tell_the_pool():
    found = memory([capture(8, 100), capture(16, 200), capture(32, 400)])
    assert found.mib([8]) is None
    assert "700 MiB over 3 graphs, not each capture's; give --mib-per-graph" in found.notes[0]
    assert found.graph_seconds == pytest.approx(0.7)


def test_a_total_alone_and_what_a_graph_takes_give_the_pool():
    found = memory([capture(None, None, weight=10)], graph_bytes=500 * MIB)
    assert (found.total_mib, found.total_graphs) == (500, 10)
    assert found.graph_seconds == pytest.approx(0.07)
    assert "tells 500 MiB over 10 graphs" in found.notes[0]
    told = given(found, graph_mib=8, pool_size=64)
    assert (told.pool_mib, told.pool_size) == (420, 64)
    assert told.mib([32, 64]) == 420 + 16
    assert told.notes == ()


def test_no_capture_on_record_is_said():
    found = memory(engine_rows([9]))
    assert found.notes == ("What a graph costs: no capture is on record.",)
    assert found.mib([8]) is found.seconds([8]) is None
    with pytest.raises(ValueError, match="not identifiable"):
        found.largest_within(100, 1)


def test_what_a_person_gives_goes_before_what_was_measured():
    found = given(memory(LADDER), graph_mib=20, graph_seconds=2, pool_size=99)
    assert (found.pool_mib, found.pool_size, found.graph_mib) == (2048, 32, 20)
    assert found.seconds([8]) == 2


def test_a_graph_alone_is_taken_to_need_no_pool():
    found = given(Memory(ONE, notes=("missing",)), graph_mib=20, pool_size=32)
    assert found.mib([8, 32]) == 40
    assert found.notes == ()
    pool_alone = given(Memory(ONE, notes=("missing",)), pool_mib=20, pool_size=32)
    assert pool_alone.mib([8]) is None
    assert pool_alone.notes == ("missing",)


def test_the_largest_bucket_a_budget_leaves_memory_for():
    found = memory(LADDER)
    assert found.largest_within(2048 + 50, 5) == 32
    assert found.largest_within(1024 + 20, 2) == 16
    assert found.largest_within(19, 2) == 0
    no_pool = Memory(ONE, pool_mib=0.0, graph_mib=10)
    assert no_pool.largest_within(20, 2) == float("inf")


def test_every_variant_of_a_size_is_a_graph():
    run = {"engine": "vllm", "mode": "FULL_AND_PIECEWISE", "max_num_seqs": 16, "lora": 2}
    which = variants("vllm", run)
    assert [one.name for one in which] == [
        "FULL, no adapter",
        "FULL, up to 2 adapters",
        "PIECEWISE, no adapter",
        "PIECEWISE, up to 2 adapters",
    ]
    found = Memory(which, pool_mib=0.0, graph_mib=1, graph_seconds=0.7)
    assert found.graphs([8, 16, 32]) == 4 + 4 + 2  # FULL decode ends at the fullest batch
    assert found.seconds([1, 4, 8, 16]) == pytest.approx(16 * 0.7)
    assert found.most_graphs(3) == 12
