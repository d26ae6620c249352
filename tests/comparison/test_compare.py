"""From two traces to the answer: known cases, and input that holds less than it should."""

import math
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphdiag.comparison.answer import Terms
from graphdiag.comparison.compare import Slo
from graphdiag.reporters import compare_markdown, compare_text, json
from tests.build import MS, event, step
from tests.comparison.runs import (
    BUCKETS,
    SIZES,
    chapter_one,
    compared,
    configured,
    eager,
    replayed,
    steps,
)

NAMES = Terms.__struct_fields__


def adds_up(found):
    """The terms add up to the change, in ms a step and in ms a token."""
    if found.terms is not None:
        total = math.fsum(getattr(found.terms, name) for name in NAMES)
        assert total == pytest.approx(found.delta_ms_per_step, rel=1e-9, abs=1e-9)
    if found.per_token is not None:
        total = math.fsum(getattr(found.per_token.terms, name) for name in NAMES)
        assert total == pytest.approx(found.per_token.delta_ms, rel=1e-9, abs=1e-9)


def without(rows, *columns):
    """The rows with columns of their steps taken away."""
    gone = dict.fromkeys(columns)
    return [{**row, **gone} if row["event"] == "step" else row for row in rows]


def noisy(of, seed, jitter=0.02):
    """Step times of ``of`` that vary."""
    chance = random.Random(seed)

    def varied(size):
        told = of(size)
        return {**told, "ms": told["ms"] * chance.gauss(1, jitter)}

    return varied


# --- what must come out right --------------------------------------------------------------------


def test_chapter_one_padding_eats_what_replay_saves():
    found = compared(*chapter_one())
    assert found.base_ms_per_step == pytest.approx(5.2)
    assert found.delta_ms_per_step == pytest.approx(0.5)
    assert found.terms.launch_saving == pytest.approx(-0.7, abs=0.01)
    assert found.terms.padding == pytest.approx(1.2, abs=0.01)
    assert found.matched_ms_per_step == pytest.approx(0.5)
    assert found.verdict.case == "padding"
    assert found.verdict.sentence.startswith("The candidate is slower by 0.5 ms (95 %: ")
    assert "launches saved by replay -0.7 ms. Case 4: " in found.verdict.sentence
    assert found.not_identifiable == []
    adds_up(found)


def test_chapter_one_with_one_bucket_alone_takes_the_slope_from_the_eager_base():
    sizes = (9, 11, 13)  # five rows below 16 on average
    base = steps(sizes, 600, eager)
    candidate = steps(sizes, 600, lambda size: replayed(size, (16,)))
    found = compared(base, candidate)
    assert found.terms.launch_saving == pytest.approx(-0.7, abs=0.01)
    assert found.terms.padding == pytest.approx(1.2, abs=0.01)
    assert found.verdict.case == "padding"
    adds_up(found)


def test_the_worked_example_batch_nine_is_really_bucket_sixteen():
    """Batch eight saves 0.75 ms; nine pads seven rows at 0.24 ms, and loses nearly one."""
    buckets = (1, 4, 8, 16, 32)

    def graph(size):
        return {**replayed(size, buckets), "ms": replayed(size, buckets)["ms"] + 0.7 - 0.75}

    found = compared(steps((8, 9), 600, eager), steps((8, 9), 600, graph))
    changes = {one.requested: one for one in found.sizes}
    assert changes[8].change_ms == pytest.approx(-0.75)
    assert changes[9].change_ms == pytest.approx(7 * 0.24 - 0.75)
    assert (changes[9].base_bucket, changes[9].candidate_bucket) == (None, 16)
    assert found.terms.launch_saving == pytest.approx(-0.75, abs=0.01)
    assert found.terms.padding == pytest.approx(7 * 0.24 / 2, abs=0.01)


