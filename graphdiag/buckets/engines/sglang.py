"""SGLang: a list of request counts for decode, and one of token counts for prefill.

The rules are those of ``get_batch_sizes_to_capture`` and ``get_prefill_num_tokens_to_capture``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphdiag.buckets.engines.rules import (
    ONE_VARIANT,
    Rules,
    Variant,
    cover,
    is_prefill,
    release,
    version_of,
)
from graphdiag.runconfig import capture_sizes, positive_int

_PER_PHASE = (0, 5, 14)
"""First version whose flags name the phase; it still takes the old names, 0.5.20 does not."""
_PREFILL_SINCE = (0, 5, 6)
_PREFILL_BY_DEFAULT = (0, 5, 10)
_LIMITED_PADDING = (0, 5, 16)
_DEFAULT_REACH = 512
_FACTOR = 2.0


def rules(config: Mapping[str, Any], axis: str | None, phase: str | None) -> Rules:
    """Return what SGLang accepts for decode (and verify), or for prefill (and mixed) steps.

    Without a phase, the axis tells: prefill graphs count tokens, decode graphs requests.
    """
    run = dict(config)
    return _prefill(run) if is_prefill(axis, phase) else _decode(run)


def flag(rules_of: Rules, buckets: Sequence[int]) -> str:
    """Return the command-line flag for ``buckets``, ascending and legal."""
    version = release(rules_of.version)
    sizes = " ".join(map(str, buckets))
    if version is None or version >= _PER_PHASE:
        return f"--cuda-graph-bs-{rules_of.phase} {sizes}"
    if rules_of.phase == "decode":
        return f"--cuda-graph-bs {sizes}"
    on = "" if version >= _PREFILL_BY_DEFAULT else "--enable-piecewise-cuda-graph "
    return f"{on}--piecewise-cuda-graph-tokens {sizes}"


def variants(config: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return one graph a size: what multiplies them, stream groups and adapters, is not told."""
    return ONE_VARIANT


def _decode(run: dict[str, Any]) -> Rules:
    reasons: dict[str, str] = {}
    notes = _version_notes(run)
    captured = capture_sizes(run)
    multiple = _alignment(run, captured, reasons, notes)
    pool = positive_int(run, "request_pool")
    seqs = positive_int(run, "max_num_seqs")
    most = None
    if pool is not None:
        most = math.ceil(pool / multiple) * multiple
        reasons["most"] = f"The engine's request pool has {pool} places."
    elif seqs is not None:
        most = max(math.ceil(seqs / multiple) * multiple, *captured, 0)
        reasons["most"] = f"At most {seqs} requests run at once."
        notes.append("The size of the request pool is not told: the most requests are taken.")
    else:
        notes.append("Neither the request pool nor the most requests are told: no largest size.")
    found = Rules(
        engine="sglang",
        version=version_of(run),
        phase="decode",
        axis="requests",
        multiple_of=multiple,
        most=most,
        exact_only=_exact_only(run, reasons),
        misaligned="dropped",
        over="clipped",
        reasons=reasons,
        notes=tuple(notes),
    )
    return cover(seqs or pool, captured, _DEFAULT_REACH, found)


def _prefill(run: dict[str, Any]) -> Rules:
    reasons: dict[str, str] = {}
    notes = _version_notes(run)
    version = release(version_of(run))
    if positive_int(run, "tensor_parallel") != 1:
        notes.append("Sizes may be rounded up to multiples of the ranks; the run does not tell.")
    limited = version is None or version >= _LIMITED_PADDING
    if limited:
        reasons["within_factor"] = (
            f"A prefill is not replayed in a graph of more than {_FACTOR:g} times its tokens."
        )
    return Rules(
        engine="sglang",
        version=version_of(run),
        phase="prefill",
        axis="tokens",
        most=_most_tokens(run, version, reasons, notes),
        within_factor=_FACTOR if limited else None,
        misaligned="rounded",
        over="dropped",
        on_not_positive="fails while capturing",
        reasons=reasons,
        notes=tuple(notes),
    )


def _most_tokens(
    run: dict[str, Any],
    version: tuple[int, int, int] | None,
    reasons: dict[str, str],
    notes: list[str],
) -> int | None:
    """Return the largest prefill graph: a chunk, and what the slots and the cache can hold."""
    if version is not None and version < _PREFILL_SINCE:
        reasons["most"] = "This version of SGLang has no graphs for prefill."
        return 0
    chunk = positive_int(run, "token_budget")
    limits = {chunk: f"A prefill has at most {chunk} tokens."}
    kept = positive_int(run, "kv_tokens")
    limits[kept] = f"The KV cache holds {kept} tokens."
    context = positive_int(run, "context_length")
    slots = positive_int(run, "request_pool")
    if run.get("prefill_mode") == "full" and chunk is not None:
        slots = max(chunk // 512, 1)
    if context is not None and slots is not None:
        limits[slots * context] = f"A graph has {slots} slots of {context} tokens."
    else:
        notes.append(
            "The context length is not told: a set whose smallest size is over slots times "
            "context would stop SGLang at start."
        )
    known = [limit for limit in limits if limit is not None]
    if not known:
        notes.append("The chunk of a prefill is not told: no largest size is known.")
        return None
    reasons["most"] = limits[min(known)]
    return min(known)


def _alignment(
    run: dict[str, Any], captured: list[int], reasons: dict[str, str], notes: list[str]
) -> int:
    """Return a number whose multiples are all legal: what the captured sizes have in common.

    The engine asks for multiples of a divisor of twice the tensor-parallel size (two-batch overlap,
    gathered buffers, context parallelism); which one, a run does not tell. The captured sizes have
    passed, so it divides them all.
    """
    ranks = positive_int(run, "tensor_parallel")
    if ranks == 1:
        return 1
    if not captured:
        notes.append("Whether sizes must be multiples of the ranks is not told: taken as no.")
        return 1
    shared = math.gcd(2 * (ranks or 0), *captured)
    if shared > 1:
        reasons["multiple_of"] = (
            f"All captured sizes are multiples of {shared}, which the ranks may ask for."
        )
    return shared


def _exact_only(run: dict[str, Any], reasons: dict[str, str]) -> bool:
    off = run.get("padding") is False
    if off:
        reasons["exact_only"] = "Padding is off (--disable-cuda-graph-padding)."
    return off


def _version_notes(run: dict[str, Any]) -> list[str]:
    if release(version_of(run)) is None:
        return ["SGLang's version is not told: the flags and rules of the newest are taken."]
    return []
