"""The interface of a way to run the model: capture_one, can_run, replay, cleanup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdiag.experiment.engine.artifacts import Artifact, Piece
from graphdiag.experiment.engine.dispatcher import FULL, PIECEWISE
from graphdiag.experiment.engine.state import Region, State


class Backend:
    """Runs batches eagerly, at their own size; other backends make pieces of another sort.

    Parameters
    ----------
    state
        The engine's tensors.

    Attributes
    ----------
    kind
        What a capture of this backend is called in the trace.
    compiler
        torch.compile's backend, None where nothing is compiled.
    """

    kind = "eager"
    compiler: str | None = None
    recorded_by_hooks = False
    """Whether torch's hooks record the captures, so that the engine need not."""

    def __init__(self, state: State) -> None:
        self.state = state

    def can_run(self, mode: str) -> bool:
        """Say whether this backend makes artifacts of ``mode``."""
        return mode in (FULL, PIECEWISE)

    def trace_mode(self, mode: str) -> str:
        """Return the trace's word for a step that an artifact of ``mode`` ran."""
        return "eager"

    def capture_one(
        self, mode: str, size: int | None, told: Mapping[str, Any] | None = None
    ) -> Artifact:
        """Make the artifact of a mode and a size, on the input that the buffers hold.

        ``size`` None is one for every size; this backend and torch.compile's make no other, the
        rest always want a size. ``told`` are columns of the capture's event.
        """
        result = self.state.hidden
        pieces = tuple(self.piece(region, result) for region in self.state.regions(mode))
        return Artifact(f"{mode}/any", mode, size, pieces, result)

    def piece(self, region: Region, result: Any) -> Piece:
        """Return a region that can be run."""
        function, arguments = region

        def run(rows: int) -> None:
            function(*arguments(rows, result))

        return run

    def replay(self, artifact: Artifact, rows: int, tokens: int) -> None:
        """Run the artifact on ``rows`` rows, of which the first ``tokens`` are real."""
        pieces = artifact.pieces
        pieces[0](rows)
        for layer in range(len(pieces) - 1):
            self.state.attend(layer, tokens)
            pieces[layer + 1](rows)

    def cleanup(self) -> None:
        """Let go of what the artifacts share."""