def test_piecewise_against_full_is_launch_saving():
    full = steps(SIZES, 300, replayed)
    piecewise = steps(
        SIZES, 300, lambda size: {**replayed(size, launch_ms=0.5), "mode": "piecewise"}
    )
    found = compared(full, piecewise)
    assert found.terms.launch_saving == pytest.approx(0.3, abs=0.01)
    assert "launches that replay saved before +0.3 ms" in found.verdict.sentence
    assert found.verdict.case is None


def test_a_ceiling_is_fallback():
    sizes = (8, 16, 32, 40)
    wide = steps(sizes, 400, lambda size: replayed(size, (8, 16, 32, 40)))
    ceiling = steps(
        sizes,
        400,
        lambda size: (
            replayed(size) if size <= 32 else {"ms": eager(size)["ms"], "reason": "over_max"}
        ),
    )
    found = compared(wide, ceiling)
    assert found.terms.fallback == pytest.approx(0.7 / 4, abs=0.01)
    assert found.verdict.case == "fallback"
    assert "fallback to eager +0.1" in found.verdict.sentence


def test_twice_the_same_is_no_difference():
    base, _ = chapter_one()
    found = compared(base, base)
    assert found.delta_ms_per_step == 0
    assert found.verdict.case is None
    assert found.verdict.sentence.startswith("No difference beyond noise: 0 ms")
    assert found.differences == []
    assert found.key_audit == []


def test_other_traffic_alone_is_traffic_mix():
    small = steps((8, 8, 16, 16, 32), 500, noisy(replayed, 1))
    large = steps((8, 16, 32, 32, 32), 500, noisy(replayed, 2))
    found = compared(small, large)
    truth = 0.24 * (sum((8, 16, 32, 32, 32)) - sum((8, 8, 16, 16, 32))) / 5
    assert found.terms.traffic_mix == pytest.approx(truth, rel=0.05)
    assert found.verdict.case is None
    assert "On the same traffic there is no difference beyond noise." in found.verdict.sentence
    assert found.matched_ci95[0] < 0 < found.matched_ci95[1]
    # A step takes longer for more rows; a token does not.
    assert found.per_token.delta_ms < 0
    adds_up(found)


def test_padding_that_lighter_traffic_hides_is_named():
    """Three rows less a step, and a coarser ladder that pads two and a half: the sum is nothing."""
    exact, coarse = range(5, 31, 5), (10, 20, 30)
    heavy = steps((5, 10, 15, 20, 25, 30, 30, 30), 800, noisy(lambda n: replayed(n, exact), 1))
    light = steps(
        (5, 5, 10, 15, 20, 25, 30, 30), 800, noisy(lambda n: replayed(n, coarse, 0.35), 2)
    )
    found = compared(heavy, light)
    assert found.verdict.sentence.startswith("A step takes as long as before (")
    assert "but on the same traffic the candidate is slower by 0." in found.verdict.sentence
    assert found.verdict.case == "padding"
    assert found.matched_ci95[0] > 0.5


def test_compiling_in_the_window_is_compile():
    warm = steps(SIZES, 300, replayed)
    compiles = [event("compile", 0.5 + i, artifact=f"r{i}", dur_ns=60 * MS) for i in range(5)]
    first = steps(SIZES, 5, lambda size: {**replayed(size), "ms": 60.0})
    cold = [*compiles, *first, *steps(SIZES, 295, replayed, 300.0)]
    found = compared(warm, cold)
    assert found.verdict.case == "compile"
    assert found.terms.compile > 0.5
    assert found.steady_ms_per_step == pytest.approx(0, abs=0.2)
    adds_up(found)


def test_sizes_cost_what_they_add_to_a_step():
    found = compared(*chapter_one())
    assert [one.requested for one in found.sizes] == list(SIZES)
    assert sum(one.cost_ms_per_step for one in found.sizes) == pytest.approx(0.5)


# --- input that holds less -----------------------------------------------------------------------


def test_other_engines_are_said():
    found = compared(
        configured(steps(SIZES, 60, eager), engine="vllm"),
        configured(steps(SIZES, 60, replayed), engine="sglang"),
    )
    assert found.notes == ["The engines differ: vllm and sglang."]
    assert [one.key for one in found.differences] == ["engine"]
    assert found.terms is not None


