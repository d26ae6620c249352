"""Executables that graphs of one structure share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, sglang_dedup
from graphdiag_collectors.guard import Hooks
from tests.collectors.rows import read
from tests.collectors.sglang_harness import fresh_hooks


@pytest.fixture
def hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    yield from fresh_hooks(folder, monkeypatch)


def registry_class() -> Any:
    class DedupedCudaGraphRegistry:
        def __init__(self) -> None:
            self.groups: dict[str, Any] = {}
            self.sealed = False
            self.launched: list[int] = []

        def register(self, raw: int, signature: str) -> Any:
            group = self.groups.setdefault(signature, SimpleNamespace(graphs=[]))
            group.current_raw_graph = raw
            group.graphs.append(raw)
            return SimpleNamespace(raw_graph=raw, group=group)

        def stats(self) -> tuple[int, int]:
            return sum(len(group.graphs) for group in self.groups.values()), len(self.groups)

        def seal(self) -> None:
            self.sealed = True

        def replay(self, graph: Any, stream: int) -> None:
            graph.group.current_raw_graph = graph.raw_graph
            self.launched.append(graph.raw_graph)

    return DedupedCudaGraphRegistry


def test_graphs_executables_and_updates(
    hooks: Hooks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.5, 10.0, 10.0])
    monkeypatch.setattr(sglang_dedup, "monotonic", lambda: next(clock))
    owner = registry_class()
    sglang_dedup.patch_registry(hooks, owner)
    session.recorder()
    registry = owner()
    large, small, other = (registry.register(n, s) for n, s in ((8, "a"), (4, "a"), (9, "b")))
    registry.seal()
    for graph in (small, small, other, large, small):  # the last captured one is current
        registry.replay(graph, stream=7)
    assert registry.launched == [4, 4, 9, 8, 4]
    session.close()
    shared, updates = read(folder, "mark")
    assert shared["kind"] == "dedup"
    assert json.loads(shared["config"]) == {"graphs": 3, "executables": 2}
    assert (updates["kind"], updates["weight"]) == ("dedup_updates", 2)
    assert json.loads(updates["config"]) == {"launches": 5}


def test_a_graph_of_another_shape_is_replayed_all_the_same(hooks: Hooks, folder: Path) -> None:
    owner = registry_class()
    sglang_dedup.patch_registry(hooks, owner)
    registry = owner()
    registry.replay = owner.replay.__get__(registry)
    odd = SimpleNamespace(raw_graph=1)
    with pytest.raises(AttributeError):  # the engine's own, not the hook's
        registry.replay(odd, 7)
    assert hooks.guards["sglang.dedup_replay"].failures == 1
