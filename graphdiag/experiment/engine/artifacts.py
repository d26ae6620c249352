"""Artifacts and their cache: what was captured or compiled, under a key of all that influenced it.

An artifact is valid for the weights, the code, the compiler, the torch, the device and the
configuration it was made with. An influence that is left out of the key is a bug in the key: the
look-up then finds an artifact that was made for something else, and nothing crashes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

INFLUENCES = ("weights", "engine", "compiler", "torch", "device", "configuration")
"""What a key must hold beside mode and size."""

Piece = Callable[[int], Any]
"""A region that runs for a number of rows; one that was made for a size does not look at it."""


@dataclass
class Artifact:
    """Something that can run a step.

    Attributes
    ----------
    name
        In the trace, the same where it is made and where it is used.
    mode, size
        Its key in the dispatcher; size None fits every batch.
    pieces
        One region for a full artifact; for a piecewise one those between attention, in order.
    result
        The buffer that holds what a step comes to, a row a token.
    pool_bytes
        Memory it added to the backend's pool; None where that is not known.
    holds
        What must live as long as it does.
    """

    name: str
    mode: str
    size: int | None
    pieces: tuple[Piece, ...]
    result: Any
    pool_bytes: int | None = None
    holds: list[Any] = field(default_factory=list)


class Artifacts:
    """The cache.

    Parameters
    ----------
    influences
        What keys hold; all of :data:`INFLUENCES` unless a fault leaves one out.
    """

    def __init__(self, influences: tuple[str, ...] = INFLUENCES) -> None:
        self._influences = influences
        self._made: dict[str, Artifact] = {}

    def key(self, mode: str, size: int, identity: Mapping[str, str]) -> dict[str, Any]:
        """Return what the artifact is looked up by."""
        told = {name: identity[name] for name in self._influences}
        return {"mode": mode, "size": size, **told}

    def get(self, key: Mapping[str, Any]) -> Artifact | None:
        """Return the artifact of a key, None where there is none."""
        return self._made.get(json.dumps(key, sort_keys=True))

    def put(self, key: Mapping[str, Any], artifact: Artifact) -> None:
        """Keep an artifact."""
        self._made[json.dumps(key, sort_keys=True)] = artifact

    def clear(self) -> None:
        """Drop all artifacts."""
        self._made.clear()
