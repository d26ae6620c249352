"""How many steps each artifact served, beside the memory that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdiag import wording
from graphdiag.findings import ArtifactRow, Report
from graphdiag.plots import palette
from graphdiag.plots.lanes import HALF, Bar, in_rows
from graphdiag.plots.picture import Picture, Words, plain

MOST = 20
"""Artifacts with a row of their own."""
_CHARS = 24
NOT_RECORDED = (
    "No artifact has a name in this source, so that which graph served a step is not known: record "
    "the engine with graphdiag record."
)


@dataclass(frozen=True)
class _Row:
    label: str
    artifacts: Sequence[ArtifactRow]

    @property
    def served(self) -> int:
        return sum(one.served for one in self.artifacts)

    @property
    def memory(self) -> int:
        return sum(one.pool_bytes or 0 for one in self.artifacts)


def artifacts_served(report: Report) -> Picture | Words:
    """Return each artifact's share of the steps they served, and of the memory they hold.

    The artifacts with the most steps have a row each; the others share one, and those that served
    no step another.
    """
    rows = _rows(report.artifacts)
    if not rows:
        return Words(NOT_RECORDED)
    steps, memory = sum(row.served for row in rows), sum(row.memory for row in rows)
    found = []
    for place, row in enumerate(rows):
        told = _told(row, steps, memory)
        share = row.served / steps * 100 if steps else 0.0
        low = 0.0 if memory else -HALF
        found.append(Bar(place, 0.0, share, palette.SERVED, told, "steps served", low=low))
        if memory:
            held = row.memory / memory * 100
            bar = Bar(place, 0.0, held, palette.MEMORY, told, "graph memory", high=0.0)
            found.append(bar)
    return in_rows(found, [row.label for row in rows], x="share of all in %")


def _rows(artifacts: Sequence[ArtifactRow]) -> list[_Row]:
    used = sorted((one for one in artifacts if one.served), key=lambda one: -one.served)
    idle = [one for one in artifacts if one.is_idle]
    shown = used if len(used) <= MOST + 1 else used[:MOST]
    rows = [_Row(_named(one.artifact), [one]) for one in shown]
    if used[len(shown) :]:
        rows.append(_Row(f"{len(used) - len(shown):,} others", used[len(shown) :]))
    if idle:
        rows.append(_Row(f"{len(idle):,} that served none", idle))
    return rows


def _named(artifact: str) -> str:
    """Return a name that fits beside its bar: its start, and its end, which tells most."""
    if len(artifact) <= _CHARS:
        return plain(artifact)
    return plain(f"{artifact[: _CHARS // 3]}…{artifact[_CHARS // 3 + 1 - _CHARS :]}")


def _told(row: _Row, steps: int, memory: int) -> dict[str, str]:
    """Return the exact figures of a row."""
    one = row.artifacts[0] if len(row.artifacts) == 1 else None
    told = {
        "artifact": row.label if one is None else plain(one.artifact, 200),
        "kind": "" if one is None else plain(one.kind or wording.MISSING),
        "size": "" if one is None or one.size is None else f"{one.size:,}",
        "steps served": f"{row.served:,} ({wording.percent(row.served / (steps or 1))})",
        "memory": "not recorded",
        "capture": "" if one is None else wording.measure(one.capture_ms, "ms", "not recorded"),
    }
    if memory:
        told["memory"] = (
            f"{wording.size_in_bytes(row.memory)} ({wording.percent(row.memory / memory)})"
        )
    return told
