"""CUDA graphs: a full one a bucket, or one a region with attention between them.

All graphs share one memory pool, so that the largest one, which is captured first, makes it and the
others fit in. Inputs and results are the engine's static buffers, whose addresses a graph keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from graphdiag.experiment.engine.artifacts import Artifact, Piece
from graphdiag.experiment.engine.backends.base import Backend
from graphdiag.experiment.engine.state import State
from graphdiag_collectors import torch_hooks

WARM_UPS = 2
"""Runs before a capture: libraries allocate and choose kernels in their first."""


class CudaGraphs(Backend):
    """Captures the eager model."""

    kind = "cuda_graph"
    recorded_by_hooks = True

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self._graphs: list[Any] = []

    def trace_mode(self, mode: str) -> str:
        """Return the mode itself."""
        return mode

    def capture_one(
        self, mode: str, size: int | None, told: Mapping[str, Any] | None = None
    ) -> Artifact:
        """Capture the regions of a mode for ``size`` rows."""
        assert size is not None
        artifact = Artifact(f"{mode}/{size}", mode, size, (), self.state.hidden)
        eager = super().capture_one(mode, size)
        self._warm_up(eager, size)
        held = torch.cuda.memory_reserved()
        artifact.pieces = tuple(
            self._capture(piece, artifact, size, told or {}) for piece in eager.pieces
        )
        artifact.pool_bytes = torch.cuda.memory_reserved() - held
        artifact.holds.append(self.state.model)  # graphs know its weights by address alone
        return artifact

    def cleanup(self) -> None:
        """Free the graphs."""
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()

    def _warm_up(self, eager: Artifact, size: int) -> None:
        """Run on the side stream, as capture will."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                self.replay(eager, size, self.state.filled)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(
        self, piece: Piece, artifact: Artifact, size: int, told: Mapping[str, Any]
    ) -> Piece:
        graph = torch.cuda.CUDAGraph()
        names = {name: told[name] for name in ("mode", "key", "identity") if name in told}
        torch_hooks.name_graph(graph, artifact.name, size, **names)
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            piece(size)
        self._graphs.append(graph)

        def replay(rows: int) -> None:
            graph.replay()

        return replay
