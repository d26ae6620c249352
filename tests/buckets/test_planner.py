"""Whole answers: the seed's practice, budgets, engines, traps, noise and drift."""

from dataclasses import replace

import numpy as np
import pytest

from graphdiag.bucket_advice import setting_of
from graphdiag.buckets import memory as costs
from graphdiag.buckets.answer import Plan, as_json
from graphdiag.buckets.planner import plan_buckets
from graphdiag.buckets.setting import of_summary, of_table
from graphdiag.buckets.tables import parse_size_table
from graphdiag.buckets.wishes import Wishes
from graphdiag.diagnosis import report_of
from graphdiag.errors import GraphdiagError
from graphdiag.summary import summarize
from graphdiag.trace import open_trace
from tests.buckets.making import (
    LADDER,
    engine_rows,
    graphs_off_rows,
    practice,
    replay_ms,
    summary,
)
from tests.build import event
from tests.conftest import ROOT

CONTRACT = {
    "": "format current best_single_change best_same_count frontier held_out flags what_if",
    "plan": "buckets graphs padding_ratio fallback_rate cost_ms_per_step memory_mib warmup_s",
    "best_single_change": "action sizes plan helps",
    "helps": "from to steps sentence",
    "held_out": "fit_share padding_ratio",
}
"""The keys that the JSON contract names; more may be added, none renamed."""


def plan(setting, **wishes):
    return plan_buckets(setting, Wishes(**wishes))


def traced(sizes, buckets=LADDER, config=None, **more):
    run = {"capture_sizes": [*buckets], "axis": "requests", **(config or {})}
    rows = engine_rows(sizes, buckets, **more)
    return of_summary(summary(rows, **run), "made by hand")


def mixed(pairs, seed=3):
    """Sizes so often, in random order."""
    sizes = [size for size, count in pairs.items() for _ in range(count)]
    np.random.default_rng(seed).shuffle(sizes)
    return sizes


def moves(runs):
    return [(run.first, run.last, run.bucket_before, run.bucket_after) for run in runs]


# The seed's practice: buckets 1, 4, 8, 16, 32, every range spread evenly.


def test_the_practice_pads_28_percent():
    answer = plan(practice())
    assert answer.current.padding_ratio == pytest.approx(0.2802, abs=5e-5)
    assert answer.current.graphs == 5
    assert answer.current.fallback_rate == 0
    assert (answer.priced_in, answer.shares, answer.steps) == ("rows", True, pytest.approx(1))


def test_the_practices_one_best_addition_is_24():
    change = plan(practice()).best_single_change
    assert (change.action, change.sizes) == ("add", [24])
    assert change.plan.padding_ratio == pytest.approx(0.2196, abs=5e-5)
    assert moves(change.helps) == [(17, 24, 32, 24)]
    assert change.helps[0].steps == pytest.approx(0.075)
    assert change.hurts == []
    assert change.sentence == (
        "Add 24: padding from 28.0 % of requested rows to 22.0 %; 7.5 % of steps (17 to 24 rows) "
        "replay 24 in place of 32."
    )


def test_the_practices_best_move_at_the_same_count_helps_some_and_hurts_some():
    move = plan(practice()).best_move
    assert (move.action, move.sizes) == ("move", [1, 24])
    assert move.plan.buckets == [4, 8, 16, 24, 32]
    assert move.plan.graphs == 5
    assert moves(move.helps) == [(17, 24, 32, 24)]
    assert moves(move.hurts) == [(1, 1, 1, 4)]
    assert move.hurts[0].sentence == "8.0 % of steps (1 row) replay 4 in place of 1"
    gained, lost = 8 * 0.075, 3 * 0.08  # rows a step
    requested = sum(share * size for size, share in shares().items())
    wanted = (0.2802 * requested - gained + lost) / requested
    assert move.plan.padding_ratio == pytest.approx(wanted, abs=1e-4)


