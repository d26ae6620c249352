from graphdiag.buckets.flags import flags


def test_all_engines_where_nothing_is_known():
    assert flags([1, 8], {}) == {
        "vllm": "--cudagraph-capture-sizes 1 8",
        "sglang": "--cuda-graph-bs-decode 1 8",
        "tensorrt_llm": "cuda_graph_config: {batch_sizes: [1, 8], enable_padding: true}",
    }


def test_an_illegal_set_has_no_entry():
    run = {"engine": "vllm", "token_budget": 100}
    assert list(flags([1, 200], run)) == ["sglang", "tensorrt_llm"]
    assert flags([0, 1], {}) == flags([], {}) == {}


def test_sizes_in_tokens_are_no_requests_where_a_request_has_several():
    run = {"engine": "vllm", "axis": "tokens", "speculative_tokens": 3}
    assert list(flags([4, 8], run)) == ["vllm"]
    assert flags([1, 8], {**run, "runner": "v1", "mode": "FULL"}) == {}
    requests = {"engine": "sglang", "axis": "requests", "speculative_tokens": 3}
    assert list(flags([4, 8], requests)) == ["sglang", "tensorrt_llm"]
    assert len(flags([4, 8], {"engine": "vllm", "axis": "tokens"})) == 3
