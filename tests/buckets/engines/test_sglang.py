import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.engines import flag, rules_for, variants
from tests.buckets.engines.laws import check_legal_above, check_list, lists, sizes

RUN = {"engine": "sglang", "engine_version": "0.5.23", "tensor_parallel": 1}

runs = st.fixed_dictionaries(
    {"engine": st.just("sglang")},
    optional={
        "engine_version": st.sampled_from(["0.4.6.post5", "0.5.6", "0.5.13", "0.5.16", "0.5.23"]),
        "token_budget": st.integers(1, 3000),
        "max_num_seqs": st.integers(1, 600),
        "request_pool": st.integers(1, 600),
        "kv_tokens": st.integers(1, 3000),
        "context_length": st.integers(1, 3000),
        "tensor_parallel": st.integers(1, 8),
        "capture_sizes": st.lists(st.integers(1, 100).map(lambda n: 4 * n), max_size=5),
        "padding": st.booleans(),
        "prefill_mode": st.sampled_from(["full", "breakable"]),
    },
)
phases = st.sampled_from(["decode", "prefill", "verify", "mixed", None])


def decode(**config):
    return rules_for("sglang", {**RUN, **config}, "requests", "decode")


def prefill(**config):
    return rules_for("sglang", {**RUN, **config}, "tokens", "prefill")


@given(runs, phases, sizes)
def test_the_next_legal_size_is_legal_and_the_smallest(run, phase, wanted):
    check_legal_above(rules_for("sglang", run, None, phase), wanted)


@given(runs, phases, lists)
def test_a_list_ends_up_legal_or_is_refused(run, phase, buckets):
    check_list(rules_for("sglang", run, None, phase), buckets)


@pytest.mark.parametrize(
    ("axis", "phase", "found"),
    [
        ("requests", None, "decode"),
        (None, None, "decode"),
        ("requests", "verify", "decode"),
        ("tokens", "decode", "decode"),
        ("tokens", None, "prefill"),
        ("tokens", "mixed", "prefill"),
    ],
)
def test_a_list_for_each_phase(axis, phase, found):
    rules = rules_for("sglang", RUN, axis, phase)
    assert rules.phase == found
    assert rules.axis == {"decode": "requests", "prefill": "tokens"}[found]


def test_sizes_over_the_request_pool_become_its_size():
    rules = decode(request_pool=48)
    assert rules.normalised([1, 2, 4, 8, 160]) == [1, 2, 4, 8, 48]
    assert rules.complaints([1, 48, 160]) == ["160 is above 48: SGLang captures 48 instead."]
    assert rules.must_contain == (48,)
    assert rules.legal_above(np.array([0, 40, 48, 49])).tolist() == [1, 40, 48, 0]


def test_without_a_pool_the_most_requests_are_the_limit():
    rules = decode(max_num_seqs=100)
    assert rules.most == 100
    assert any("pool is not told" in note for note in rules.notes)
    assert decode(max_num_seqs=100, capture_sizes=[1, 128]).most == 128  # which it has captured
    assert decode().most is None


def test_a_pool_far_over_what_is_captured_is_not_asked_for():
    assert decode(request_pool=4096).must_contain == ()
    assert decode(request_pool=4096, capture_sizes=[1, 256]).must_contain == ()
    assert decode(request_pool=257, max_num_seqs=256, capture_sizes=[1, 256]).must_contain == (256,)


@pytest.mark.parametrize(
    ("ranks", "captured", "multiple"),
    [
        (1, [8, 16], 1),
        (2, [1, 2, 4, 8], 1),
        (2, [2, 4, 8, 12], 2),
        (4, [8, 16, 24], 8),
        (4, [24, 48], 8),
        (None, [8, 16, 24], 8),
        (8, [], 1),
    ],
)
def test_alignment_is_what_the_captured_sizes_have_in_common(ranks, captured, multiple):
    rules = decode(tensor_parallel=ranks, capture_sizes=captured)
    assert rules.multiple_of == multiple
    if multiple > 1:
        assert rules.complaints([multiple, multiple + 1]) == [
            f"{multiple + 1} is no multiple of {multiple}: SGLang leaves it out. "
            f"All captured sizes are multiples of {multiple}, which the ranks may ask for."
        ]
        assert rules.normalised([multiple, multiple + 1]) == [multiple]