def test_other_axes_cannot_be_split():
    base, candidate = chapter_one()
    tokens = [{**row, "axis": "tokens"} if row["event"] == "step" else row for row in candidate]
    found = compared(base, tokens)
    assert found.delta_ms_per_step == pytest.approx(0.5)
    assert found.terms is None
    assert found.matched_ms_per_step is None
    assert found.not_identifiable == [
        "What the change is made of: the sizes of decode steps count requests in the base and "
        "tokens in the candidate; record both on one axis."
    ]
    assert found.verdict.sentence.endswith(" a step; what it is made of is not identifiable.")
    assert all(not (one.base_steps and one.candidate_steps) for one in found.sizes)


@pytest.mark.parametrize(("column", "word"), [("phase", "phase"), ("requested", "size")])
def test_steps_that_do_not_tell_what_they_were_cannot_be_split(column, word):
    base, candidate = chapter_one()
    found = compared(without(base, column), candidate)
    assert found.terms is None
    assert found.delta_ms_per_step == pytest.approx(0.5)
    assert f"the {word} of 100 % of the base's steps and of 0 %" in found.not_identifiable[0]


def test_no_common_size_is_split_by_the_curves_and_said():
    found = compared(steps((3, 11), 200, replayed), steps((5, 20), 200, replayed))
    assert any(note.startswith("No size was asked for in both") for note in found.notes)
    assert all(one.change_ms is None for one in found.sizes)
    assert found.terms is not None
    adds_up(found)


def test_one_step_each_is_too_little_to_judge_by():
    found = compared(steps((3,), 1, eager), steps((3,), 1, replayed))
    assert found.verdict.sentence == (
        "No verdict: 1 timed step of the base is too little to judge by; record at least 10."
    )
    assert found.delta_ms_per_step is not None
    assert found.ci95 is None
    assert found.not_identifiable[0].startswith("Whether the change is more than noise: ")
    adds_up(found)


def test_without_times_the_rates_are_told():
    base, candidate = chapter_one()
    found = compared(without(base, "dur_ns"), candidate)
    assert found.delta_ms_per_step is None
    assert found.terms is None
    assert found.waterfall == []
    assert found.verdict.sentence == (
        "No verdict on time, because the base carries no step times: fallback rate not "
        "identifiable in the base and 0 % in the candidate, padding ratio not identifiable and "
        "36.6 %."
    )
    assert found.not_identifiable == [
        "The change in step time: the 600 steps of the base carry no times; record its engine to "
        "get them (graphdiag record, graphdiag attach)."
    ]
    assert found.candidate_start_up.capture_s == pytest.approx(0.27)


def test_steps_that_do_not_say_when_they_began_have_no_interval():
    base, candidate = chapter_one()
    found = compared(without(base, "t_ns"), candidate)
    assert found.delta_ms_per_step == pytest.approx(0.5)
    assert found.ci95 is None
    adds_up(found)


def test_a_clock_that_runs_backwards_changes_no_figure():
    base, candidate = chapter_one()
    last = max(row["t_ns"] for row in base)
    back = [{**row, "t_ns": 2 * last - row["t_ns"]} for row in base]
    found = compared(back, candidate)
    assert found.delta_ms_per_step == pytest.approx(0.5)
    assert found.terms.padding == pytest.approx(1.2, abs=0.01)
    adds_up(found)


def test_all_steps_cold_have_no_steady_state():
    captured = steps(SIZES, 40, lambda size: {**replayed(size), "outcome": "capture"})
    found = compared(steps(SIZES, 40, eager), captured)
    assert found.steady_ms_per_step is None
    assert found.steady_matched_ms_per_step is None
    assert found.delta_ms_per_step is not None
    assert any("Every timed step of the candidate fell into start-up" in n for n in found.notes)
    assert found.terms is None
    (told,) = [one for one in found.not_identifiable if "every step of the candidate" in one]
    assert "captured or compiled, so that nothing tells what its work takes without" in told


