"""The configuration of a run, merged from its run events."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

SENTENCES = ("notes", "damage")
"""Keys that hold lists of sentences for the reader."""


def run_configs(events: pl.DataFrame) -> dict[str | None, dict[str, Any]]:
    """Return the configuration of each run id, later run events winning key by key.

    ``events`` are the non-step rows of a trace in order of time. The lists of sentences
    (:data:`SENTENCES`) are joined, since each event may add one. A config that is no JSON object is
    kept as ``{"notes": [...]}``.
    """
    configs: dict[str | None, dict[str, Any]] = {}
    for run, text in events.filter(pl.col("event") == "run").select("run", "config").iter_rows():
        merged = configs.setdefault(run, {})
        found = _decode(text)
        told = {key: _joined(merged.get(key, []), _sentences(found, key)) for key in SENTENCES}
        merged.update({key: value for key, value in found.items() if value is not None})
        _put(merged, told)
    return configs


def last_config(events: pl.DataFrame) -> dict[str, Any]:
    """Return the configuration of the latest run, with the sentences of all; empty if none."""
    configs = list(run_configs(events).values())
    if not configs:
        return {}
    last = dict(configs[-1])
    _put(last, {key: _joined(*(config.get(key, []) for config in configs)) for key in SENTENCES})
    return last


def configs_differ(events: pl.DataFrame) -> bool:
    """Say whether the runs of a trace were configured differently; sentences do not count."""
    told = [
        {key: value for key, value in config.items() if key not in SENTENCES}
        for config in run_configs(events).values()
    ]
    return any(config != told[0] for config in told)


def capture_sizes(config: dict[str, Any]) -> list[int]:
    """Return the configured capture sizes, ascending; empty where the run does not tell."""
    sizes = config.get("capture_sizes")
    if not isinstance(sizes, list):
        return []
    return sorted({size for size in sizes if _is_positive_int(size)})


def positive_int(config: dict[str, Any], key: str) -> int | None:
    """Return ``config[key]`` where it is a positive integer, else None."""
    value = config.get(key)
    return value if _is_positive_int(value) else None


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _decode(text: str | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return {"notes": ["A run event's configuration is no JSON object and was left out."]}


def _sentences(config: dict[str, Any], key: str) -> list[str]:
    told = config.get(key)
    if isinstance(told, str):
        return [told]
    return [str(sentence) for sentence in told] if isinstance(told, list) else []


def _joined(*lists: list[str]) -> list[str]:
    """Return the sentences of all lists in order, each once."""
    return list(dict.fromkeys(sentence for sentences in lists for sentence in sentences))


def _put(config: dict[str, Any], told: dict[str, list[str]]) -> None:
    """Set the lists of sentences of a configuration; it has no empty ones."""
    for key, sentences in told.items():
        if sentences:
            config[key] = sentences
        else:
            config.pop(key, None)
