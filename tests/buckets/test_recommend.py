from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.engines import rules_for
from graphdiag.buckets.histogram import Histogram, histogram
from graphdiag.buckets.memory import Memory
from graphdiag.buckets.prices import TimePrices
from graphdiag.buckets.problem import serve
from graphdiag.buckets.recommend import MAX_ADDED, best_addition, recommend
from graphdiag.buckets.setting import Setting, of_summary
from graphdiag.curves import Curve
from graphdiag.summary import summarize
from tests.build import event, step, trace


def traffic(counts: dict[int, int], captured, config=None, axis="requests", **more) -> Setting:
    """The setting of a histogram of which half the steps come early and half late."""
    sizes = sorted(counts)
    config = config or {}
    steps = np.array([counts[s] for s in sizes], dtype=float)
    engine = config.get("engine", "vllm")
    return Setting(
        source="made by hand",
        engine=engine,
        config=config,
        phase=None,
        traffic=Histogram(
            sizes=np.array(sizes, dtype=np.int64),
            counts=steps,
            axis=axis,
            captured=np.array(captured, dtype=np.int64),
            over_time=np.tile(steps / 8, (8, 1)),
        ),
        rules=rules_for(engine, config, axis, "decode"),
        memory=Memory(()),
        times=None,
        seen_replayed=0,
        **more,
    )


def price(counts: dict[int, int], buckets) -> int:
    """Padded rows, and for a size above every bucket its rows once more: by the definition."""
    total = 0
    for size, count in counts.items():
        bucket = min((b for b in buckets if b >= size), default=None)
        total += count * (size if bucket is None else bucket - size)
    return total


histograms = st.dictionaries(st.integers(1, 60), st.integers(1, 50), min_size=1, max_size=20)
bucket_sets = st.sets(st.integers(1, 60), min_size=1, max_size=8).map(sorted)


@given(histograms, bucket_sets)
def test_the_best_addition_is_the_best_of_all_by_brute_force(counts, buckets):
    found = best_addition(traffic(counts, buckets).problem(), np.array(buckets))
    now = price(counts, buckets)
    saved = {size: now - price(counts, {*buckets, size}) for size in counts}
    if found is None:
        steps = sum(counts.values())
        executed = sum(s * c for s, c in counts.items()) + now
        for size, gain in saved.items():
            below = max((b for b in buckets if b < size), default=0)
            helped = sum(c for s, c in counts.items() if below < s <= size)
            assert helped < 0.01 * steps or gain < 0.005 * executed
    else:
        worth = [
            gain
            for size, gain in saved.items()
            if sum(
                c
                for s, c in counts.items()
                if max((b for b in buckets if b < size), default=0) < s <= size
            )
            >= 0.01 * sum(counts.values())
        ]
        assert saved[found] == max(worth)


@given(histograms, bucket_sets)
def test_a_recommendation_never_pads_or_falls_back_more_rows(counts, buckets):
    advice = recommend(traffic(counts, buckets))
    if advice is not None:
        assert set(buckets) < set(advice.buckets)
        assert len(advice.buckets) <= len(buckets) + MAX_ADDED
        assert price(counts, advice.buckets) < price(counts, buckets)
        assert advice.buckets == sorted(advice.buckets)


def test_batch_nine_gets_its_bucket():
    advice = recommend(traffic({3: 60, 8: 130, 9: 240, 16: 45, 20: 30}, [1, 4, 8, 16, 32]))
    assert advice.add == [3, 9, 20]
    assert advice.flags["sglang"] == "--cuda-graph-bs-decode 1 3 4 8 9 16 20 32"
    assert advice.flags["vllm"] == "--cudagraph-capture-sizes 1 3 4 8 9 16 20 32"
    assert "batch_sizes: [1, 3, 4, 8, 9, 16, 20, 32]" in advice.flags["tensorrt_llm"]
    assert advice.padding_ratio == 0


def test_old_sglang_has_one_list():
    config = {"engine": "sglang", "engine_version": "0.5.9"}
    advice = recommend(traffic({9: 240}, [1, 16], config))
    assert advice.flags["sglang"] == "--cuda-graph-bs 1 9 16"


