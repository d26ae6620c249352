"""What the engines write on their steps: the grammars of vLLM's and SGLang's annotations.

vLLM (``annotate_profile``), with requests in context and in generation, and after each the tokens
(plain), the sums over q, kv, q², q·kv (detailed), or tokens and Σq² (a form seen in the wild)::

    execute_context_1(512)_generation_8(8)
    execute_9_context_1(sq512sk512sqsq262144sqsk262144)_generation_8(sq8sk8200sqsq8sqsk8200)
    execute_context_1(888_788544)_generation_0(0)
    execute_diffusion_1_256x256

SGLang (``build_step_span_name``); ``bs`` is the batch before padding, and only DRAFT_LOOP names
the bucket it ran in::

    step[DECODE bs=32]  step[EXTEND bs=2 toks=512]  step[VERIFY bs=8 g_sq=32 g_sk=900 forward_id=7]
    step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

_N = r"(\d{1,9})"
_VLLM = re.compile(rf"execute_(?:{_N}_)?context_{_N}\(([^)]*)\)_generation_{_N}\(([^)]*)\)")
_DIFFUSION = re.compile(rf"execute_diffusion_{_N}(?:_.*)?")
_PLAIN = re.compile(rf"{_N}(?:_(\d{{1,18}}))?")
_SUM = re.compile(r"(sqsq|sqsk|sq|sk)(\d{1,18})")
_SGLANG = re.compile(r"step\[([A-Z_0-9]+)((?: [a-z_]+=\d+)*)[^\]]*\]")
_PAIR = re.compile(r" ([a-z_]+)=(\d{1,18})(?!\d)")
_CAPTURE = re.compile(rf"capture_{_N}_([A-Z]+)")
_CAPTURE_MODES = {"FULL": "full", "PIECEWISE": "piecewise"}

_STAGES: dict[str, tuple[str, str | None, str | None]] = {
    "DECODE": ("target", "decode", "requests"),
    "DLLM_EXTEND": ("target", "decode", "requests"),
    "IDLE": ("target", "decode", "requests"),
    "VERIFY": ("target", "verify", "requests"),
    "TARGET_VERIFY": ("target", "verify", "requests"),
    "EXTEND": ("target", "prefill", "tokens"),
    "SPLIT_PREFILL": ("target", "prefill", "tokens"),
    "MIXED": ("target", "mixed", "tokens"),
    "DRAFT": ("draft", "decode", "requests"),
    "DRAFT_LOOP": ("draft", "decode", "requests"),
    # The drafter's pass over the tokens just verified, in graphs of its own.
    "DRAFT_EXTEND": ("draft", "verify", "requests"),
    "DRAFT_EXTEND_V2": ("draft", "verify", "requests"),
}
"""Runner, phase and axis of SGLang's stages."""


@dataclass(frozen=True)
class StepLabel:
    """What a label tells of a step, in the words of trace format 1; None is not told."""

    engine: str
    runner: str = "target"
    phase: str | None = None
    axis: str | None = None
    requested: int | None = None
    bucket: int | None = None
    num_reqs: int | None = None
    num_tokens: int | None = None
    kv_tokens: int | None = None
    query_len: int | None = None
    kind: str | None = None


@dataclass(frozen=True)
class CaptureLabel:
    """What a label tells of the capture of one graph; ``mode`` is in the engine's words."""

    size: int
    mode: str | None


@lru_cache(maxsize=4096)
def parse_label(name: str) -> StepLabel | CaptureLabel | None:
    """Return what an annotation says, or None where it is no engine's."""
    if found := _VLLM.fullmatch(name):
        return _plausible(_vllm(*found.groups()))
    if found := _SGLANG.fullmatch(name):
        told = {key: int(value) for key, value in _PAIR.findall(found[2])}
        return _plausible(_sglang(found[1], told))
    if found := _DIFFUSION.fullmatch(name):
        return StepLabel("vllm", num_reqs=int(found[1]))
    if found := _CAPTURE.fullmatch(name):
        return CaptureLabel(int(found[1]), _CAPTURE_MODES.get(found[2]))
    return None