def shares():
    table = parse_size_table("1,8%\n2-4,17%\n5-8,31%\n9-16,29%\n17-32,15%\n", "t")
    return dict(zip(table.sizes.tolist(), table.weights.tolist(), strict=True))


def test_under_a_budget_of_its_five_graphs_the_practice_gets_the_move():
    answer = plan(practice(), max_graphs=5)
    assert answer.best_single_change == answer.best_move
    assert answer.best_single_change.sizes == [1, 24]
    assert answer.recommended == answer.best_same_count
    assert answer.recommended.buckets == [5, 9, 16, 24, 32]
    assert answer.recommended.padding_ratio == pytest.approx(0.2434, abs=5e-5)


def test_the_practices_frontier_ends_where_nothing_pads():
    answer = plan(practice())
    assert [len(one.buckets) for one in answer.frontier] == list(range(1, 33))
    assert answer.frontier[0].buckets == [32]
    assert answer.frontier[-1].padding_ratio == 0
    assert answer.knee == 4
    assert answer.best_same_count == answer.frontier[4]


def test_without_a_current_list_the_knee_is_recommended():
    answer = plan(practice(()))
    assert answer.current is answer.best_single_change is answer.best_same_count is None
    assert answer.gain is None
    assert len(answer.recommended.buckets) == answer.knee
    assert "the knee, after which a further graph brings less" in answer.sentence
    assert answer.flags["vllm"] == "--cudagraph-capture-sizes 5 9 16 32"


# Prices in ms, and what a gain is worth on other traffic.


def test_a_trace_is_priced_in_ms():
    setting = traced(mixed({8: 400, 9: 400, 16: 100, 1: 50, 4: 50, 32: 50}))
    answer = plan(setting)
    assert answer.priced_in == "ms"
    steps = {8: 400, 9: 400, 16: 100, 1: 50, 4: 50, 32: 50}
    buckets = {**{size: size for size in LADDER}, 9: 16}
    mean = sum(n * replay_ms(buckets[s]) for s, n in steps.items()) / 1050
    assert answer.current.cost_ms_per_step == pytest.approx(mean, rel=1e-6)
    assert answer.slope.ms_per_row == pytest.approx(0.24)
    change = answer.best_single_change
    assert (change.action, change.sizes) == ("add", [9])
    saved = 400 * 7 * 0.24 / 1050
    assert change.plan.cost_ms_per_step == pytest.approx(mean - saved, rel=1e-6)
    assert change.gain.unit == "ms"
    low, high = change.gain.ci95
    assert low < change.gain.per_step < high
    assert change.gain.per_step == pytest.approx(saved, rel=0.2)
    assert answer.best_move.sizes == [1, 9]


def test_a_gain_within_noise_recommends_nothing():
    # One burst of nines in a long trace of sixteens: half of the stretches never see it.
    sizes = [16] * 400 + [9] * 12 + [16] * 800
    answer = plan(traced(sizes, buckets=(8, 16, 32)))
    assert answer.recommended is None
    assert answer.flags == {}
    assert answer.best_single_change is None or answer.best_single_change.action == "drop"
    assert answer.sentence.endswith("within noise. Keep the current one.")
    assert answer.best_same_count.buckets == [9, 16]  # still there for who wants to know


def test_the_best_set_already_is_kept():
    answer = plan(traced(mixed({8: 300, 16: 300}), buckets=(8, 16)))
    assert answer.recommended is None
    assert "keep the current one" in answer.sentence
    assert answer.best_move is None


def test_buckets_and_report_add_the_same_sizes():
    sizes = [1 + (7 * i) % 32 for i in range(640)]
    for buckets in ((32,), (1, 32)):
        run = summary(engine_rows(sizes, buckets), capture_sizes=[*buckets], axis="requests")
        added = report_of(run, "made by hand").recommendation
        assert added.add
        answer = plan(of_summary(run, "made by hand"))
        if len(buckets) == 1:  # no other set of one size serves batches of 32
            assert answer.recommended.buckets == added.buckets
            assert answer.sentence.startswith(added.why)
        else:
            assert len(answer.recommended.buckets) == len(buckets)
            assert any(note.endswith(added.why) for note in answer.notes)


