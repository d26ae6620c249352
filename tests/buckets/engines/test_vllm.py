import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.engines import flag, rules_for, variants
from tests.buckets.engines.laws import check_legal_above, check_list, lists, sizes

RUN = {"engine": "vllm", "engine_version": "0.32.0", "mode": "FULL_AND_PIECEWISE", "runner": "v1"}
SPECULATIVE = {**RUN, "speculative_tokens": 3}

runs = st.fixed_dictionaries(
    {"engine": st.just("vllm")},
    optional={
        "engine_version": st.sampled_from(["0.9.2", "0.11.0", "0.13.0", "0.25.0", "0.32.0"]),
        "mode": st.sampled_from(["FULL", "PIECEWISE", "FULL_AND_PIECEWISE", "NONE", "unknown"]),
        "runner": st.sampled_from(["v1", "v2"]),
        "speculative_tokens": st.integers(1, 8),
        "token_budget": st.integers(1, 3000),
        "max_num_seqs": st.integers(1, 600),
        "tensor_parallel": st.integers(1, 8),
        "capture_sizes": st.lists(st.integers(1, 600), max_size=5),
        "compile_sizes": st.lists(st.integers(1, 600), max_size=3),
    },
)


def vllm(**config):
    return rules_for("vllm", {**RUN, **config}, "tokens", None)


@given(runs, sizes)
def test_the_next_legal_size_is_legal_and_the_smallest(run, wanted):
    check_legal_above(rules_for("vllm", run, None, None), wanted)


@given(runs, lists)
def test_a_list_ends_up_legal_or_is_refused(run, buckets):
    check_list(rules_for("vllm", run, None, None), buckets)


def test_one_list_of_tokens_for_all_phases():
    rules = rules_for("vllm", RUN, "requests", "decode")
    assert (rules.phase, rules.axis, rules.multiple_of) == (None, "tokens", 1)
    assert rules.most is None
    assert any("budget is not told" in note for note in rules.notes)


def test_sizes_over_the_token_budget_are_left_out():
    rules = vllm(token_budget=8192)
    assert rules.normalised([32, 1, 8, 8, 2]) == [1, 2, 8, 32]
    assert rules.normalised([1, 2, 9000]) == [1, 2]
    assert rules.normalised([9000]) == []
    assert rules.complaints([1, 2, 9000]) == ["9000 is above 8192: vLLM leaves it out."]
    assert rules.complaints([9000]) == [
        "9000 is above 8192: vLLM leaves all out and captures none."
    ]
    assert rules.legal_above(np.array([8192, 8193])).tolist() == [8192, 0]


def test_before_0_11_1_such_a_size_stops_it():
    rules = vllm(token_budget=8192, engine_version="0.11.0")
    assert rules.complaints([1, 9000]) == ["9000 is above 8192: vLLM stops at start."]


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        ([], "The list is empty: vLLM stops at start."),
        ([0, 1, 2], "0 is below 1: vLLM takes it and fails while capturing."),
        ([-4, 0, 2], "-4, 0 are below 1: vLLM takes it and fails while capturing."),
    ],
)
def test_lists_that_break_it(buckets, said):
    rules = vllm()
    assert rules.complaints(buckets) == [said]
    with pytest.raises(ValueError, match=re.escape(said)):
        flag(rules, buckets)


def test_order_and_repetition_are_told_but_legal():
    rules = vllm()
    assert rules.complaints([8, 4, 8]) == [
        "8 more than once: vLLM captures one of each.",
        "The sizes are not ascending: vLLM sorts them.",
    ]
    assert flag(rules, [8, 4, 8]) == "--cudagraph-capture-sizes 4 8"


@pytest.mark.parametrize(
    ("buckets", "kept"),
    [
        ([1, 2, 4, 8, 16, 32], [4, 8, 16, 32]),
        ([1, 2, 4, 6], [4]),
        ([5], [4]),
        ([3], []),
        ([8, 12], [8, 12]),
    ],
)
def test_the_v1_runner_rounds_up_to_the_stride(buckets, kept):
    rules = rules_for("vllm", SPECULATIVE, None, None)
    assert rules.multiple_of == 4
    assert rules.normalised(buckets) == kept
    assert bool(rules.refusals(buckets)) == (buckets != kept)


def test_the_v2_runner_takes_the_list_as_it_is():
    rules = rules_for("vllm", {**SPECULATIVE, "runner": "v2"}, None, None)
    assert rules.multiple_of == 1
    assert any("rounds the sizes of decode graphs up to multiples of 4" in n for n in rules.notes)


def test_a_runner_not_told_is_the_stricter_one():
    unknown = {key: value for key, value in SPECULATIVE.items() if key != "runner"}
    rules = rules_for("vllm", unknown, None, None)
    assert rules.multiple_of == 4
    assert any("runner is not told" in note for note in rules.notes)
    assert rules_for("vllm", {**unknown, "model_runner": "v2"}, None, None).multiple_of == 1