@pytest.mark.parametrize("which", [0, 1])
def test_a_trace_without_steps(which):
    pair = [*chapter_one()]
    pair[which] = [event("run", 0, config={"engine": "mine"})]
    found = compared(*pair)
    name = ("base", "candidate")[which]
    assert found.verdict.sentence == f"No verdict: no step of the {name} is on record."
    assert f"the {name} holds no step" in found.not_identifiable[0]


def test_sampled_steps_are_said_and_their_compiling_is_not_counted():
    base, candidate = chapter_one()
    work = [event("compile", 50.0, artifact="r", dur_ns=900 * MS, reason="again")]
    found = compared(base, configured([*candidate, *work], sampled=True))
    assert found.terms.shapes == 0
    assert any("The source of the candidate shows only some steps" in note for note in found.notes)


def test_a_start_that_is_not_on_record_is_said():
    found = compared(steps(SIZES, 60, eager), chapter_one(60)[1])
    assert found.base_start_up.first_step_s is None
    assert found.not_identifiable == [
        "The time to the first step of the base: nothing before that step is on record; record the "
        "engine from its start (graphdiag record)."
    ]


def test_one_bucket_alone_in_both_prices_no_padding():
    one = steps(SIZES, 200, lambda size: replayed(size, (32,)))
    slower = steps(SIZES, 200, lambda size: replayed(size, (32,), launch_ms=0.5))
    found = compared(one, slower)
    assert found.terms.padding == 0
    assert found.terms.residual == pytest.approx(0.3, abs=0.01)
    assert sum("one bucket alone replayed" in told for told in found.not_identifiable) == 2


# --- anything at all -----------------------------------------------------------------------------

outcomes = st.sampled_from(["exact", "padded", "fallback", "capture", "eager", None])


@st.composite
def traces(draw):
    rows = []
    if draw(st.booleans()):
        config = {"engine": draw(st.sampled_from(["a", "b"])), "sampled": draw(st.booleans())}
        rows.append(event("run", draw(st.floats(-5, 5)), config=config))
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["capture", "compile"]))
        told = {"dur_ns": draw(st.none() | st.integers(0, 50 * MS)), "artifact": "x"}
        if kind == "compile":
            told["reason"] = draw(st.sampled_from([None, "shape"]))
        rows.append(event(kind, draw(st.floats(-50, 50)), **told))
    now = 0.0
    for _ in range(draw(st.integers(0, 40))):
        size = draw(st.none() | st.integers(0, 40))
        bucket = draw(st.none() | st.integers(0, 48))
        now += draw(st.floats(-2, 30))
        rows.append(
            step(
                size,
                bucket,
                now,
                outcome=draw(outcomes),
                phase=draw(st.sampled_from(["decode", "prefill", None])),
                axis=draw(st.sampled_from(["requests", "tokens", None])),
                dur_ns=draw(st.none() | st.integers(0, 40 * MS)),
                compile_ns=draw(st.none() | st.integers(0, 60 * MS)),
                tokens_out=draw(st.none() | st.integers(0, 64)),
                kv_tokens=draw(st.none() | st.integers(0, 10_000)),
                weight=draw(st.sampled_from([None, 0, 1, 3])),
                kind=draw(st.sampled_from([None, None, None, "dummy"])),
            )
        )
    return rows


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(traces(), traces())
def test_any_two_traces_compare(base, candidate):
    found = compared(base, candidate, Slo(10.0, 100.0))
    adds_up(found)
    for text in (compare_text.render(found, width=40), compare_markdown.render(found)):
        assert "nan" not in text.lower()
        assert "inf" not in text.lower().replace("influence", "").replace("information", "")
    plain = msgspec.to_builtins(found)
    assert all(math.isfinite(value) for value in floats(plain))
    assert json.render(found)


def floats(value):
    """All floats in a nested value."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from floats(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from floats(each)


def test_the_buckets_of_the_helper_pad_five_rows():
    assert [next(b for b in BUCKETS if b >= size) - size for size in SIZES] == [5, 5, 5]