def test_the_token_budget_is_a_limit():
    counts = {900: 500, 12: 100}
    assert 900 in recommend(traffic(counts, [16], axis="tokens")).add
    limited = recommend(traffic(counts, [16], {"token_budget": 512}, axis="tokens"))
    assert limited is None or 900 not in limited.add


def test_a_trap_gets_the_size_that_ends_it_and_the_trapped_sizes_none():
    advice = recommend(traffic({9: 500, 20: 100}, [8, 16, 32], trapped_up_to=75))
    assert advice.add == [9, 20, 75]
    assert "lets a batch of 75 replay, which ends the fallback trap" in advice.why
    assert "over the 600 steps seen outside it" in advice.why
    assert advice.fallback_rate is None  # out of the trap the traffic will be another


def test_sizes_that_are_faster_eager_get_no_bucket():
    replay = Curve(np.array([8.0, 32.0]), np.array([5e6, 8e6]), slope=125_000.0)
    faster_eager = TimePrices(replay, np.array([66.0]), np.array([-4e6]))
    setting = replace(traffic({9: 500, 66: 400}, [8, 16, 32]), times=faster_eager)
    assert recommend(setting).add == [9]
    slower_eager = TimePrices(replay, np.array([66.0]), np.array([4e6]))
    assert recommend(replace(setting, times=slower_eager)).add == [9, 66]


def test_a_gain_that_one_half_of_the_traffic_does_not_see_is_no_gain():
    setting = traffic({9: 4, 16: 400}, [16])
    over_time = np.tile([0.0, 50.0], (8, 1))
    over_time[0, 0] = 4.0  # one early moment
    lopsided = replace(setting.traffic, counts=over_time.sum(axis=0), over_time=over_time)
    assert recommend(replace(setting, traffic=lopsided)) is None


def test_batches_that_only_a_trap_makes_are_no_traffic():
    rows = [step(n, 16, i) for i, n in enumerate([9, 12, 16] * 20)]
    rows += [step(40, None, 100 + i, reason="over_max") for i in range(50)]
    rows.append(event("run", config={"capture_sizes": [16]}))
    setting = of_summary(summarize(trace(rows)), "made by hand", trapped_up_to=24)
    assert setting.traffic.sizes.tolist() == [9, 12, 16]
    assert setting.problem().keep[-1] == 24
    assert "24 ends it" in setting.notes[-1]


def test_a_perfect_set_needs_nothing():
    assert recommend(traffic({8: 100, 16: 50}, [8, 16])) is None


def test_no_captured_size_no_recommendation():
    assert recommend(traffic({8: 100}, [])) is None


def test_service_counts_rows_and_steps():
    problem = traffic({9: 10, 20: 10, 64: 5}, [16, 32]).problem()
    found = serve(problem, np.array([16, 32]))
    assert found.padding_ratio == pytest.approx((70 + 120) / (90 + 200))
    assert found.fallback_rate == pytest.approx(5 / 25)
    assert found.price == 10 * 16 + 10 * 32 + 5 * 128


def test_a_fallback_that_no_bucket_cures_is_left_out():
    rows = [step(9, 16), step(9, None, reason="lora"), step(40, None, reason="unknown")]
    summary = summarize(trace([*rows, event("run", config={"capture_sizes": [16, 32]})]))
    found = histogram(summary, {"capture_sizes": [16, 32]})
    assert found.sizes.tolist() == [9, 40]
    assert found.counts.tolist() == [1, 1]


def test_prefill_on_another_axis_is_left_out():
    rows = [step(9, 16), step(500, None, phase="prefill", axis="tokens", reason="over_max")]
    found = histogram(summarize(trace(rows)), {"axis": "requests"})
    assert found.sizes.tolist() == [9]
    assert found.captured.tolist() == [16]


def test_captured_sizes_come_from_captures_where_no_configuration_tells():
    rows = [step(9, 16), event("capture", size=8), event("capture", size=16)]
    found = histogram(summarize(trace(rows)), {})
    assert found.captured.tolist() == [8, 16]