def test_traffic_that_drifts_is_warned_of():
    # Two buckets for four sizes: the best two of the first half are wrong for the second.
    first, second = mixed({3: 900, 4: 900}), mixed({15: 100, 16: 100})
    setting = traced([*first, *second, *first, *second], buckets=(4, 16))
    sizes = [*mixed({9: 700, 16: 100}), *mixed({12: 700, 16: 100})]
    setting = traced(sizes, buckets=(12, 16))
    answer = plan(setting)
    assert answer.held_out.how == "time"
    assert answer.held_out.gain.per_step <= 0
    if answer.recommended is not None:
        assert "But the traffic drifts" in answer.sentence


def test_a_single_change_stands_where_a_whole_new_set_is_noise():
    # The load climbs all the time: a set fitted to some stretches is wrong for those between.
    trace = open_trace(ROOT / "sample_traces" / "doubling_ladder.parquet")
    answer = plan(setting_of(summarize(trace), "doubling"))
    change = answer.best_single_change
    assert (change.action, change.sizes) == ("add", [839])
    assert change.gain.ci95[0] > 0
    assert answer.recommended == change.plan
    assert answer.gain == change.gain
    assert answer.sentence.startswith(change.sentence)
    assert answer.sentence.endswith("on traffic it was not fitted to: within noise.")


def test_no_graph_pays_where_eager_is_as_fast():
    rows = engine_rows([*LADDER] * 60)
    off = summary(graphs_off_rows([*LADDER] * 60))
    slower = [{**row, "dur_ns": row["dur_ns"] + 2_000_000} for row in rows]
    answer = plan(of_summary(summary(slower, capture_sizes=[*LADDER]), "t", baseline=off))
    assert answer.recommended is None
    assert answer.sentence.startswith("Eager steps cost no more than replays here")
    assert all(size.net_ms == pytest.approx(-1.25) for size in answer.sizes)


def test_held_out_figures_by_hand():
    # Eight stretches; nines in the first half, tens in the second: fitted on nines, tens pad.
    sizes = [*[9, 16] * 50, *[10, 16] * 50]
    untimed = [{**row, "dur_ns": None} for row in engine_rows(sizes, (8, 16))]
    setting = of_summary(summary(untimed, capture_sizes=[8, 16], axis="requests"), "made by hand")
    held = plan(setting).held_out
    over_time = setting.traffic.over_time
    done = np.cumsum(over_time.sum(axis=1))
    cut = int(np.searchsorted(done, done[-1] / 2)) + 1
    fit, rest = over_time[:cut].sum(axis=0), over_time[cut:].sum(axis=0)
    assert setting.traffic.sizes.tolist() == [9, 10, 16]
    second = 9 if fit[0] * 7 >= fit[1] * 6 else 10
    buckets = {9: second, 10: 10 if second == 10 else 16, 16: 16}
    requested = executed = 0.0
    for size, count in zip([9, 10, 16], rest.tolist(), strict=True):
        requested += count * size
        executed += count * buckets[size]
    assert held.fit_share == pytest.approx(fit.sum() / 200)
    assert held.padding_ratio == pytest.approx((executed - requested) / requested)
    assert held.fallback_rate == 0


# Budgets.


def test_a_budget_that_nothing_fits_says_so():
    known = costs.given(practice().memory, graph_mib=20)
    answer = plan(replace(practice(), memory=known), budget_mib=10)
    assert answer.recommended is None
    assert answer.frontier == []
    assert answer.knee is None
    assert answer.sentence == (
        "No set of sizes fits within 10 MiB; the smallest takes 20 MiB: allow more, or keep fewer "
        "sizes."
    )