def test_sizes_that_v1_would_have_rounded_show_that_it_is_v2():
    run = {key: value for key, value in SPECULATIVE.items() if key != "runner"}
    rules = rules_for("vllm", {**run, "capture_sizes": [1, 4, 8]}, None, None)
    assert rules.multiple_of == 1
    assert any("taken to be V2" in note for note in rules.notes)
    assert rules_for("vllm", {**run, "capture_sizes": [4, 8]}, None, None).multiple_of == 4
    told = {**SPECULATIVE, "capture_sizes": [1, 4, 8]}
    assert rules_for("vllm", told, None, None).multiple_of == 4


@pytest.mark.parametrize(("mode", "stride"), [("PIECEWISE", 1), ("FULL", 4), (None, 4)])
def test_only_full_decode_has_a_stride(mode, stride):
    assert rules_for("vllm", {**SPECULATIVE, "mode": mode}, None, None).multiple_of == stride


@pytest.mark.parametrize(
    ("version", "captured", "multiple"),
    [
        ("0.25.0", [4, 8, 16], 4),
        ("0.25.0", [1, 2, 4, 8], 1),
        ("0.25.0", [], 1),
        ("0.32.0", [4, 8, 16], 1),
        (None, [4, 8, 16], 4),
    ],
)
def test_sequence_parallelism_asks_for_multiples_of_the_ranks(version, captured, multiple):
    rules = vllm(engine_version=version, tensor_parallel=4, capture_sizes=captured)
    assert rules.multiple_of == multiple
    if multiple > 1:
        assert rules.normalised([2, 4, 6, 8]) == [4, 8]  # the others are left out
        assert "sequence parallelism" in rules.reasons["multiple_of"]
        assert "6 are no multiples of 4: vLLM leaves them out" in rules.complaints([2, 6, 8])[0]
    elif not captured:
        assert any("sequence parallelism" in note for note in rules.notes)


def test_compile_sizes_must_be_captured():
    rules = vllm(compile_sizes=[1, 3, "cudagraph_capture_sizes"])
    assert rules.must_contain == rules.required == (1, 3)
    assert rules.complaints([1, 2, 4]) == ["3 must be in the list, or vLLM stops at start."]
    assert rules.refusals([1, 2]) == []  # above the largest, none is asked for
    assert vllm(compile_sizes=[1, 3], runner="v2").must_contain == ()


def test_the_fullest_batch_keeps_its_graph():
    assert vllm(max_num_seqs=256).must_contain == (256,)
    assert vllm(max_num_seqs=256, capture_sizes=[1, 2, 512]).must_contain == (256,)
    assert vllm(max_num_seqs=256, capture_sizes=[1, 2, 128]).must_contain == ()  # it has none
    assert vllm(max_num_seqs=1024).must_contain == ()
    assert vllm(max_num_seqs=256, token_budget=100).must_contain == ()
    speculative = rules_for("vllm", {**SPECULATIVE, "max_num_seqs": 64}, None, None)
    assert speculative.must_contain == (256,)
    said = vllm(max_num_seqs=256).complaints([1, 8])
    assert said == [
        "The largest size is 8, below 256: larger batches run eager. "
        "256 tokens keep the fullest batch of the scheduler in a graph."
    ]
    assert flag(vllm(max_num_seqs=256), [1, 8]) == "--cudagraph-capture-sizes 1 8"
    assert vllm(max_num_seqs=256).complaints([1, 300]) == []


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.9.2", "--compilation-config '{\"cudagraph_capture_sizes\": [1, 8]}'"),
        ("0.11.0", "--compilation-config '{\"cudagraph_capture_sizes\": [1, 8]}'"),
        ("0.11.1rc3", "--cudagraph-capture-sizes 1 8"),
        ("0.32.0+cpu", "--cudagraph-capture-sizes 1 8"),
        ("0.32", "--cudagraph-capture-sizes 1 8"),
        (None, "--cudagraph-capture-sizes 1 8"),
        ("unknown", "--cudagraph-capture-sizes 1 8"),
    ],
)
def test_the_flag_by_version(version, text):
    assert flag(vllm(engine_version=version), [1, 8]) == text


def names(**config):
    return [(variant.name, variant.up_to) for variant in variants("vllm", {**RUN, **config})]


def test_what_is_captured_for_a_size():
    assert names(max_num_seqs=20) == [("FULL", 20), ("PIECEWISE", None)]
    assert names(mode="FULL") == [("FULL", None)]
    assert names(mode="PIECEWISE") == [("PIECEWISE", None)]
    assert names(mode="FULL_DECODE_ONLY", max_num_seqs=4, speculative_tokens=3) == [("FULL", 16)]
    assert names(mode="NONE") == names(mode=None) == [("", None)]


@pytest.mark.parametrize(
    ("told", "cases"),
    [
        ({}, ["no adapter", "up to 4 adapters"]),
        (
            {"specialize_active_lora": True},
            ["no adapter", "1 adapter", "2 adapters", "4 adapters", "up to 4 adapters"],
        ),
        ({"cudagraph_specialize_lora": False}, ["up to 4 adapters"]),
        (
            {"cudagraph_specialize_lora": False, "runner": "v2"},
            ["no adapter", "up to 4 adapters"],
        ),
    ],
)
def test_adapters_multiply_the_graphs(told, cases):
    assert names(mode="FULL", lora=4, **told) == [(f"FULL, {case}", None) for case in cases]
    assert len(names(lora=4, **told)) == 2 * len(cases)
