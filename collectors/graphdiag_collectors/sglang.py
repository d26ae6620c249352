"""Collector for SGLang 0.4.6 to 0.5.23 and what comes after: every step, capture and fallback.

From 0.5.11 on SGLang loads :mod:`graphdiag_collectors.plugin` itself, in every process it starts;
before that :mod:`graphdiag_collectors.sglang_site` does. This is imported where a trace is wanted;
it imports nothing of SGLang or torch, and patches classes as the engine imports their modules.
What each hook sees is in ``docs/sglang.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from graphdiag_collectors import control, session, sglang_site
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.sglang_captures import patch_backend_class, patch_capture
from graphdiag_collectors.sglang_dedup import patch_registry
from graphdiag_collectors.sglang_forward import patch_model_runner
from graphdiag_collectors.sglang_old import patch_old_runner
from graphdiag_collectors.sglang_runners import patch_runner
from graphdiag_collectors.sglang_scheduler import (
    patch_batch,
    patch_engine,
    patch_profiler,
    patch_scheduler,
)

HOOKS = Hooks(session.current)
"""The hooks of this process: what is on, what switched itself off, what is missing."""

_PATCHES = {
    "ModelRunner": patch_model_runner,
    "Scheduler": patch_scheduler,
    "ScheduleBatch": patch_batch,
    "Engine": patch_engine,
    "DedupedCudaGraphRegistry": patch_registry,
    "profile": patch_profiler,
}


def register() -> None:
    """Offer to record SGLang: at once if ``GRAPHDIAG_TRACE`` is set, else when somebody attaches.

    As the plugin of SGLang does, which imports this module later. Never raises; a second call
    does nothing.
    """
    try:
        control.offer("sglang", install, uninstall)
    except Exception as error:
        print(f"graphdiag: SGLang is not recorded ({error})", file=sys.stderr)


def install() -> Hooks:
    """Patch SGLang whether or not a trace is wanted yet, as for attaching to a running engine."""
    sglang_site.watch()
    return HOOKS


def uninstall() -> None:
    """Put the engine's own methods back; :func:`install` may patch them again."""
    HOOKS.unpatch()
    sglang_site.forget()


def patch_module(module: ModuleType) -> None:
    """Patch what there is to patch in one module of the engine."""
    name = sglang_site.CLASSES.get(module.__name__)
    if name is not None:
        owner = getattr(module, name, None)
        if owner is None:
            HOOKS.missing[f"{module.__name__}.{name}"] = "not there in this version"
        else:
            _PATCHES[name](HOOKS, owner)
    elif module.__name__ in sglang_site.BACKENDS:
        for owner in _classes(module, "Backend"):
            patch_backend_class(HOOKS, owner)
    else:
        for owner in _classes(module, "GraphRunner"):
            _patch_runner(owner)


def _patch_runner(owner: type) -> None:
    patch_capture(HOOKS, owner)
    if _holds_its_graphs(owner):
        patch_old_runner(HOOKS, owner)
    else:
        patch_runner(HOOKS, owner)


def _holds_its_graphs(owner: type) -> bool:
    """Say whether a runner replays by itself, as up to 0.5.13, and not through a backend."""
    if hasattr(owner, "can_run"):
        return True
    above = {one.__name__ for one in owner.__mro__}
    return "BaseCudaGraphRunner" not in above and "MultiStep" not in owner.__name__


def _classes(module: ModuleType, ending: str) -> Iterator[type]:
    """Yield the classes that ``module`` itself defines and whose name ends with ``ending``."""
    for value in list(vars(module).values()):
        if (
            isinstance(value, type)
            and value.__module__ == module.__name__
            and value.__name__.endswith(ending)
        ):
            yield value
