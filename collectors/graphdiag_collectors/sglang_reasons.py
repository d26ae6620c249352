"""Why a graph runner of SGLang turned a batch down, derived again from what it looked at.

The engine answers with a bare False. The rules here are the engine's own, of all versions from
0.4.6 on, in its order; each reads attributes that its version has and passes where it has none.
Nothing here calls into the engine or reads a tensor's values, so nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MEANING = {
    "over_max_bs": "over_max",
    "over_max_tokens": "over_max",
    "over_max_slots": "over_max",
    "over_max_context": "over_max",
    "no_exact_bucket": "no_key",
    "width_mismatch": "no_key",
    "ngram_shape": "no_key",
    "padding_limit": "no_key",
    "dp_vote": "dp_sync",
    "lora": "lora",
    "target_verify": "mode_excluded",
    "hidden_mode": "mode_excluded",
    "mode": "mode_excluded",
    "mixed_chunk": "mode_excluded",
    "ragged": "mode_excluded",
    "embed_override": "dynamic",
    "input_embeds": "dynamic",
    "multimodal": "dynamic",
    "encoder_mixed": "dynamic",
    "two_batch_overlap": "dynamic",
    "logprobs": "dynamic",
    "prefix": "dynamic",
    "unknown": "unknown",
}
"""The engine's reason, in our name for it, to the word of the schema."""

_PADDING_LIMIT = 2
"""A prefill whose bucket exceeds this many times its tokens runs eager (since 0.5.16)."""


def decode_reason(runner: Any, batch: Any) -> str:
    """Return why ``runner``, which holds decode or draft graphs, turned ``batch`` down.

    The result is a key of :data:`MEANING`.
    """
    if getattr(batch, "replace_embeds", None) is not None:
        return "embed_override"
    if getattr(runner, "ragged_verify_mode", False) and _mode(batch) == "TARGET_VERIFY":
        return _ragged_reason(runner, batch)
    spec = getattr(batch, "spec_info", None)
    width = _width(runner)
    asked = getattr(spec, "num_tokens_per_req", 0)
    if isinstance(asked, int) and asked > 0 and asked != width:
        return "width_mismatch"
    size = wanted_size(runner, batch)
    if getattr(runner, "disable_padding", False):
        if size not in (getattr(runner, "capture_bs", None) or ()):
            return "no_exact_bucket"
    elif size is not None and size > getattr(runner, "max_bs", size):
        return "over_max_bs"
    if _voted_down(runner, batch):
        return "dp_vote"
    if getattr(runner, "enable_two_batch_overlap", False) and not getattr(
        batch, "can_run_tbo", True
    ):
        return "two_batch_overlap"
    if _is_ngram(runner) and not _fits_ngram(batch, width):
        return "ngram_shape"
    if _hidden_mode_differs(runner, batch):
        return "hidden_mode"
    return "encoder_mixed" if getattr(runner, "is_encoder_decoder", False) else "unknown"


def prefill_reason(runner: Any, batch: Any) -> str:
    """Return why ``runner``, which holds prefill graphs, turned ``batch`` down, as above."""
    if getattr(batch, "global_num_tokens_cpu", None) is not None and not getattr(
        batch, "can_run_dp_prefill_cuda_graph", True
    ):
        return "dp_vote"
    slots = getattr(runner, "_capture_req_slots", None)
    if (
        getattr(runner, "_is_full_backend", False)
        and isinstance(slots, int)
        and batch.batch_size > slots
    ):
        return "over_max_slots"
    most = getattr(runner, "_captured_attn_metadata_max_bs", None)
    if most is not None and batch.batch_size > most:
        return "over_max_slots"
    mode = _mode(batch)
    if mode == "MIXED" and getattr(runner, "prefer_eager_mixed_prefill", False):
        return "mixed_chunk"
    if getattr(batch, "input_embeds", None) is not None:
        return "input_embeds"
    if getattr(batch, "replace_embeds", None) is not None:
        return "embed_override"
    if mode == "TARGET_VERIFY":
        return "target_verify"
    tokens = tokens_of(batch)
    if tokens is not None:
        sizes = getattr(runner, "capture_num_tokens", None) or ()
        most = getattr(runner, "max_num_tokens", None) or (sizes[-1] if sizes else None)
        if most is not None and tokens > most:
            return "over_max_tokens"
        bucket = next_size(sizes, tokens)
        if hasattr(runner, "_uses_eager_prefill_tail") and (
            bucket is not None and bucket > _PADDING_LIMIT * tokens
        ):
            return "padding_limit"
    if _hidden_mode_differs(runner, batch):
        return "hidden_mode"
    if getattr(runner, "enable_lora", False) and _any_lora(batch):
        return "lora"
    if getattr(batch, "return_logprob", False):
        return "logprobs"
    if any(image is not None for image in getattr(batch, "mm_inputs", None) or ()):
        return "multimodal"
    if any(getattr(batch, "extend_prefix_lens_cpu", None) or ()):
        limits = [getattr(runner, name, None) for name in ("max_context_size", "max_seq_len")]
        return "over_max_context" if any(limits) else "prefix"
    return "unknown"


