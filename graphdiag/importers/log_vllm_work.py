"""vLLM's capture and compile lines as events.

Every rank prints them, and ranks work at the same time, so one process speaks for all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from graphdiag.importers import log_values as values

_BAR = re.compile(
    r"Capturing (?:(?P<kind>prefill|decode|multi-module MTP|[a-z0-9_-]+) )?CUDA graph(?:s| shapes)"
    r"(?: \((?:(?P<routine>[^,()]+), )?(?P<mode>PIECEWISE|FULL)\))?:\s+\d+%\|[^|]*\| "
    r"\d+/(?P<total>\d{1,6}) \["
)
_DONE = re.compile(r"Graph capturing finished in (\d{1,9}) secs, took (-?\d{1,9}(?:\.\d+)?) GiB")
_PLANNED = re.compile(r"Profiling CUDA graph memory: (.*)")
_PLAN = re.compile(r"(PIECEWISE|FULL)=(\d{1,6})")
_ENCODER = re.compile(r"Encoder CUDA graph capture complete\. Captured (\d{1,6}) graphs")

_TAG = r"(?:\[(?P<tag>[^\]\s:]+)\] )?"
_SECONDS = r"(?P<s>\d{1,9}(?:\.\d+)?) s"
_WHERE = r"(?:compile range (?P<range>.+?)|(?:dynamic|general) shape|shape (?P<shape>\S+))"
_TOTAL = re.compile(
    _TAG
    + r"torch\.compile(?P<both> and initial profiling/warmup run together)? (?:took|takes) "
    + _SECONDS
    + r" in total"
)
_DYNAMO = re.compile(_TAG + r"Dynamo bytecode transform time: " + _SECONDS)
_COMPILED = re.compile(_TAG + r"Compiling a graph for " + _WHERE + r" takes " + _SECONDS)
_LOADED = re.compile(
    _TAG
    + r"Directly load the compiled graph\(s\) for "
    + _WHERE
    + r" from the cache, took "
    + _SECONDS
)
_AOT_LOADED = re.compile(_TAG + r"Directly load AOT compilation from path (?P<path>\S+)")
_AOT_SAVED = re.compile(_TAG + r"saved AOT compiled function to (?P<path>\S+)")
_AOT_FAILED = re.compile(
    _TAG + r"Compiling model again due to a load failure from (?P<path>[^,]+), reason: (?P<why>.*)"
)

Row = dict[str, Any]


class Captures:
    """Follows the captures of a run."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, str | None], int] = {}
        self._planned: dict[tuple[str, str | None], int] = {}
        self._done: set[str] = set()

    def bars(self, text: str) -> bool:
        """Note the progress bars in ``text``; say whether there were any."""
        found = False
        for match in _BAR.finditer(text):
            found = True
            sort = " ".join(filter(None, (match["kind"], match["routine"])))
            mode = match["mode"] and match["mode"].lower()
            self._bars[(sort or "graph", mode)] = int(match["total"])
        return found

    def read(self, text: str, process: str, now: int | None) -> tuple[list[Row], list[str]] | None:
        """Return the events and notes of a capture line; None where it is none."""
        if match := _PLANNED.search(text):
            self._planned = {
                ("graph", mode.lower()): int(count) for mode, count in _PLAN.findall(match[1])
            }
            return [], []
        if match := _ENCODER.search(text):
            return [{**_CAPTURE, "t_ns": now, "kind": "encoder", "weight": int(match[1])}], []
        match = _DONE.search(text)
        if match is None:
            return None
        if process in self._done and (process or self._bars):
            self._done.clear()
        elif self._done:
            return [], []
        self._done.add(process)
        groups, self._bars = self._bars or self._planned, {}
        rows: list[Row] = [
            {**_CAPTURE, "t_ns": now, "kind": sort, "mode": mode, "weight": count}
            for (sort, mode), count in groups.items()
        ]
        duration = int(match[1]) * 10**9
        rows.append(
            {
                **_CAPTURE,
                "t_ns": None if now is None else now - duration,
                "dur_ns": duration,
                "weight": 0,
                "pool_bytes": values.growth(match[2]),
            }
        )
        lacking = "The log tells how long the capture took, but not how many graphs it made."
        return rows, [] if groups else [lacking]


_CAPTURE: Row = {"event": "capture"}


@dataclass
class _Parts:
    """What was compiled under one tag since the last total."""

    dynamo: list[tuple[int | None, float]] = field(default_factory=list)
    compiled: list[tuple[int | None, float, str]] = field(default_factory=list)
    loaded: list[tuple[int | None, float, str]] = field(default_factory=list)
    aot: bool = False


