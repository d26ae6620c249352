"""Torch's graph modules as far as the hooks see them, without torch and without a device."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from typing import Any

import pytest


class Device:
    """What the stand-in ``torch.cuda`` answers."""

    def __init__(self) -> None:
        self.ready = True
        self.free = 1000
        self.reserved = 100
        self.fail: BaseException | None = None
        self.calls: list[str] = []

    def call(self, name: str) -> None:
        self.calls.append(name)
        if self.fail is not None:
            raise self.fail


class Handle:
    def __init__(self, registry: OrderedDict[int, Any], number: int) -> None:
        self._registry, self._number = registry, number

    def remove(self) -> None:
        self._registry.pop(self._number, None)


def graph_module(device: Device, official: bool) -> types.ModuleType:
    """``torch.cuda.graphs`` as in torch 2.13, or with the official hooks of 2.14."""
    module = types.ModuleType("torch.cuda.graphs")
    hooks: dict[str, OrderedDict[int, Any]] = {
        "replay_end": OrderedDict(),
        "capture_end": OrderedDict(),
    }

    def fire(name: str, graph: Any) -> None:
        for hook in list(hooks[name].values()):
            try:
                hook(graph)
            except Exception:
                raise AssertionError("a hook raised") from None

    class CUDAGraph:
        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            device.call("capture_begin")

        def capture_end(self) -> None:
            device.call("capture_end")
            fire("capture_end", self)

        def replay(self) -> str:
            try:
                device.call("replay")
            finally:
                fire("replay_end", self)
            return "replayed"

        def reset(self) -> None:
            device.call("reset")

        def pool(self) -> tuple[int, int]:
            return (0, 7)

        def raw_cuda_graph(self) -> int:
            return 4711

    class graph:
        def __init__(self, cuda_graph: CUDAGraph) -> None:
            self.cuda_graph = cuda_graph

        def __enter__(self) -> None:
            device.call("empty_cache")
            device.reserved -= 50
            self.cuda_graph.capture_begin()

        def __exit__(self, *args: object) -> None:
            self.cuda_graph.capture_end()

    vars(module).update(CUDAGraph=CUDAGraph, graph=graph)
    if official:
        for name, registry in hooks.items():

            def register(hook: Any, registry: OrderedDict[int, Any] = registry) -> Handle:
                number = len(registry)
                registry[number] = hook
                return Handle(registry, number)

            setattr(module, f"register_graph_{name}_hook", register)
        vars(module)["registries"] = hooks
    return module


def install(monkeypatch: pytest.MonkeyPatch, device: Device, official: bool) -> types.ModuleType:
    """Put the stand-ins where ``import torch.cuda.graphs`` would put the real ones."""
    torch = types.ModuleType("torch")
    cuda = types.ModuleType("torch.cuda")
    graphs = graph_module(device, official)
    vars(cuda).update(
        is_initialized=lambda: device.ready,
        mem_get_info=lambda: (device.free, 5000),
        memory_reserved=lambda: device.reserved,
        get_device_name=lambda: "Stand-in GPU",
        graphs=graphs,
    )
    vars(torch).update(cuda=cuda, __version__="9.9")
    for module in (torch, cuda, graphs):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return graphs


def run_in(file: str, code: str, module: str = "torch.stand_in", **names: Any) -> dict[str, Any]:
    """Run ``code`` as if it were the file ``file`` of the module called ``module``."""
    space: dict[str, Any] = {"__name__": module, **names}
    exec(compile(code, file, "exec"), space)
    return space
