"""What can be wrong with a plan or a machine, in one sentence."""

from __future__ import annotations

from graphdiag.errors import GraphdiagError


class EngineError(GraphdiagError):
    """The engine cannot run this plan here; the sentence says why and what to do."""