def test_a_memory_budget_leaves_room_for_the_pool():
    known = costs.given(practice().memory, graph_mib=10, pool_mib=2048, pool_size=32)
    answer = plan(replace(practice(), memory=known), budget_mib=2048 + 45)
    assert answer.recommended.buckets[-1] == 32
    assert len(answer.recommended.buckets) == 4
    assert answer.recommended.memory_mib == 2048 + 40
    assert answer.current.memory_mib == 2048 + 50
    assert all(one.memory_mib <= 2048 + 45 for one in answer.frontier)
    assert answer.sentence.startswith("The best 4 sizes within 2,093 MiB pad 30.4 %")


def test_a_memory_budget_needs_to_know_the_memory():
    with pytest.raises(GraphdiagError, match=r"--budget-mib: how much .* give --mib-per-graph"):
        plan(practice(), budget_mib=100)


def test_a_budget_may_leave_rare_large_sizes_eager_where_eager_has_a_price():
    sizes = mixed({4: 500, 8: 500, 32: 2, 40: 30})
    rows, off = engine_rows(sizes), summary(graphs_off_rows([4, 8, 32] * 100))
    run = {"capture_sizes": [*LADDER], "axis": "requests"}
    setting = of_summary(summary(rows, **run), "t", baseline=off)
    known = costs.given(setting.memory, graph_mib=10, pool_mib=3200, pool_size=32)
    answer = plan(replace(setting, memory=known), budget_mib=1000)
    assert answer.recommended.buckets[-1] <= 9
    assert answer.recommended.fallback_rate == pytest.approx(32 / 1032)
    assert "fall back on 3.1 % of steps in place of 2.9 %" in answer.sentence
    assert "a step more" in answer.sentence


def test_a_budget_with_more_graphs_than_sizes_pads_nothing():
    answer = plan(practice(), max_graphs=10_000)
    assert len(answer.recommended.buckets) == 32
    assert answer.recommended.padding_ratio == 0


def test_every_variant_counts_against_the_budget():
    run = {"engine": "vllm", "mode": "PIECEWISE", "lora": 4, "axis": "tokens"}
    setting = traced(mixed({9: 300, 20: 300}), config=run, axis="tokens")
    answer = plan(setting, max_graphs=6)
    assert answer.variants == ["PIECEWISE, no adapter", "PIECEWISE, up to 4 adapters"]
    assert answer.current.graphs == 10
    assert answer.recommended.graphs <= 6
    assert len(answer.recommended.buckets) == 2


# What a person keeps, forbids and asks about.


def test_every_set_keeps_and_forbids_what_it_must():
    answer = plan(practice(), keep=(1, 12), forbid=(8, 24), max_graphs=6)
    for one in (*answer.frontier, answer.recommended, answer.best_same_count):
        assert {1, 12, 32} <= set(one.buckets)
        assert not {8, 24} & set(one.buckets)
    assert answer.recommended is not None  # the current list holds 8


def test_a_current_list_that_breaks_a_wish_is_not_the_best_already():
    table = parse_size_table("8,100\n16,100\n", "t")
    answer = plan(of_table(table, "t", current=(8, 16)), forbid=(8,))
    assert answer.recommended.buckets == [9, 16]
    assert answer.sentence.startswith("The best 2 sizes pad")


def test_too_many_kept_sizes_are_refused():
    with pytest.raises(GraphdiagError, match="--keep: a set has at most 1,024 sizes"):
        plan(practice(), keep=tuple(range(1, 2000)))


def test_keeping_more_than_the_frontier_reaches():
    answer = plan(practice(), keep=tuple(range(1, 100)))
    assert answer.recommended is None or len(answer.recommended.buckets) >= 99
    assert len(answer.frontier[0].buckets) == 99


def test_what_if_prices_what_the_engine_would_make_of_a_list():
    run = {"engine": "vllm", "axis": "tokens", "token_budget": 64}
    answer = plan(
        traced(mixed({9: 300, 40: 300}), config=run, axis="tokens"), what_if=(9, 4, 40, 128)
    )
    assert answer.what_if.buckets == [4, 9, 40]
    assert answer.what_if.padding_ratio == 0
    assert answer.what_if_remarks == [
        "128 is above 64: vLLM leaves it out.",
        "The sizes are not ascending: vLLM sorts them.",
    ]
    nothing = plan(practice(engine="vllm"), what_if=(1,))
    assert nothing.what_if.fallback_rate == pytest.approx(0.92)