def refine(outer: StepLabel, inner: Sequence[StepLabel]) -> StepLabel:
    """Return ``outer`` with what the labels nested in it tell better.

    A patched SGLang puts vLLM's label around its own, which knows the phase and the axis. Of
    several, the one of the target's forward speaks for the step.
    """
    if outer.engine != "vllm" or not inner:
        return outer
    best = next((label for label in inner if label.runner == "target"), inner[0])
    told = {name: value for name, value in vars(best).items() if value is not None}
    return replace(outer, **told)


def _plausible(label: StepLabel) -> StepLabel | None:
    """Return the label unless a count in it is none of this world, and fits no column."""
    counts = (label.requested, label.bucket, label.num_reqs, label.num_tokens)
    return None if any(count is not None and count >= 1 << 31 for count in counts) else label


def _vllm(total: str | None, context: str, read: str, generation: str, made: str) -> StepLabel:
    prefills, decodes = int(context), int(generation)
    read_tokens, read_kv, _ = _aggregate(read)
    made_tokens, made_kv, made_squares = _aggregate(made)
    tokens = int(total) if total else _sum(read_tokens, made_tokens)
    if prefills and decodes:
        phase = "mixed"
    elif prefills:
        phase = "prefill"
    else:
        # More tokens than requests to generate for: drafts are being verified.
        phase = "verify" if (made_tokens or 0) > decodes else "decode"
    alone = not prefills and decodes > 0
    return StepLabel(
        engine="vllm",
        phase=phase,
        axis="tokens",
        requested=tokens,
        num_reqs=prefills + decodes,
        num_tokens=tokens,
        kv_tokens=_sum(read_kv, made_kv),
        query_len=_stride(decodes, made_tokens, made_squares) if alone else None,
        kind=None if prefills or decodes else "dummy",
    )


def _aggregate(text: str) -> tuple[int | None, int | None, int | None]:
    """Return Σq, Σkv and Σq² of a parenthesis, None where not told."""
    if plain := _PLAIN.fullmatch(text):
        return int(plain[1]), None, int(plain[2]) if plain[2] else None
    sums = {key: int(value) for key, value in _SUM.findall(text)}
    return sums.get("sq"), sums.get("sk"), sums.get("sqsq")


def _sglang(stage: str, told: dict[str, int]) -> StepLabel:
    runner, phase, axis = _STAGES.get(
        stage, ("draft" if stage.startswith("DRAFT") else "target", None, None)
    )
    batch = told.get("raw_bs", told.get("bs"))
    sums = [told[key] for key in ("c_sq", "g_sq") if key in told]
    tokens = told.get("toks", sum(sums) if sums else None)
    if stage == "DECODE":
        tokens = batch  # one each
    elif stage == "MIXED" and len(sums) < 2:
        tokens = None
    context = [told[key] for key in ("c_sk", "g_sk") if key in told]
    squares = told.get("g_sqsq", told.get("c_sqsq"))
    return StepLabel(
        engine="sglang",
        runner=runner,
        phase=phase,
        axis=axis,
        requested=tokens if axis == "tokens" else batch if axis else None,
        bucket=told.get("bs") if "raw_bs" in told else None,
        num_reqs=batch,
        num_tokens=tokens,
        kv_tokens=sum(context) if context else None,
        query_len=_stride(batch, tokens, squares) if axis == "requests" else None,
        kind="filler" if stage == "IDLE" else None,
    )


def _stride(requests: int | None, tokens: int | None, squares: int | None) -> int | None:
    """Return the tokens a request where all have equally many, which the sums can prove.

    Equal terms are the only ones with n·Σq² = (Σq)², and as many tokens as requests are one each.
    """
    if not requests or not tokens:
        return None
    if tokens == requests:
        return 1
    uniform = squares is not None and requests * squares == tokens * tokens
    return tokens // requests if uniform else None


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
