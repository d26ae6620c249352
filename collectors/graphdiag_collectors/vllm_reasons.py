"""Why a step ran without a graph, re-derived from the dispatcher's own tables.

vLLM says only that it did. The rules are those of its dispatch, in its order; where all of them
would have found a graph and ranks are coordinated, a peer asked for eager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Batch:
    """What was asked of a dispatcher.

    Attributes
    ----------
    tokens, reqs
        Sizes of the batch, without padding.
    uniform
        Tokens a request where all have as many and decode, else 0.
    loras
        Active adapters.
    full_excluded
        True where the batch may not use a full graph, such as one with encoder input.
    forced
        True where the engine asked for eager.
    ranks
        Data-parallel ranks that agree on each step.
    """

    tokens: int
    reqs: int = 0
    uniform: int = 0
    loras: int = 0
    full_excluded: bool = False
    forced: bool = False
    ranks: int = 1


Verdict = tuple[str, str | None]
"""Outcome and reason."""


def v1_reason(dispatcher: Any, batch: Batch) -> Verdict:
    """Say why ``CudagraphDispatcher.dispatch`` found no graph for ``batch``."""
    mode = getattr(dispatcher, "cudagraph_mode", None)
    if not getattr(dispatcher, "keys_initialized", True):
        return "fallback", "not_captured"
    if mode is not None and mode_name(mode) == "NONE":
        return "eager", None
    config = dispatcher.compilation_config
    largest = getattr(config, "max_cudagraph_capture_size", None)
    if largest is None:  # 0.11 keeps it under another name
        largest = getattr(config, "max_capture_size", None)
    if largest is None or batch.tokens > largest:
        return "fallback", "over_max"
    if batch.forced:
        return "fallback", "mode_excluded"
    keys = {mode_name(name): found for name, found in dispatcher.cudagraph_keys.items()}
    full, piecewise = keys.get("FULL", ()), keys.get("PIECEWISE", ())
    if not full and not piecewise:
        return "fallback", "not_captured"
    if not batch.uniform and not piecewise and all(map(_is_uniform, full)):
        return "fallback", "mode_excluded"
    if batch.full_excluded and not piecewise:
        return "fallback", "mode_excluded"
    usable = [*(() if batch.full_excluded else full), *piecewise]
    fitting = [key for key in usable if key.num_tokens >= batch.tokens]
    if not fitting:
        return "fallback", "no_key"
    has = batch.loras > 0
    if not any(bool(getattr(key, "has_lora", has)) == has for key in fitting):
        return "fallback", "lora"
    return "fallback", "dp_sync" if batch.ranks > 1 else "unknown"


def missed_full(dispatcher: Any, batch: Batch) -> str | None:
    """Return the reason for a uniform batch to get a piecewise graph where full ones exist."""
    if not batch.uniform:
        return None
    keys = {mode_name(name): found for name, found in dispatcher.cudagraph_keys.items()}
    if not keys.get("FULL"):
        return None
    if batch.full_excluded:
        return "mode_excluded"
    fits = any(key.num_tokens >= batch.tokens for key in keys["FULL"])
    return "dp_sync" if fits and batch.ranks > 1 else "no_key"


def v2_reason(manager: Any, batch: Batch) -> Verdict:
    """Say why ``CudaGraphManager.dispatch`` found no graph for ``batch``, or was not asked."""
    if manager is None:
        return "eager", None
    if not manager.cudagraph_mode:
        return "eager", None
    if batch.forced:
        return "fallback", "mode_excluded"
    if not getattr(manager, "_graphs_captured", True):
        return "fallback", "not_captured"
    captured = getattr(manager, "_capture_descs", None)
    keys: list[Any] = [key for found in (captured or {}).values() for key in found]
    if not keys:
        return "fallback", "not_captured"
    if batch.tokens > max(key.num_tokens for key in keys):
        return "fallback", "over_max"
    fitting = [key for key in keys if key.num_tokens >= batch.tokens]
    suited = [key for key in fitting if _suits(key, batch)]
    if not suited:
        only_decode = all(_is_uniform(key) for key in keys)
        mixed = not batch.uniform and only_decode
        return "fallback", "mode_excluded" if mixed else "no_key"
    resolve = getattr(manager, "_resolve_effective_loras", None)
    loras = resolve(batch.loras) if resolve is not None else batch.loras
    if not any(getattr(key, "num_active_loras", loras) == loras for key in suited):
        return "fallback", "lora"
    return "fallback", "dp_sync" if batch.ranks > 1 else "unknown"


def missed_full_v2(manager: Any, batch: Batch) -> str | None:
    """Return the reason for a uniform batch to get a piecewise graph where full ones exist."""
    if not batch.uniform or manager is None:
        return None
    captured: dict[Any, Iterable[Any]] = getattr(manager, "_capture_descs", None) or {}
    full = [key for mode, keys in captured.items() if mode_name(mode) == "FULL" for key in keys]
    if not full:
        return None
    fits = any(key.num_tokens >= batch.tokens and _suits(key, batch) for key in full)
    return "dp_sync" if fits and batch.ranks > 1 else "no_key"


def mode_name(mode: Any) -> str:
    """Return the engine's word for a graph mode."""
    return str(getattr(mode, "name", mode))


def _is_uniform(key: Any) -> bool:
    """Whether a captured key serves only batches whose requests all have the same length."""
    if hasattr(key, "uniform_token_count"):
        varlen = getattr(key, "max_query_len", None) is not None
        return varlen or key.uniform_token_count is not None
    return bool(getattr(key, "uniform", getattr(key, "uniform_decode", False)))


def _suits(key: Any, batch: Batch) -> bool:
    count = getattr(key, "uniform_token_count", None)
    if count is not None and count != batch.uniform:
        return False
    longest = getattr(key, "max_query_len", None)
    if longest is not None and not 0 < batch.uniform <= longest:
        return False
    reqs = getattr(key, "num_reqs", None)
    return reqs is None or bool(reqs >= batch.reqs)