def wanted_size(runner: Any, batch: Any) -> int | None:
    """Return the size that the engine compares with its buckets, in requests.

    With gathered buffers every data-parallel rank takes the bucket of the largest.
    """
    if getattr(runner, "require_mlp_tp_gather", False):
        every = getattr(batch, "original_global_num_tokens_cpu", None)
        if every:
            return int(max(every))
        every = getattr(batch, "global_num_tokens_cpu", None)
        if every:
            width = _width(runner) if getattr(batch, "spec_info", None) is not None else 1
            return int(max(every)) // max(width, 1)
    elif getattr(runner, "enable_dp_attention", False):  # 0.4.6 adds the ranks up
        every = getattr(batch, "global_num_tokens_cpu", None)
        if every:
            return int(sum(every))
    size = getattr(batch, "batch_size", None)
    return None if size is None else int(size)


def tokens_of(batch: Any) -> int | None:
    """Return the tokens a batch runs, from host-side attributes."""
    tokens = getattr(batch, "extend_num_tokens", None)
    if tokens is None:
        ids = getattr(batch, "input_ids", None)
        tokens = None if ids is None else ids.shape[0]
    return None if tokens is None else int(tokens)


def next_size(sizes: Sequence[int], needed: int) -> int | None:
    """Return the smallest of ``sizes`` (any order) that holds ``needed``, or None."""
    return min((size for size in sizes if size >= needed), default=None)


def _ragged_reason(runner: Any, batch: Any) -> str:
    tokens = tokens_of(batch)
    sizes = getattr(runner, "capture_num_tokens", None)
    if tokens is not None and sizes and tokens > sizes[-1]:
        return "over_max_tokens"
    return "dp_vote" if _voted_down(runner, batch) else "ragged"


def _voted_down(runner: Any, batch: Any) -> bool:
    if not (
        getattr(runner, "require_mlp_sync", False) or getattr(runner, "enable_dp_attention", False)
    ):
        return False
    for name in ("can_run_decode_cuda_graph", "can_run_dp_cuda_graph"):
        vote = getattr(batch, name, None)
        if vote is not None and not vote:
            return True
    return not getattr(batch, "can_run_dp_draft_cuda_graph", True)


def _width(runner: Any) -> int:
    for name in ("captured_req_width", "num_tokens_per_bs"):
        width = getattr(runner, name, None)
        if isinstance(width, int):
            return width
    return 1


def _is_ngram(runner: Any) -> bool:
    algorithm = getattr(getattr(runner, "model_runner", None), "spec_algorithm", None)
    is_ngram = getattr(algorithm, "is_ngram", None)
    return bool(is_ngram()) if is_ngram is not None else False


def _fits_ngram(batch: Any, width: int) -> bool:
    ids = getattr(batch, "input_ids", None)
    return ids is None or bool(batch.batch_size * width == ids.shape[0])


def _hidden_mode_differs(runner: Any, batch: Any) -> bool:
    asked = getattr(batch, "capture_hidden_mode", None)
    spec = getattr(getattr(batch, "spec_info", None), "capture_hidden_mode", None)
    held = getattr(runner, "capture_hidden_mode", None)
    if asked is None or held is None:
        return False
    if spec is not None and spec > asked:
        asked = spec
    if hasattr(runner, "recapture_if_needed"):  # up to 0.5.16 only the captured mode replays
        return getattr(asked, "name", "") != "NULL" and bool(asked != held)
    return bool(asked > held)


def _any_lora(batch: Any) -> bool:
    return any(lora is not None for lora in getattr(batch, "lora_ids", None) or ())


def _mode(batch: Any) -> str:
    return str(getattr(batch.forward_mode, "name", ""))