def test_a_current_list_the_engine_would_not_take_is_said():
    run = {"engine": "vllm", "axis": "tokens", "token_budget": 64}
    rows = engine_rows(mixed({9: 300, 40: 300}), (16, 64), axis="tokens")
    answer = plan(of_summary(summary(rows, **run), "t", current=(16, 64, 128)))
    assert answer.current.buckets == [16, 64]
    assert "Of the sizes captured now, 128 is above 64: vLLM leaves it out." in answer.notes


# Engines and phases.


def test_sglang_prefill_leaves_a_small_chunk_eager_and_gets_its_own_flag():
    run = {"engine": "sglang", "engine_version": "0.5.23", "token_budget": 4096}
    rows = engine_rows(mixed({100: 200, 300: 200, 4096: 50}), (512, 4096), phase="prefill")
    tokens = [{**row, "axis": "tokens"} for row in rows]
    # 100 tokens in a graph of 512 is over twice its size: the engine ran it eager.
    small = [
        {**row, "bucket": None, "outcome": "fallback", "mode": "eager", "reason": "no_key"}
        if row["requested"] == 100
        else row
        for row in tokens
    ]
    captures = [event("capture", size=size, phase="prefill") for size in (4096, 512)]
    answer = plan(of_summary(summary([*captures, *small], **run), "t", phase="prefill"))
    assert answer.current.buckets == [512, 4096]
    assert answer.current.fallback_rate == pytest.approx(200 / 450)
    sizes = {size.requested: size.bucket for size in answer.sizes}
    assert sizes == {100: None, 300: 512, 4096: 4096}
    assert answer.best_single_change.action == "add"
    assert answer.best_single_change.flags["sglang"].startswith("--cuda-graph-bs-prefill ")
    assert answer.phase == "prefill"


def test_exact_only_engines_get_the_sizes_that_come():
    run = {"engine": "sglang", "padding": False, "max_num_seqs": 64, "axis": "requests"}
    rows = engine_rows(mixed({9: 300, 20: 200, 33: 20}), (9, 20, 40))
    answer = plan(of_summary(summary(rows, **run), "t", current=(8, 20)))
    assert answer.current.fallback_rate == pytest.approx(320 / 520)
    assert answer.best_same_count.buckets == [9, 20]
    assert answer.best_same_count.padding_ratio == 0
    assert answer.best_single_change.sizes[-1] == 9


def test_recommended_sets_are_multiples_where_the_engine_asks_for_them():
    run = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "mode": "FULL_DECODE_ONLY",
        "speculative_tokens": 3,
        "runner": "v1",
        "axis": "tokens",
        "max_num_seqs": 16,
        "token_budget": 2048,
    }
    setting = traced(mixed({12: 300, 20: 300, 36: 100}), (8, 16, 32, 64), run, axis="tokens")
    answer = plan(setting)
    for one in (answer.recommended, answer.best_same_count, *answer.frontier):
        assert all(size % 4 == 0 for size in one.buckets)
        assert 64 in one.buckets  # sixteen requests of four tokens stay in a graph
    assert list(answer.flags) == ["vllm"]


def test_graphs_off_gets_a_first_list():
    rows = graphs_off_rows(mixed({3: 300, 9: 300, 20: 100}))
    answer = plan(of_summary(summary(rows, engine="sglang"), "t", graphs_off=True))
    assert answer.current is None
    assert answer.recommended.buckets[-1] == 20
    assert answer.recommended.fallback_rate == 0
    assert answer.not_identifiable[0].startswith("Milliseconds a step")


def test_all_fallback_gets_a_list():
    rows = engine_rows(mixed({40: 300, 50: 300}), (8,))
    answer = plan(of_summary(summary(rows, capture_sizes=[8], axis="requests"), "t"))
    assert answer.current.fallback_rate == 1
    assert answer.current.padding_ratio is None
    assert answer.best_single_change.sizes[-1] in (40, 50)
    assert "not identifiable" not in answer.sentence


