"""A bucket set in each engine's own words, ready to paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphdiag.buckets.engines import ENGINES, flag, rules_for
from graphdiag.buckets.engines.rules import query_len

_AXES = {"vllm": "tokens", "sglang": "requests", "tensorrt_llm": "requests"}


def flags(
    buckets: Sequence[int], config: Mapping[str, Any], phase: str = "decode"
) -> dict[str, str]:
    """Return what captures ``buckets`` for ``phase`` in vLLM, SGLang and TensorRT-LLM.

    ``config`` is the run's: its engine and version choose between old and new spellings. An engine
    for which the set is illegal, or counts something else than it does, has no entry.
    """
    axis = config.get("axis") or _AXES.get(str(config.get("engine")))
    found: dict[str, str] = {}
    for engine in ENGINES:
        rules = rules_for(engine, config, axis, phase)
        if phase == "decode" and axis not in (None, rules.axis) and query_len(config) > 1:
            continue
        if not rules.refusals(buckets):
            found[engine] = flag(rules, buckets)
    return found
