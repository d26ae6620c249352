import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.engines import flag, rules_for, variants
from tests.buckets.engines.laws import check_legal_above, check_list, lists, sizes

runs = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.just("tensorrt_llm"),
        "engine_version": st.sampled_from(["0.20.0", "1.2.1", "1.3.0rc27", "1.4.0"]),
        "token_budget": st.integers(1, 3000),
        "max_num_seqs": st.integers(1, 600),
        "speculative_tokens": st.integers(1, 8),
        "padding": st.booleans(),
    },
)
phases = st.sampled_from(["decode", "prefill", "verify", "mixed", None])


def decode(**config):
    return rules_for("tensorrt_llm", {"engine": "tensorrt_llm", **config}, "requests", "decode")


def prefill(**config):
    return rules_for("tensorrt_llm", {"engine": "tensorrt_llm", **config}, "tokens", "prefill")


@given(runs, phases, sizes)
def test_the_next_legal_size_is_legal_and_the_smallest(run, phase, wanted):
    check_legal_above(rules_for("tensorrt_llm", run, None, phase), wanted)


@given(runs, phases, lists)
def test_a_list_ends_up_legal_or_is_refused(run, phase, buckets):
    check_list(rules_for("tensorrt_llm", run, None, phase), buckets)


def test_a_size_over_the_batch_limit_becomes_the_limit():
    rules = decode(max_num_seqs=100, token_budget=8192)
    assert rules.normalised([1, 64, 128, 256]) == [1, 64, 100]
    assert rules.complaints([1, 100, 128]) == [
        "128 is above 100: TensorRT-LLM captures 100 instead."
    ]
    assert decode(max_num_seqs=100, padding=False).normalised([1, 64, 128]) == [1, 64]


def test_draft_tokens_share_the_token_budget():
    assert decode(max_num_seqs=512, token_budget=1000, speculative_tokens=3).most == 250
    assert decode(token_budget=3, speculative_tokens=3).most == 0


def test_padding_is_off_by_default_and_the_flag_turns_it_on():
    rules = decode()
    assert not rules.exact_only
    assert "Padding is off by default; what to paste turns it on." in rules.notes
    assert "enable_padding: true" in flag(rules, [1, 8])
    assert decode(padding=True).notes == decode(padding=True).notes
    exact = decode(padding=False)
    assert exact.exact_only
    assert "enable_padding: false" in flag(exact, [1, 8])


def test_an_empty_list_is_no_list():
    assert decode().complaints([]) == [
        "The list is empty: TensorRT-LLM makes a list of its own, up to 128."
    ]
    with pytest.raises(ValueError, match="empty"):
        flag(decode(), [])


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "0.20.0",
            "{use_cuda_graph: true, cuda_graph_padding_enabled: true, "
            "cuda_graph_batch_sizes: [1, 8]}",
        ),
        ("0.21.0", "cuda_graph_config: {batch_sizes: [1, 8], enable_padding: true}"),
        ("1.2.1", "cuda_graph_config: {batch_sizes: [1, 8], enable_padding: true}"),
        ("1.3.0rc5", "cuda_graph_config: {batch_sizes: [1, 8], enable_padding: true}"),
        (
            "1.3.0rc27",
            "cuda_graph_config: {mode: decode, batch_sizes: [1, 8], enable_padding: true}",
        ),
        ("1.3.0", "cuda_graph_config: {mode: decode, batch_sizes: [1, 8], enable_padding: true}"),
        (
            "1.4.0rc1",
            "cuda_graph_config: {mode: decode, batch_sizes: [1, 8], enable_padding: true}",
        ),
        (None, "cuda_graph_config: {batch_sizes: [1, 8], enable_padding: true}"),
    ],
)
def test_the_yaml_by_version(version, text):
    assert flag(decode(engine_version=version), [1, 8]) == text


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.2.1",
            "torch_compile_config: {enable_piecewise_cuda_graph: true, capture_num_tokens: [64]}",
        ),
        (
            "1.4.0rc1",
            "{prefill_cuda_graph_backend: piecewise, prefill_capture_num_tokens: [64]}",
        ),
    ],
)
def test_the_yaml_for_prefill(version, text):
    assert flag(prefill(engine_version=version), [64]) == text
    assert prefill(engine_version="0.20.0").most == 0
    assert prefill(token_budget=50).normalised([32, 64]) == [32]


def test_one_graph_a_size_is_known():
    assert [(v.name, v.up_to) for v in variants("tensorrt_llm", {})] == [("", None)]
