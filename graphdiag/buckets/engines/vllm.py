"""vLLM: one list of token counts for all phases (``cudagraph_capture_sizes``).

The rules are those of ``VllmConfig._set_cudagraph_sizes`` and what the runners make of its list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from graphdiag.buckets.engines.rules import (
    ONE_VARIANT,
    Rules,
    Variant,
    cover,
    query_len,
    release,
    version_of,
)
from graphdiag.runconfig import capture_sizes, positive_int

_FLAG_SINCE = (0, 11, 1)
"""First version with ``--cudagraph-capture-sizes``; before it the list is in the compilation
config, and sizes over the token budget are not left out but fail while capturing."""
_NO_SEQUENCE_PARALLEL = (0, 32, 0)
"""First version known to have no rule about the tensor-parallel size."""
_DEFAULT_REACH = 512
"""Largest size of vLLM's own list, on most devices."""
_FULL_DECODE = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_MODES = (*_FULL_DECODE, "PIECEWISE", "NONE")


def rules(config: Mapping[str, Any], axis: str | None, phase: str | None) -> Rules:
    """Return what vLLM accepts; ``axis`` and ``phase`` change nothing, there is one list."""
    run = dict(config)
    captured = capture_sizes(run)
    reasons: dict[str, str] = {}
    notes: list[str] = []
    budget = positive_int(run, "token_budget")
    if budget is None:
        notes.append("The token budget is not told: no largest size is known.")
    else:
        reasons["most"] = f"The scheduler puts at most {budget} tokens in a step."
    stride = _stride(run, captured, reasons, notes)
    shards = _shards(run, captured, reasons, notes)
    multiple = math.lcm(stride, shards)
    # One that is no multiple can be in no list: an engine that runs does not have it.
    compiled = tuple(n for n in _compile_sizes(run, budget, notes) if n % multiple == 0)
    if compiled:
        reasons["must_contain"] = "Every size of compile_sizes must be captured as well."
    if run.get("mode") == "NONE":
        notes.append("Graphs are off in this run: the sizes count once they are on.")
    version = release(version_of(run))
    unfiltered = version is not None and version < _FLAG_SINCE
    found = Rules(
        engine="vllm",
        version=version_of(run),
        phase=None,
        axis="tokens",
        multiple_of=multiple,
        most=budget,
        must_contain=compiled,
        required=compiled,
        misaligned="rounded_within" if stride > 1 else "dropped",
        over="refused" if unfiltered else "dropped",
        on_not_positive="takes it and fails while capturing",
        reasons=reasons,
        notes=tuple(notes),
    )
    seqs = positive_int(run, "max_num_seqs")
    return cover(None if seqs is None else seqs * query_len(run), captured, _DEFAULT_REACH, found)


def flag(rules_of: Rules, buckets: Sequence[int]) -> str:
    """Return the command-line flag for ``buckets``, ascending and legal."""
    version = release(rules_of.version)
    if version is not None and version < _FLAG_SINCE:
        sizes = ", ".join(map(str, buckets))
        return f"--compilation-config '{{\"cudagraph_capture_sizes\": [{sizes}]}}'"
    return f"--cudagraph-capture-sizes {' '.join(map(str, buckets))}"


def variants(config: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return a graph for each mode and adapter case; FULL decode ends at the fullest batch."""
    run = dict(config)
    seqs = positive_int(run, "max_num_seqs")
    fullest = None if seqs is None else seqs * query_len(run)
    modes: dict[str, list[tuple[str, int | None]]] = {
        "FULL": [("FULL", None)],
        "PIECEWISE": [("PIECEWISE", None)],
        "FULL_DECODE_ONLY": [("FULL", fullest)],
        "FULL_AND_PIECEWISE": [("FULL", fullest), ("PIECEWISE", None)],
    }
    mode = run.get("mode")
    if not isinstance(mode, str) or mode not in modes:
        return ONE_VARIANT
    return tuple(
        Variant(", ".join(filter(None, (name, adapters))), up_to)
        for (name, up_to), adapters in product(modes[mode], _adapter_cases(run))
    )


def _adapter_cases(run: dict[str, Any]) -> list[str]:
    """Return the adapter counts that have graphs of their own, in words; vLLM's defaults."""
    most = positive_int(run, "lora")
    if most is None:
        return [""]
    cases = [most + 1]
    if run.get("specialize_active_lora") is True:
        cases = [*(1 << power for power in range(most.bit_length())), *cases]
    if run.get("cudagraph_specialize_lora") is False:
        cases = [most + 1]
        if _runner(run) != "v2":
            return [f"up to {most} adapters"]
    words = {1: "1 adapter", most + 1: f"up to {most} adapters"}
    return ["no adapter", *(words.get(case, f"{case} adapters") for case in cases)]


def _stride(
    run: dict[str, Any], captured: list[int], reasons: dict[str, str], notes: list[str]
) -> int:
    """Return what the V1 runner rounds sizes to: a request's tokens where decode is FULL."""
    tokens = query_len(run)
    mode, runner = run.get("mode"), _runner(run)
    if tokens == 1 or (mode in _MODES and mode not in _FULL_DECODE):
        return 1
    if runner == "v2":
        notes.append(
            f"The V2 runner rounds the sizes of decode graphs up to multiples of {tokens} by "
            "itself; the others it captures as listed."
        )
        return 1
    if runner is None and any(size % tokens for size in captured):
        notes.append(
            f"The model runner is not told, and captured sizes are no multiples of {tokens}: it is "
            "taken to be V2. V1 would round all sizes up."
        )
        return 1
    if runner is None:
        notes.append("The model runner is not told: the rules of V1, the stricter, are taken.")
    reasons["multiple_of"] = (
        f"A decode step has {tokens} tokens a request, and the V1 runner rounds all sizes to that."
    )
    return tokens


def _shards(
    run: dict[str, Any], captured: list[int], reasons: dict[str, str], notes: list[str]
) -> int:
    """Return the tensor-parallel size where sequence parallelism may ask for its multiples."""
    ranks = positive_int(run, "tensor_parallel") or 1
    version = release(version_of(run))
    if ranks == 1 or (version is not None and version >= _NO_SEQUENCE_PARALLEL):
        return 1
    if not captured:
        notes.append(
            "Whether sequence parallelism is on is not told: it is taken to be off; with it, "
            f"sizes must be multiples of {ranks}."
        )
        return 1
    if any(size % ranks for size in captured):
        return 1  # with sequence parallelism they would have been left out
    told = f"All captured sizes are multiples of {ranks}, as sequence parallelism asks."
    reasons["multiple_of"] = " ".join(filter(None, (reasons.get("multiple_of"), told)))
    return ranks


def _compile_sizes(run: dict[str, Any], budget: int | None, notes: list[str]) -> tuple[int, ...]:
    if _runner(run) == "v2":
        return ()
    if "compile_sizes" not in run:
        notes.append("compile_sizes is not told: it is taken to be empty.")
        return ()
    listed = run["compile_sizes"]
    sizes = listed if isinstance(listed, list) else []
    whole = {n for n in sizes if isinstance(n, int) and not isinstance(n, bool) and n > 0}
    return tuple(sorted(n for n in whole if budget is None or n <= budget))


def _runner(run: dict[str, Any]) -> str | None:
    told = run.get("runner") or run.get("model_runner")
    return told.lower() if isinstance(told, str) else None