def test_the_pool_is_rounded_up_to_the_alignment():
    rules = decode(tensor_parallel=4, capture_sizes=[8, 16, 24], request_pool=30)
    assert rules.most == 32
    assert rules.normalised([8, 40]) == [8, 32]
    assert decode(request_pool=30).normalised([8, 40]) == [8, 30]


def test_padding_off_is_exact_only():
    rules = decode(padding=False, request_pool=16)
    assert rules.exact_only
    assert rules.must_contain == ()
    assert not decode(padding=True).exact_only


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        ([], "The list is empty: SGLang stops at start."),
        ([0, 1], "0 is below 1: SGLang stops at start."),
    ],
)
def test_lists_that_stop_it(buckets, said):
    assert decode().complaints(buckets) == [said]
    with pytest.raises(ValueError, match="stops at start"):
        flag(decode(), buckets)


def test_a_prefill_is_padded_to_twice_its_tokens_at_most():
    rules = prefill(token_budget=8192)
    assert rules.within_factor == 2
    assert rules.complaints([4, 8, 16, 32]) == []
    assert rules.complaints([4, 16, 31]) == [
        "5 to 7 tokens run eager: the next size up is more than 2 times as large."
    ]
    assert rules.complaints([4, 12]) == [
        "5 tokens run eager: the next size up is more than 2 times as large."
    ]
    assert flag(rules, [4, 16]) == "--cuda-graph-bs-prefill 4 16"  # legal all the same
    assert prefill(engine_version="0.5.15").within_factor is None
    assert prefill(engine_version=None).within_factor == 2


def test_decode_has_no_such_limit():
    assert decode().complaints([1, 256]) == []


def test_the_largest_prefill_is_a_chunk():
    assert prefill(token_budget=2048, kv_tokens=5000).most == 2048
    assert prefill(token_budget=2048, kv_tokens=1000).most == 1000
    assert prefill(token_budget=2048, context_length=128, request_pool=4).most == 512
    full = prefill(token_budget=2048, context_length=128, request_pool=99, prefill_mode="full")
    assert full.most == 512
    assert "4 slots of 128 tokens" in full.reasons["most"]
    assert full.complaints([600, 700]) == [
        "600, 700 are above 512: SGLang leaves all out and captures none."
    ]
    assert prefill().most is None


@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.3"])
def test_old_versions_have_no_prefill_graphs(version):
    rules = prefill(engine_version=version)
    assert rules.most == 0
    assert rules.complaints([4]) == ["4 is above 0: SGLang captures none."]
    assert rules.legal_above(np.array([1, 4])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("version", "for_decode", "for_prefill"),
    [
        ("0.4.6.post5", "--cuda-graph-bs 1 8", None),
        (
            "0.5.6",
            "--cuda-graph-bs 1 8",
            "--enable-piecewise-cuda-graph --piecewise-cuda-graph-tokens 1 8",
        ),
        ("0.5.13", "--cuda-graph-bs 1 8", "--piecewise-cuda-graph-tokens 1 8"),
        ("0.5.14", "--cuda-graph-bs-decode 1 8", "--cuda-graph-bs-prefill 1 8"),
        ("0.5.20", "--cuda-graph-bs-decode 1 8", "--cuda-graph-bs-prefill 1 8"),
        (None, "--cuda-graph-bs-decode 1 8", "--cuda-graph-bs-prefill 1 8"),
    ],
)
def test_the_flag_by_version(version, for_decode, for_prefill):
    assert flag(decode(engine_version=version), [1, 8]) == for_decode
    if for_prefill:
        assert flag(prefill(engine_version=version), [1, 8]) == for_prefill


def test_one_graph_a_size_is_known():
    assert [(v.name, v.up_to) for v in variants("sglang", {**RUN, "lora": 4})] == [("", None)]


def test_another_engines_run_says_nothing_but_its_draft_tokens():
    run = {"engine": "vllm", "engine_version": "0.9.2", "max_num_seqs": 8, "capture_sizes": [8]}
    rules = rules_for("sglang", run, "tokens", "decode")
    assert (rules.version, rules.most, rules.multiple_of) == (None, None, 1)
    assert rules.notes[0] == "The run is vLLM's: its limits say nothing about SGLang's."


def test_no_such_engine():
    with pytest.raises(ValueError, match="no engine is called 'torch'"):
        rules_for("torch", {}, None, None)
    with pytest.raises(ValueError, match="no engine is called"):
        variants("torch", {})
