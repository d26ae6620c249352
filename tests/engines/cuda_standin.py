"""CUDA graphs without a GPU, in a process that has torch: what a capture keeps is kept.

Between ``capture_begin`` and ``capture_end`` every operation is noted with the tensors it read and
wrote. A replay runs those operations again on the same tensors, so that what was no static buffer,
or was decided on the host, shows in the result as it would on a GPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdiag.experiment.engine.backends import choice
from graphdiag.experiment.engine.backends.cuda_graph import CudaGraphs

pools: set[Any] = set()
"""The pools that were captured into."""


class Notes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        if "local_scalar" in str(function):
            raise RuntimeError("operation not permitted when stream is capturing")
        result = function(*given, **(named or {}))
        self.operations.append((function, given, named or {}, result))
        return result


class Graph:
    def __init__(self) -> None:
        self.notes = Notes()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        pools.add(pool)
        self.notes.__enter__()

    def capture_end(self) -> None:
        self.notes.__exit__(None, None, None)

    def replay(self) -> None:
        for function, given, named, result in self.notes.operations:
            again = function(*given, **named)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def reset(self) -> None:
        self.notes.operations.clear()

    def pool(self) -> tuple[int, int]:
        return (0, 1)


class Block:
    def __init__(self, cuda_graph: Graph, pool: Any = None, stream: Any = None) -> None:
        self.cuda_graph, self.pool = cuda_graph, pool

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin(self.pool)

    def __exit__(self, *_: object) -> None:
        self.cuda_graph.capture_end()


def install() -> None:
    """Let mode ``graphs`` capture with the stand-in."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for module in (torch.cuda, torch.cuda.graphs):
        module.CUDAGraph, module.graph = Graph, Block
    torch.cuda.graph_pool_handle = lambda: (0, 1)
    torch.cuda.Stream = torch.cuda.current_stream = lambda: stream
    torch.cuda.stream = lambda stream: nullcontext()
    torch.cuda.memory_reserved = lambda: 0
    choice._graphs = lambda plan, state: CudaGraphs(state)
