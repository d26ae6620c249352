"""The reason of a refusal, derived again from what the engine looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors.schema import REASONS
from graphdiag_collectors.sglang_reasons import (
    MEANING,
    decode_reason,
    next_size,
    prefill_reason,
    wanted_size,
)
from graphdiag_collectors.sglang_words import artifact, role
from tests.collectors.sglang_standins import CaptureHiddenMode, ShapeKey, batch

VERIFY = SimpleNamespace(num_tokens_per_req=2)
NGRAM = SimpleNamespace(spec_algorithm=SimpleNamespace(is_ngram=lambda: True))


def decoder(**more: Any) -> Any:
    return SimpleNamespace(
        **{"capture_bs": [1, 4, 8], "max_bs": 8, "captured_req_width": 1, **more}
    )


@pytest.mark.parametrize(
    ("runner", "asked", "why"),
    [
        (decoder(), batch(size=9), "over_max_bs"),
        (decoder(disable_padding=True), batch(size=3), "no_exact_bucket"),
        (decoder(captured_req_width=4), batch(size=2, spec_info=VERIFY), "width_mismatch"),
        (decoder(num_tokens_per_bs=4), batch(size=2, replace_embeds=1), "embed_override"),
        (
            decoder(require_mlp_sync=True),
            batch(size=2, can_run_dp_cuda_graph=False),
            "dp_vote",
        ),
        (
            decoder(require_mlp_sync=True),
            batch(size=2, can_run_decode_cuda_graph=True, can_run_dp_draft_cuda_graph=False),
            "dp_vote",
        ),
        (
            decoder(enable_two_batch_overlap=True),
            batch(size=2, can_run_tbo=False),
            "two_batch_overlap",
        ),
        (decoder(model_runner=NGRAM, captured_req_width=3), batch(size=2, tokens=5), "ngram_shape"),
        (
            decoder(ragged_verify_mode=True, capture_num_tokens=[8, 16]),
            batch("TARGET_VERIFY", 4, 17),
            "over_max_tokens",
        ),
        (
            decoder(ragged_verify_mode=True, capture_num_tokens=[8, 16]),
            batch("TARGET_VERIFY", 4, 9),
            "ragged",
        ),
        (
            decoder(capture_hidden_mode=CaptureHiddenMode.NULL),
            batch(size=2, capture_hidden_mode=CaptureHiddenMode.FULL),
            "hidden_mode",
        ),
        (
            decoder(
                capture_hidden_mode=CaptureHiddenMode.FULL, recapture_if_needed=lambda batch: None
            ),
            batch(size=2, capture_hidden_mode=CaptureHiddenMode.LAST),
            "hidden_mode",
        ),
        (decoder(), batch(size=2), "unknown"),
    ],
)
def test_decode(runner: Any, asked: Any, why: str) -> None:
    assert decode_reason(runner, asked) == why


def prefiller(**more: Any) -> Any:
    fields = {"capture_num_tokens": [64, 512], "max_num_tokens": 512, "_is_full_backend": False}
    return SimpleNamespace(**{**fields, "_uses_eager_prefill_tail": None, **more})


@pytest.mark.parametrize(
    ("runner", "asked", "why"),
    [
        (prefiller(), batch("EXTEND", 1, 600), "over_max_tokens"),
        (prefiller(), batch("EXTEND", 1, 20), "padding_limit"),
        (prefiller(), batch("TARGET_VERIFY", 1, 64), "target_verify"),
        (prefiller(prefer_eager_mixed_prefill=True), batch("MIXED", 2, 64), "mixed_chunk"),
        (prefiller(), batch("EXTEND", 1, 64, input_embeds=1), "input_embeds"),
        (prefiller(), batch("EXTEND", 1, 64, return_logprob=True), "logprobs"),
        (prefiller(enable_lora=True), batch("EXTEND", 1, 64, lora_ids=["a"]), "lora"),
        (prefiller(), batch("EXTEND", 1, 64, mm_inputs=[None, 1]), "multimodal"),
        (
            prefiller(max_context_size=100),
            batch("EXTEND", 1, 64, extend_prefix_lens_cpu=[90]),
            "over_max_context",
        ),
        (prefiller(), batch("EXTEND", 1, 64, extend_prefix_lens_cpu=[90]), "prefix"),
        (
            prefiller(_is_full_backend=True, _capture_req_slots=2),
            batch("EXTEND", 3, 64),
            "over_max_slots",
        ),
        (
            prefiller(),
            batch("EXTEND", 1, 64, global_num_tokens_cpu=[64], can_run_dp_prefill_cuda_graph=False),
            "dp_vote",
        ),
        (prefiller(), batch("EXTEND", 1, 64), "unknown"),
    ],
)
def test_prefill(runner: Any, asked: Any, why: str) -> None:
    assert prefill_reason(runner, asked) == why


def test_every_reason_has_a_word_of_the_schema() -> None:
    assert set(MEANING.values()) <= set(REASONS)


def test_the_size_compared_is_that_of_the_largest_rank() -> None:
    asked = batch(size=2, original_global_num_tokens_cpu=[2, 7])
    assert wanted_size(SimpleNamespace(require_mlp_tp_gather=True), asked) == 7
    assert wanted_size(SimpleNamespace(), asked) == 2
    old = batch(size=2, global_num_tokens_cpu=[8, 12], spec_info=VERIFY)
    assert wanted_size(SimpleNamespace(require_mlp_tp_gather=True, num_tokens_per_bs=4), old) == 3


def test_next_size_takes_any_order() -> None:
    assert next_size([8, 1, 4], 2) == 4
    assert next_size([8, 1, 4], 9) is None
    assert next_size([], 1) is None


def test_names_of_artifacts() -> None:
    assert artifact("decode", ShapeKey(8)) == "decode/8"
    assert artifact("decode", ShapeKey(24), in_tokens=True) == "decode-tokens/24"
    assert artifact("prefill", ShapeKey(512, variant_label="chunks2")) == "prefill/512:chunks2"
    full = ShapeKey(8, stream_idx=1, variant_label="nolora", attention_variant="dense")
    assert artifact("decode", full) == "decode/8:s1:nolora:dense"
    assert artifact("decode", "1_8") == "decode/1_8"


@pytest.mark.parametrize(
    ("name", "draft", "expected"),
    [
        ("DecodeCudaGraphRunner", False, "decode"),
        ("DecodeCudaGraphRunner", True, "draft-decode"),
        ("EAGLEDraftCudaGraphRunner", True, "draft-decode"),
        ("FrozenKVMTPCudaGraphRunner", False, "draft-decode"),
        ("EAGLEDraftExtendCudaGraphRunner", True, "draft-extend"),
        ("PrefillCudaGraphRunner", False, "prefill"),
        ("PrefillCudaGraphRunner", True, "draft-prefill"),
        ("PiecewiseCudaGraphRunner", False, "prefill"),
        ("CPUGraphRunner", False, "decode"),
    ],
)
def test_roles(name: str, draft: bool, expected: str) -> None:
    runner = type(name, (), {"model_runner": SimpleNamespace(is_draft_worker=draft)})()
    assert role(runner) == expected


def test_draft_extend_of_several_steps_is_told_apart() -> None:
    runner = type("MultiLayerEagleDraftExtendCudaGraphRunner", (), {"step": 2})()
    assert role(runner) == "draft-extend-2"
