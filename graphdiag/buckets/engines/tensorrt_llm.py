"""TensorRT-LLM (PyTorch backend): request counts for decode, token counts for prefill, in YAML.

The rules are those of ``CudaGraphConfig`` and of ``_filter_cuda_graph_batch_sizes``. There is no
collector: what is known of a run is what was given by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphdiag.buckets.engines.rules import (
    ONE_VARIANT,
    Rules,
    Variant,
    cover,
    is_prefill,
    query_len,
    release,
    version_of,
)
from graphdiag.runconfig import capture_sizes, positive_int

_NESTED = (0, 21, 0)
"""First version with ``cuda_graph_config``; before it the keys stood alone."""
_NAMED_MODE = (1, 3, 0)
_NAMED_MODE_CANDIDATE = 27
"""Release candidate of 1.3.0 from which the section names its mode."""
_PREFILL_SINCE = (1, 0, 0)
_PREFILL_KEYS = (1, 4, 0)
_DEFAULT_REACH = 128


def rules(config: Mapping[str, Any], axis: str | None, phase: str | None) -> Rules:
    """Return what TensorRT-LLM accepts for decode (and verify), or for prefill (and mixed) steps.

    Without a phase, the axis tells: prefill graphs count tokens, decode graphs requests.
    """
    run = dict(config)
    return _prefill(run) if is_prefill(axis, phase) else _decode(run)


def flag(rules_of: Rules, buckets: Sequence[int]) -> str:
    """Return a line of YAML for the configuration file, for ``buckets``, ascending and legal."""
    version = release(rules_of.version)
    sizes = f"[{', '.join(map(str, buckets))}]"
    padding = "false" if rules_of.exact_only else "true"
    if rules_of.phase == "prefill":
        if version is not None and version >= _PREFILL_KEYS:
            return f"{{prefill_cuda_graph_backend: piecewise, prefill_capture_num_tokens: {sizes}}}"
        return (
            "torch_compile_config: "
            f"{{enable_piecewise_cuda_graph: true, capture_num_tokens: {sizes}}}"
        )
    if version is not None and version < _NESTED:
        return (
            f"{{use_cuda_graph: true, cuda_graph_padding_enabled: {padding}, "
            f"cuda_graph_batch_sizes: {sizes}}}"
        )
    mode = "mode: decode, " if _names_its_mode(rules_of.version) else ""
    return f"cuda_graph_config: {{{mode}batch_sizes: {sizes}, enable_padding: {padding}}}"


def variants(config: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return one graph a size: draft lengths multiply them, but a run does not tell how."""
    return ONE_VARIANT


def _decode(run: dict[str, Any]) -> Rules:
    reasons: dict[str, str] = {}
    notes: list[str] = []
    seqs, budget = positive_int(run, "max_num_seqs"), positive_int(run, "token_budget")
    tokens = query_len(run)
    limits = [limit for limit in (seqs, None if budget is None else budget // tokens) if limit]
    most = min(limits, default=None)
    if budget is not None and budget < tokens:
        most = 0
    if most is None:
        notes.append("Neither max_batch_size nor max_num_tokens is told: no largest size is known.")
    else:
        reasons["most"] = f"A decode batch has at most {most} requests."
    exact_only = run.get("padding") is False
    if exact_only:
        reasons["exact_only"] = "Padding is off (enable_padding: false)."
    elif "padding" not in run:
        notes.append("Padding is off by default; what to paste turns it on.")
    found = Rules(
        engine="tensorrt_llm",
        version=version_of(run),
        phase="decode",
        axis="requests",
        most=most,
        exact_only=exact_only,
        over="dropped" if exact_only else "clipped",
        on_empty="makes a list of its own, up to 128",
        on_not_positive="fails while capturing",
        reasons=reasons,
        notes=tuple(notes),
    )
    return cover(seqs, capture_sizes(run), _DEFAULT_REACH, found)


def _prefill(run: dict[str, Any]) -> Rules:
    version = release(version_of(run))
    budget = positive_int(run, "token_budget")
    reasons: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if version is not None and version < _PREFILL_SINCE:
        budget = 0
        reasons["most"] = "No list of prefill sizes is known for this version of TensorRT-LLM."
    elif budget is None:
        notes = ("max_num_tokens is not told: no largest size is known.",)
    else:
        reasons["most"] = f"A step has at most {budget} tokens."
    return Rules(
        engine="tensorrt_llm",
        version=version_of(run),
        phase="prefill",
        axis="tokens",
        most=budget,
        on_empty="makes a list of its own",
        on_not_positive="leaves it out",
        reasons=reasons,
        notes=notes,
    )


def _names_its_mode(version: str | None) -> bool:
    numbers = release(version)
    if numbers is None or numbers < _NAMED_MODE:
        return False
    candidate = re.search(r"rc\.?(\d{1,4})", version or "")
    if numbers > _NAMED_MODE or candidate is None:
        return True
    return int(candidate[1]) >= _NAMED_MODE_CANDIDATE
