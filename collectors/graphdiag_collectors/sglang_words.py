"""SGLang's names in the words of the trace: forward modes, graph backends, artifacts.

An artifact has the name that the log importer gives it, ``decode/8`` or ``prefill/512``, so that a
log and a trace of one run can be laid side by side; what else is in the engine's key follows after
a colon, as in ``decode/8:nolora``.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Mode(NamedTuple):
    """What a ``ForwardMode`` of the engine means to us.

    Attributes
    ----------
    phase, axis
        Words of the schema.
    kind
        ``filler`` for the empty forward of an idle data-parallel rank, else None.
    decodes
        Whether the decode graphs serve it on a GPU.
    on_cpu
        Whether they do on a CPU.
    """

    phase: str
    axis: str
    kind: str | None
    decodes: bool
    on_cpu: bool = False


MODES: dict[str, Mode] = {
    "DECODE": Mode("decode", "requests", None, True, True),
    "TARGET_VERIFY": Mode("verify", "requests", None, True),
    "DLLM_EXTEND": Mode("decode", "requests", None, True),
    "IDLE": Mode("decode", "requests", "filler", True),
    "DUMMY_FIRST": Mode("prefill", "tokens", "dummy", False),
    "EXTEND": Mode("prefill", "tokens", None, False),
    "SPLIT_PREFILL": Mode("prefill", "tokens", None, False),
    "MIXED": Mode("mixed", "tokens", None, False),
    "DRAFT_EXTEND": Mode("decode", "requests", None, False),
    "DRAFT_EXTEND_V2": Mode("decode", "requests", None, False),
}
UNKNOWN_MODE = Mode("decode", "requests", None, False)

DECODE_PHASES = ("decode", "verify")
PREFILL_PHASES = ("prefill", "mixed")

VARIANTS = ("stream_idx", "variant_label", "attention_variant")
"""Fields of the engine's look-up key beside its size."""


def role(runner: Any) -> str:
    """Return what a graph runner is for, such as ``decode``, ``prefill``, ``draft-extend``."""
    name = type(runner).__name__
    if "DraftExtend" in name:
        step = getattr(runner, "step", None)
        return "draft-extend" if not isinstance(step, int) else f"draft-extend-{step}"
    kind = "decode"
    if any(word in name for word in ("Prefill", "Piecewise", "BreakableCudaGraphRunner")):
        kind = "prefill"
    return f"draft-{kind}" if is_draft(runner) else kind


def is_draft(runner: Any) -> bool:
    """Say whether a graph runner belongs to a drafter."""
    name = type(runner).__name__
    if "Draft" in name or "MTP" in name:
        return True
    return bool(getattr(getattr(runner, "model_runner", None), "is_draft_worker", False))


def counts_tokens(runner: Any) -> bool:
    """Say whether the runner's decode buckets count tokens (ragged verify) instead of requests."""
    return bool(getattr(runner, "ragged_verify_mode", False))


def artifact(role: str, key: Any, in_tokens: bool = False) -> str:
    """Return the name of what the engine looks up by ``key``: a ``ShapeKey``, a size or a text."""
    prefix = f"{role}-tokens" if in_tokens and "prefill" not in role else role
    size = getattr(key, "size", key)
    parts = [f"{prefix}/{size}"]
    for name in VARIANTS:
        value = getattr(key, name, None)
        if value is not None:
            parts.append(f"s{value}" if name == "stream_idx" else str(value))
    return ":".join(parts)


def key_columns(key: Any) -> dict[str, Any]:
    """Return the engine's look-up key as a mapping, for the column ``key``."""
    size = getattr(key, "size", None)
    if size is None:
        return {"size": key}
    return {
        "size": size,
        **{name: getattr(key, name) for name in VARIANTS if getattr(key, name, None) is not None},
    }


def graph_mode(owner: Any) -> str:
    """Return the schema's mode for a graph backend of the engine, or for a runner without one."""
    name = type(owner).__name__
    if "Breakable" in name:
        return "breakable"
    if "Piecewise" in name:
        return "piecewise"
    return "compiled" if "CPU" in name else "full"
