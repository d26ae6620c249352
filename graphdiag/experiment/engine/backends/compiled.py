"""torch.compile with dynamic shapes: one compiled region serves every size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from graphdiag.experiment.engine.artifacts import Artifact, Piece
from graphdiag.experiment.engine.backends.base import Backend
from graphdiag.experiment.engine.state import Region, State


class Compiled(Backend):
    """Compiles each region once for all sizes from two on, and once for one row.

    Parameters
    ----------
    state
        The engine's tensors.
    compiler
        torch.compile's backend.
    dynamic
        False is a fault: every size is compiled by itself, until Dynamo gives up.
    """

    kind = "compiled"

    def __init__(self, state: State, compiler: str, dynamic: bool = True) -> None:
        super().__init__(state)
        self.compiler: str = compiler
        self._dynamic = dynamic
        self._functions: dict[Callable[..., None], Callable[..., None]] = {}

    def trace_mode(self, mode: str) -> str:
        """Return ``compiled``."""
        return "compiled"

    def capture_one(
        self, mode: str, size: int | None, told: Mapping[str, Any] | None = None
    ) -> Artifact:
        """Compile the regions of a mode: for many rows, whose number may change, and for one."""
        artifact = super().capture_one(mode, size)
        if self._dynamic:
            for rows in (self.state.rows, 1):
                self.state.blank(rows)
                self.replay(artifact, rows, rows)
        return artifact

    def piece(self, region: Region, result: Any) -> Piece:
        """Return a region of a function that is compiled once, wherever it is used."""
        function, arguments = region
        compiled = self._functions.get(function)
        if compiled is None:
            compiled = torch.compile(
                function, backend=self.compiler, dynamic=None if self._dynamic else False
            )
            self._functions[function] = compiled
        seen = not self._dynamic

        def run(rows: int) -> None:
            nonlocal seen
            given = arguments(rows, result)
            if not seen and rows > 1:
                seen = True
                mark_rows(given)
            compiled(*given)

        return run


def mark_rows(arguments: Iterable[Any]) -> None:
    """Say of each input and output buffer that its number of rows will change."""
    for argument in arguments:
        if isinstance(argument, tuple):
            mark_rows(argument)
        elif isinstance(argument, torch.Tensor):
            torch._dynamo.mark_dynamic(argument, 0)