# Traps, drops, and what was not seen.


def trapped(**wishes):
    rows = engine_rows([*mixed({9: 200, 14: 200}), *[70] * 200], (8, 16))
    run = {"capture_sizes": [8, 16], "axis": "requests"}
    return plan(of_summary(summary(rows, **run), "t", trapped_up_to=48), **wishes)


def test_out_of_a_trap_the_size_that_ends_it_comes_first():
    answer = trapped()
    assert answer.best_single_change.sizes == [48]
    assert answer.best_single_change.gain is None
    assert answer.sentence.startswith("Add 48: it lets a batch of 48 requests replay, which ends")
    assert answer.recommended.buckets[-1] == 48
    assert all(48 in one.buckets for one in answer.frontier)
    assert answer.steps == 400


def test_the_way_out_of_a_trap_obeys_the_budget():
    answer = trapped(max_graphs=2)
    assert answer.best_single_change is None or len(answer.best_single_change.plan.buckets) <= 2
    assert answer.recommended is None or answer.recommended.graphs <= 2


def test_what_hardly_serves_may_be_dropped_for_its_memory():
    setting = traced(mixed({9: 2000, 32: 100, 1: 1}), buckets=(1, 4, 16, 32))
    known = costs.given(setting.memory, graph_mib=10, pool_mib=320, pool_size=32)
    answer = plan(replace(setting, memory=known))
    drops = {
        drop.size: (drop.steps, drop.graphs, drop.memory_mib) for drop in answer.drop_candidates
    }
    assert drops == {1: (1, 1, 10), 4: (0, 1, 10)}


def test_sizes_that_lose_their_bucket_unseen_are_named():
    setting = traced(mixed({9: 300, 12: 300}), buckets=(1, 4, 16, 32, 64))
    notes = plan(setting).notes
    assert any(note.startswith("No step below 9 requests was seen") for note in notes)
    wanted = "No step of 13 to 64 requests was seen, so that the set has no bucket for one"
    assert any(note.startswith(wanted) and "would run eager" in note for note in notes)
    large = {"max_num_seqs": 64, "engine": "sglang"}
    kept = plan(traced(mixed({9: 300, 12: 300}), (1, 4, 16, 32, 64), large)).notes
    assert any("of 13 to 32 requests" in note and "would replay 64" in note for note in kept)


# The contract.


def test_the_keys_of_the_contract_are_there():
    told = as_json(plan(traced(mixed({8: 300, 9: 300})), what_if=(1, 2)))
    assert told["format"] == 1
    plans = ("current", "best_same_count", "what_if", "recommended")
    parts = {
        "": told,
        "best_single_change": told["best_single_change"],
        "helps": told["best_single_change"]["helps"][0],
        "held_out": told["held_out"],
    }
    for name, part in parts.items():
        assert set(CONTRACT[name].split()) <= set(part), name
    for one in (
        *(told[name] for name in plans),
        *told["frontier"],
        told["best_single_change"]["plan"],
    ):
        assert list(one) == CONTRACT["plan"].split() == list(Plan.__struct_fields__)
    assert set(told["flags"]) == {"vllm", "sglang", "tensorrt_llm"}


def test_no_traffic_is_a_sentence():
    with pytest.raises(GraphdiagError, match="nothing to plan for"):
        plan(of_summary(summary([]), "t"))


def test_a_largest_graph_for_few_steps_is_named():
    def asked(steps):
        table = parse_size_table(f"7,600\n42,390\n900,{steps}\n", "made")
        return plan(of_table(table, "made", current=[8, 40]), max_graphs=3)

    answer = asked(8)
    assert answer.recommended.buckets[-1] == 900
    (note,) = [note for note in answer.notes if "--forbid 900" in note]
    assert "0.8 % of steps" in note
    assert not [note for note in asked(80).notes if "--forbid" in note]
