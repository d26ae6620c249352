"""A bucket set in each engine's own words, ready to paste."""

from __future__ import annotations

import re
from typing import Any

_SGLANG_PER_PHASE = (0, 5, 16)
"""First SGLang whose flag names the phase; before it there is one list, for decode."""


def flags(buckets: list[int], config: dict[str, Any]) -> dict[str, str]:
    """Return the flag that captures ``buckets`` for vLLM, SGLang and TensorRT-LLM.

    ``config`` is the run's: its engine and version choose between old and new spellings.
    """
    spaced = " ".join(map(str, buckets))
    return {
        "vllm": f"--cudagraph-capture-sizes {spaced}",
        "sglang": f"{_sglang_flag(config)} {spaced}",
        "tensorrt_llm": (
            "cuda_graph_config: {batch_sizes: "
            f"[{', '.join(map(str, buckets))}], enable_padding: true}}"
        ),
    }


def _sglang_flag(config: dict[str, Any]) -> str:
    if config.get("engine") == "sglang":
        version = re.match(r"(\d+)\.(\d+)\.(\d+)", str(config.get("engine_version") or ""))
        if version and tuple(map(int, version.groups())) < _SGLANG_PER_PHASE:
            return "--cuda-graph-bs"
    return "--cuda-graph-bs-decode"
