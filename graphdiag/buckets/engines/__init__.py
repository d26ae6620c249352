"""What each engine accepts as a bucket set, the flag that sets it, and what it captures for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, cast

from graphdiag.buckets.engines import sglang, tensorrt_llm, vllm
from graphdiag.buckets.engines.rules import TITLES, EngineName, Rules, Variant

__all__ = ["ENGINES", "Rules", "Variant", "flag", "rules_for", "variants"]

ENGINES: tuple[EngineName, ...] = ("vllm", "sglang", "tensorrt_llm")
_MODULES: dict[str, ModuleType] = {
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt_llm": tensorrt_llm,
}


def rules_for(engine: str, config: Mapping[str, Any], axis: str | None, phase: str | None) -> Rules:
    """Return what ``engine`` accepts for the steps of ``phase``, whose sizes count ``axis``.

    ``config`` is the run's. Where it is another engine's, nothing in it but the draft tokens of a
    request says anything about ``engine``.

    Raises
    ------
    ValueError
        When there is no such engine.
    """
    own = _own(engine, config)
    rules = cast(Rules, _module(engine).rules(own, axis, phase))
    told = config.get("engine")
    if own is config or told is None:
        return rules
    other = TITLES.get(cast(EngineName, told), str(told))
    note = f"The run is {other}'s: its limits say nothing about {TITLES[rules.engine]}'s."
    return replace(rules, notes=(note, *rules.notes))


def flag(rules: Rules, buckets: Sequence[int]) -> str:
    """Return what to paste to have ``buckets``, in the words of the engine's version.

    Raises
    ------
    ValueError
        When the list is illegal; :meth:`Rules.refusals` says why.
    """
    wrong = rules.refusals(buckets)
    if wrong:
        raise ValueError(" ".join(wrong))
    sizes = sorted({int(size) for size in buckets})
    return str(_module(rules.engine).flag(rules, sizes))


def variants(engine: str, config: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return the graphs that ``engine`` captures for each size; one where nothing tells more.

    Raises
    ------
    ValueError
        When there is no such engine.
    """
    return cast("tuple[Variant, ...]", _module(engine).variants(_own(engine, config)))


def _module(engine: str) -> ModuleType:
    if engine not in _MODULES:
        raise ValueError(f"no engine is called {engine!r}")
    return _MODULES[engine]


def _own(engine: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    if config.get("engine") in (None, engine):
        return config
    return {key: config[key] for key in ("speculative_tokens",) if key in config}
