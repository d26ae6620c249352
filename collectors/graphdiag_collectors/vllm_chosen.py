"""What became of a batch, in the words of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.vllm_reasons import mode_name


class Chosen(NamedTuple):
    """What became of a batch, in words."""

    mode: str
    outcome: str | None
    reason: str | None
    artifact: str | None
    bucket: int
    replays: int
    replayed: int


def chosen_of(
    pieces: Mapping[str, int], key: Any, mode: Any, breakable: bool, reason: str | None
) -> Chosen:
    """Return the words for a batch that got a graph."""
    word = mode_name(mode).lower()
    if word == "piecewise" and breakable:
        word = "breakable"
    replayed = getattr(key, "num_active_loras", int(bool(getattr(key, "has_lora", False))))
    launches = 1 if word == "full" else pieces.get(word, NULL)
    return Chosen(word, None, reason, artifact_of(key, word), key.num_tokens, launches, replayed)


def artifact_of(key: Any, word: str, owner: str = "") -> str:
    """Return the name of a captured graph, the same where it is captured and where it replays.

    ``full/16`` for 16 tokens; ``/q4`` where it serves four tokens a request only, ``/lora5`` for
    one captured with five adapters.
    """
    name = f"{owner}{word}/{key.num_tokens}"
    count = getattr(key, "uniform_token_count", None)
    if count is None and getattr(key, "uniform", False) and getattr(key, "num_reqs", None):
        count = key.num_tokens // key.num_reqs
    if count is not None and count > 1:
        name += f"/q{count}"
    loras = getattr(key, "num_active_loras", int(bool(getattr(key, "has_lora", False))))
    return f"{name}/lora{loras}" if loras else name
