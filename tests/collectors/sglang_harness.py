"""Patches stand-in classes of SGLang as the collector patches the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdiag_collectors import session
from graphdiag_collectors import sglang as collector
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_captures import patch_backend_class
from graphdiag_collectors.sglang_forward import patch_model_runner
from graphdiag_collectors.sglang_scheduler import patch_scheduler
from graphdiag_collectors.sglang_steps import THREAD, Tracker
from tests.collectors import sglang_standins as fake
from tests.collectors.rows import steps


def fresh_hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    """Hooks that record into ``folder``; for a fixture."""
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    hooks = Hooks(session.current)
    monkeypatch.setattr(collector, "HOOKS", hooks)
    THREAD.tracker = Tracker()
    yield hooks
    session.close()


def install(hooks: Hooks, engine: Any) -> Any:
    """Patch the classes of ``engine``, and return it."""
    for owner in vars(engine).values():
        if owner.__name__.endswith("GraphRunner"):
            collector._patch_runner(owner)
        elif owner.__name__.endswith("Backend"):
            patch_backend_class(hooks, owner)
    patch_model_runner(hooks, engine.ModelRunner)
    return engine


def new_target(hooks: Hooks, **more: Any) -> Any:
    """The classes of 0.5.14 and later, and a target model with decode graphs of 1, 4 and 8."""
    engine = install(hooks, fake.new_engine())
    model = engine.ModelRunner()
    model.decode_cuda_graph_runner = engine.DecodeCudaGraphRunner(model, [1, 4, 8], **more)
    return engine, model


def scheduled_target(hooks: Hooks, **more: Any) -> Any:
    """A scheduler over such a model."""
    _, model = new_target(hooks, **more)
    owner = fake.scheduler_class()
    patch_scheduler(hooks, owner)
    return owner(model)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The steps that were recorded."""
    session.close()
    return steps(folder)


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a step was and what became of it."""
    names = ("runner", "phase", "requested", "bucket", "outcome", "reason", "artifact")
    return tuple(row[name] for name in names)
