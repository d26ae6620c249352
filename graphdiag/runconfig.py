"""The configuration of a run, merged from its run events."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl


def run_configs(events: pl.DataFrame) -> dict[str | None, dict[str, Any]]:
    """Return the configuration of each run id, later run events winning key by key.

    ``events`` are the non-step rows of a trace in order of time. ``notes`` lists are joined, since
    each event may add one. A config that is no JSON object is kept as ``{"notes": [...]}``.
    """
    configs: dict[str | None, dict[str, Any]] = {}
    for run, text in events.filter(pl.col("event") == "run").select("run", "config").iter_rows():
        merged = configs.setdefault(run, {})
        found = _decode(text)
        notes = [*merged.get("notes", [])]
        notes += [note for note in _notes(found) if note not in notes]
        merged.update(
            {key: value for key, value in found.items() if value is not None and key != "notes"}
        )
        if notes:
            merged["notes"] = notes
    return configs


def last_config(events: pl.DataFrame) -> dict[str, Any]:
    """Return the configuration of the latest run, with the notes of all runs; empty if none."""
    configs = list(run_configs(events).values())
    if not configs:
        return {}
    notes: list[str] = []
    for config in configs:
        notes += [note for note in config.get("notes", []) if note not in notes]
    return {**configs[-1], **({"notes": notes} if notes else {})}


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


def _notes(config: dict[str, Any]) -> list[str]:
    notes = config.get("notes")
    if isinstance(notes, str):
        return [notes]
    return [str(note) for note in notes] if isinstance(notes, list) else []
