"""SGLang's capture lines, 0.4.6 to 0.5.23, as capture events.

A capture begins and ends with a line of its own, by every rank. Between the two come the list of
sizes (in the begin line since 0.5.14, in the end line since 0.5.23, on a line of its own before)
and a progress bar. Ranks capture at the same time, so the first end line of a capture speaks for
all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from graphdiag.importers import log_values as values

_EDGE = re.compile(
    rb"Capture (?P<name>(?:[\w-]+ )*?)"
    rb"(?:(?:cuda|cpu|npu|xpu|musa|CUDA|CPU|NPU|XPU|MUSA) graph )?(?P<edge>begin|end)\b(?P<rest>.*)"
)
_LIST = re.compile(rb"Capture \w+ graph bs (?P<sizes>\[[\d, ]*\])")
_BAR = re.compile(
    rb"Capturing (?P<what>batches|num tokens|prefill shape) "
    rb"\((?:(?:bs|num_tokens)=(?P<size>\d{1,9}) )?avail_mem=-?[\d.]+ GB\)"
    rb"(?::[^\n]*?\d+/(?P<total>\d{1,6}) \[)?"
)
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,9}(?:\.\d+)?) s")
_USED = re.compile(r"mem usage=(-?\d{1,9}(?:\.\d+)?) GB")
_FREE = re.compile(r"avail mem=(-?\d{1,9}(?:\.\d+)?) GB")

_ROLES = {
    "": "decode",
    "target decode": "decode",
    "target verify": "decode",
    "target prefill": "prefill",
    "piecewise": "prefill",
    "draft": "draft-decode",
}
_MODES = {"full": "full", "breakable": "breakable", "tc_piecewise": "piecewise"}


def artifact(role: str, size: int | str, unit: str = "bs") -> str:
    """Return the name of an artifact, the same where it is captured and where it is replayed.

    ``unit`` is ``bs`` or ``num_tokens``: what the engine's key counts.
    """
    return f"{prefix(role, unit)}/{size}"


def prefix(role: str, unit: str = "bs") -> str:
    """Return the part of an artifact's name before its size."""
    return f"{role}-tokens" if unit == "num_tokens" and role != "prefill" else role


def graph_mode(backend: str | None) -> str | None:
    """Return our word for a graph backend of SGLang, or None for one that has none."""
    return _MODES.get(backend or "")


@dataclass
class Capture:
    """One capture of one runner, while it goes on and when it is done."""

    role: str
    mode: str
    unit: str = "bs"
    sizes: list[int] | None = None
    drawn: dict[int, None] = field(default_factory=dict)
    total: int | None = None
    free_before: int | None = None
    free_after: int | None = None
    seconds: float | None = None
    used: int | None = None

    def known_sizes(self) -> list[int] | None:
        """Return the sizes in the order of their capture, as far as the log tells; else None."""
        if self.drawn and len(self.drawn) == self.total and self.sizes is None:
            return list(self.drawn)
        if self.sizes is None:
            return None
        if set(self.drawn) == set(self.sizes):
            return list(self.drawn)
        return sorted(self.sizes, reverse=True)

    def rows(self, end_ns: int | None) -> list[dict[str, Any]]:
        """Return the capture events: one a size, and one that holds the time and the memory."""
        common = {"event": "capture", "kind": self.role, "mode": self.mode}
        found = self.known_sizes()
        rows: list[dict[str, Any]] = [
            {
                **common,
                "t_ns": end_ns,
                "weight": 1,
                "size": size,
                "artifact": artifact(self.role, size, self.unit),
            }
            for size in found or []
        ]
        duration = None if self.seconds is None else round(self.seconds * 1e9)
        rows.append(
            {
                **common,
                "t_ns": None if end_ns is None else end_ns - (duration or 0),
                "dur_ns": duration,
                "weight": 0 if found else self.total or 0,
                "pool_bytes": self.used,
                "mem_before": self.free_before,
                "mem_after": self.free_after,
            }
        )
        return rows


class Captures:
    """Follows the captures of a run and returns each once, when its first rank is done."""

    def __init__(self) -> None:
        self._open: dict[str, Capture] = {}
        self._last: Capture | None = None
        self._ranks_done: dict[str, set[bytes]] = {}

    def bars(self, line: bytes) -> bool:
        """Note the progress bars in ``line``; say whether there were any."""
        found = False
        for match in _BAR.finditer(line):
            found = True
            capture = self._drawing(match["what"] == b"batches")
            if match["size"]:
                capture.drawn[int(match["size"])] = None
            if match["total"]:
                capture.total = int(match["total"])
        return found

    def _drawing(self, batches: bool) -> Capture:
        """Return the capture that a progress bar belongs to: batches are decode's or a draft's."""
        if not batches:
            return self._open.setdefault("prefill", Capture("prefill", "piecewise", "num_tokens"))
        if self._last is None:
            self._last = self._open.setdefault("decode", Capture("decode", "full"))
        return self._last

    def listed(self, line: bytes) -> bool:
        """Note the list of decode sizes that versions before 0.5.14 print on its own."""
        match = _LIST.search(line)
        if match is None:
            return False
        capture = self._open.setdefault("decode", Capture("decode", "full"))
        capture.sizes = values.sizes(match["sizes"].decode())
        return True

    def edge(self, line: bytes, rank: bytes) -> Capture | None:
        """Note the begin or end in ``line``, by the rank labelled ``rank``.

        Returns the capture when this ends it for the first time, else None.
        """
        match = _EDGE.search(line)
        if match is None:
            return None
        name = match["name"].decode().strip().lower()
        role = _ROLES.get(name, name.replace(" ", "-"))
        rest = match["rest"].decode("utf-8", "replace")
        if match["edge"] == b"begin":
            self._begin(role, name, rest)
            return None
        done = self._ranks_done.setdefault(role, set())
        if rank in done:
            done.clear()  # a second end by the same rank: it captured again
        elif done:
            done.add(rank)
            return None
        done.add(rank)
        capture = self._open.pop(role, None) or Capture(role, _default_mode(name))
        _read_end(capture, rest)
        if self._last is capture:
            self._last = None
        return capture

    def _begin(self, role: str, name: str, rest: str) -> None:
        capture = self._open.get(role)
        if capture is None:
            capture = self._open[role] = Capture(role, _default_mode(name))
        self._last = capture
        capture.mode = graph_mode(values.word(values.field(rest, "backend"))) or capture.mode
        _read_sizes(capture, rest)
        free = _FREE.search(rest)
        if free:
            capture.free_before = values.gibibytes(free[1])


def _default_mode(name: str) -> str:
    if name == "piecewise":
        return "piecewise"
    return "breakable" if name == "target prefill" else "full"


def _read_end(capture: Capture, rest: str) -> None:
    _read_sizes(capture, rest)
    elapsed = _ELAPSED.search(rest)
    capture.seconds = float(elapsed[1]) if elapsed else None
    used, free = _USED.search(rest), _FREE.search(rest)
    capture.used = values.growth(used[1]) if used else None
    capture.free_after = values.gibibytes(free[1]) if free else None


def _read_sizes(capture: Capture, rest: str) -> None:
    for unit in ("num_tokens", "bs"):
        found = values.sizes(values.field(rest, unit))
        if found:
            capture.sizes, capture.unit = found, unit