class Compiles:
    """Follows the compilations of a run.

    A total line holds the time of all its parts, so parts are events of their own only where the
    log ends before the total.
    """

    def __init__(self) -> None:
        self._speaker: str | None = None
        self._parts: dict[str, _Parts] = {}
        self._totalled: set[str] = set()

    def read(self, text: str, process: str, now: int | None) -> tuple[list[Row], list[str]] | None:
        """Return the events and notes of a compile line; None where it is none."""
        found = self._find(text)
        if found is None:
            return None
        sort, match = found
        if self._speaker is None:
            self._speaker = process
        if process != self._speaker:
            return [], []
        if sort == "total":
            return self._total(match, now)
        if sort.startswith("aot"):
            return self._aot(sort, match, now)
        parts = self._parts.setdefault(match["tag"] or "", _Parts())
        seconds = float(match["s"])
        if sort == "dynamo":
            parts.dynamo.append((now, seconds))
        else:
            where = match["range"] or match["shape"] or "any shape"
            kept = parts.compiled if sort == "compiled" else parts.loaded
            kept.append((now, seconds, where))
        return [], []

    def unfinished(self) -> list[Row]:
        """Return the parts that no total line followed."""
        rows = []
        for tag, parts in self._parts.items():
            for now, seconds in parts.dynamo:
                rows.append(_compile(now, seconds, 0, None, {"tag": tag, "part": "dynamo"}))
            for now, seconds, where in parts.compiled:
                rows.append(_compile(now, seconds, 1, "miss", {"tag": tag, "range": where}))
            for now, seconds, where in parts.loaded:
                rows.append(_compile(now, seconds, 1, "hit", {"tag": tag, "range": where}))
        self._parts = {}
        return rows

    def _find(self, text: str) -> tuple[str, re.Match[str]] | None:
        for sort, pattern in _COMPILE_LINES.items():
            match = pattern.search(text)
            if match:
                return sort, match
        return None

    def _total(self, match: re.Match[str], now: int | None) -> tuple[list[Row], list[str]]:
        tag = match["tag"] or ""
        parts = self._parts.pop(tag, _Parts())
        if match["both"] and tag in self._totalled:
            return [], []  # it repeats the compilation that has its own total
        self._totalled.add(tag)
        cache = "miss" if parts.compiled else "hit" if parts.loaded or parts.aot else None
        key = {
            "tag": tag,
            "dynamo_seconds": sum(seconds for _, seconds in parts.dynamo),
            "compiled": {where: seconds for _, seconds, where in parts.compiled},
            "loaded": {where: seconds for _, seconds, where in parts.loaded},
        }
        # Where neither a compiled nor a loaded range is printed, one compilation is all we know.
        weight = len(parts.compiled) if cache else 1
        rows = [_compile(now, float(match["s"]), weight, cache, key)]
        for began, _, where in parts.loaded:
            rows.append(_compile(began, None, 1, "hit", {"tag": tag, "range": where}))
        notes = ["The compile time includes the profiling run."] if match["both"] else []
        return rows, notes

    def _aot(self, sort: str, match: re.Match[str], now: int | None) -> tuple[list[Row], list[str]]:
        row = _compile(now, None, 0, "miss", {"path": match["path"]}, kind="aot")
        if sort == "aot_failed":
            row["key"] = json.dumps({"path": match["path"], "why": match["why"]})
            return [row], [
                f"A compiled model could not be loaded from the cache: {match['why'][:200]}"
            ]
        if sort == "aot_loaded":
            self._parts.setdefault(match["tag"] or "", _Parts()).aot = True
            row["cache"], row["weight"] = "hit", 1
        elif not self._totalled and not self._parts:
            row["weight"] = 1  # saved, so compiled, and no other line tells of it
        return [row], []


_COMPILE_LINES = {
    "total": _TOTAL,
    "dynamo": _DYNAMO,
    "compiled": _COMPILED,
    "loaded": _LOADED,
    "aot_loaded": _AOT_LOADED,
    "aot_saved": _AOT_SAVED,
    "aot_failed": _AOT_FAILED,
}


def _compile(
    now: int | None,
    seconds: float | None,
    weight: int,
    cache: str | None,
    key: dict[str, Any],
    kind: str = "torch.compile",
) -> Row:
    duration = None if seconds is None else round(seconds * 1e9)
    return {
        "event": "compile",
        "kind": kind,
        "t_ns": None if now is None else now - (duration or 0),
        "dur_ns": duration,
        "weight": weight,
        "cache": cache,
        "key": json.dumps(key),
    }
