"""On a CPU: one compiled region a bucket, in place of the CUDA graphs that only a GPU has.

Like a graph it holds for one size, is made before traffic comes, and pads what is smaller; unlike
a graph it saves no launch. Its results go to a buffer of the backend's pool, which grows when a
larger artifact is made than any before, and which the artifacts keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any, cast

import torch

from graphdiag.experiment.engine.artifacts import Artifact, Piece
from graphdiag.experiment.engine.backends.base import Backend
from graphdiag.experiment.engine.state import Region, State


class StaticCompile(Backend):
    """Compiles each region once for each size.

    Parameters
    ----------
    state
        The engine's tensors.
    compiler
        torch.compile's backend.
    """

    kind = "static_compile"

    def __init__(self, state: State, compiler: str) -> None:
        super().__init__(state)
        self.compiler: str = compiler
        self._pool: Any = None

    def trace_mode(self, mode: str) -> str:
        """Return ``compiled``: no graph is replayed here."""
        return "compiled"

    def capture_one(
        self, mode: str, size: int | None, told: Mapping[str, Any] | None = None
    ) -> Artifact:
        """Compile the regions of a mode for ``size`` rows."""
        assert size is not None
        grown = self._grow(size)
        own: dict[Any, Any] = {}
        pieces = tuple(self._static(region, mode, size, own) for region in self.state.regions(mode))
        artifact = Artifact(f"{mode}/{size}", mode, size, pieces, self._pool, grown)
        self.replay(artifact, size, self.state.filled)
        return artifact

    def cleanup(self) -> None:
        """Let go of the pool."""
        self._pool = None

    def _grow(self, size: int) -> int:
        """Make the pool large enough; return by how many bytes it grew."""
        if self._pool is not None and len(self._pool) >= size:
            return 0
        self._pool = torch.empty_like(self.state.hidden[:size])
        return int(self._pool.nbytes)

    def _static(self, region: Region, mode: str, size: int, own: dict[Any, Any]) -> Piece:
        function, arguments = region
        if function not in own:
            copied = own_code(function, f"{function.__name__}_{mode}_{size}")
            own[function] = torch.compile(copied, backend=self.compiler, dynamic=False)
        compiled, given = own[function], arguments(size, self._pool)

        def run(rows: int) -> None:
            compiled(*given)

        return run


def own_code(function: Any, name: str) -> Any:
    """Return the function with a code object of its own, under another name.

    Dynamo keeps what it compiled, and counts towards its limit, by code object: so each bucket has
    one compiled version, found without looking at the others, and is named in the trace.
    """
    made = cast(FunctionType, function)
    code = made.__code__.replace(co_name=name)
    return FunctionType(code, made.__globals__, name, made.__defaults__, made.__closure__)
