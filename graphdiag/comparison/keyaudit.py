"""Which of the changes between two runs no artifact's key carries.

An influence that is in no key is a bug in the key: an artifact made under the old value is served
under the new one, and nothing crashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from graphdiag.comparison.answer import Difference
from graphdiag.findings import AuditFinding, Severity
from graphdiag.summary import Summary

INFLUENCES = (
    *("engine_version", "mode", "padding", "speculative_tokens", "lora", "tensor_parallel"),
    *("data_parallel", "device", "driver", "torch"),
)
"""Keys of a run's configuration that influence what is compiled or captured."""

_ENGINES = frozenset({"engine", "vllm", "sglang"})
_SHOWN = 80
_WORD = re.compile(r"[a-z]+|[0-9]+")
_HASH = re.compile(r"(?<![0-9a-f])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-f])")


def key_audit(base: Summary, candidate: Summary, changed: list[Difference]) -> list[AuditFinding]:
    """Find what ``changed`` between the runs and is in no artifact's key.

    It is an error where the candidate loaded artifacts from a cache, a warning where it has a cache
    and made all of them itself, and worth a note where they live no longer than their process. A
    hash among what tells the artifacts apart may cover anything: where it changed nothing is found.
    """
    before, after = (_artifacts(summary) for summary in (base, candidate))
    known = pl.concat([before, after]).drop_nulls("key")
    told = [
        one for one in changed if one.key in INFLUENCES and None not in (one.base, one.candidate)
    ]
    if before.is_empty() and not (after["cache"] == "hit").any():
        return []  # nothing was made before that could be served now
    if known.is_empty() or not told or _hashes(after) - _hashes(before):
        return []
    words = {frozenset(_words(name)) for text in known["key"].unique() for name, _ in _fields(text)}
    severity, meaning = _meaning(after)
    return [
        AuditFinding(
            kind="unkeyed_influence",
            severity=severity,
            sentence=(
                f"{one.key} changed from {_shown(one.base)} to {_shown(one.candidate)} and is in "
                f"no artifact's key; {meaning}."
            ),
            data={"influence": one.key, "base": one.base, "candidate": one.candidate},
        )
        for one in told
        if not any(_carries(name, one.key) for name in words)
    ]


def _carries(field: frozenset[str], influence: str) -> bool:
    """Say whether a field of these words tells ``influence``."""
    if influence == "engine_version" and field - _ENGINES == {"version"}:
        return True
    return _words(influence) <= field


def _meaning(artifacts: pl.DataFrame) -> tuple[Severity, str]:
    """Return how bad a missing influence is, and in words."""
    cached = artifacts["cache"]
    if (cached == "hit").any():
        return "error", "the candidate loaded artifacts from a cache, and they may be stale"
    if (cached == "miss").any():
        return "warn", "the candidate made its artifacts itself, and the next run may load them"
    return "info", "graphs live no longer than their process, so that none is stale here"


def _artifacts(summary: Summary) -> pl.DataFrame:
    made = pl.col("event").is_in(["capture", "compile"])
    return summary.events.filter(made).select("key", "identity", "cache")


def _hashes(artifacts: pl.DataFrame) -> set[str]:
    """Return all hashes that tell the artifacts apart."""
    texts = pl.concat([artifacts["key"], artifacts["identity"]]).drop_nulls().unique()
    return {
        found
        for text in texts
        for _, value in _fields(text)
        if isinstance(value, str)
        for found in _HASH.findall(value)
    }


def _words(name: str) -> frozenset[str]:
    """Return the words of a field's name, without their plural."""
    return frozenset(word.rstrip("s") or word for word in _WORD.findall(name.lower()))


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _fields(text: str | None) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of all that a JSON text holds and is no container, however deep."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, dict):
            waiting += ((f"{name}.{key}", each) for key, each in one.items())
        elif isinstance(one, list):
            waiting += ((name, each) for each in one)
        else:
            yield name, one
