"""The vLLM collector: an entry point of ``vllm.general_plugins``.

vLLM calls :func:`register` in every process of an engine. Without ``GRAPHDIAG_TRACE`` it patches
nothing until somebody attaches. With it, it asks to be told when vLLM imports the modules that
dispatch, capture and compile, which happens in the worker only; nothing is imported here, and
nothing is opened until a model runs. What a version does not have is not hooked and named in the
run event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType

from graphdiag_collectors import (
    control,
    vllm_capture,
    vllm_compile,
    vllm_draft,
    vllm_shutdown,
    vllm_v1,
    vllm_v2,
)
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.import_hook import when_imported
from graphdiag_collectors.vllm_state import State

Hook = Callable[[State, ModuleType], None]

HOOKS: tuple[tuple[str, Hook], ...] = (
    ("vllm.v1.cudagraph_dispatcher", vllm_v1.hook_dispatcher),
    ("vllm.v1.worker.gpu_model_runner", vllm_v1.hook_runner),
    ("vllm.v1.worker.gpu_model_runner", vllm_capture.hook_runner),
    ("vllm.v1.worker.gpu.dp_utils", vllm_v2.hook_dispatch),
    ("vllm.v1.worker.gpu.cudagraph_utils", vllm_capture.hook_manager),
    ("vllm.v1.worker.gpu.async_utils", vllm_v2.hook_output),
    ("vllm.v1.worker.gpu.model_runner", vllm_v2.hook_runner),
    ("vllm.v1.worker.gpu.model_runner", vllm_capture.hook_runner),
    ("vllm.v1.worker.gpu_worker", vllm_capture.hook_worker),
    ("vllm.v1.spec_decode.llm_base_proposer", vllm_draft.hook_drafters),
    ("vllm.v1.spec_decode.eagle", vllm_draft.hook_drafters),
    ("vllm.v1.spec_decode.extract_hidden_states", vllm_draft.hook_drafters),
    ("vllm.v1.worker.encoder_cudagraph", vllm_draft.hook_encoder),
    ("vllm.compilation.backends", vllm_compile.hook_backends),
    ("vllm.compilation.decorators", vllm_compile.hook_decorators),
    ("vllm.v1.engine.utils", vllm_shutdown.hook_manager),
)

STATE: State | None = None
"""The collector in this process, once registered."""


def register() -> None:
    """Offer to record vLLM: at once where ``GRAPHDIAG_TRACE`` is set, else when somebody attaches.

    vLLM calls it, any number of times. It never raises.
    """
    try:
        control.offer("vllm", install, uninstall)
    except Exception as error:
        print(f"graphdiag: vLLM is not hooked ({error})", file=sys.stderr)


def install() -> Hooks:
    """Patch vLLM's modules, those to come as they are imported, and return the hooks."""
    global STATE
    if STATE is None:
        STATE = state = State()
        for name, hook in HOOKS:
            when_imported(name, _hooking(state, name, hook))
    return STATE.hooks


def uninstall() -> None:
    """Put vLLM's own methods back; :func:`install` may patch them again."""
    global STATE
    if STATE is not None:
        STATE.hooks.unpatch()
        STATE.forget()
        STATE = None


def _forked() -> None:
    if STATE is not None:
        for runner in tuple(STATE.runners):
            runner._graphdiag.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _hooking(state: State, name: str, hook: Hook) -> Callable[[ModuleType], None]:
    def imported(module: ModuleType) -> None:
        if state is not STATE:
            return  # taken off before the module came
        try:
            hook(state, module)
        except Exception as error:  # a version that looks different
            state.hooks.missing[f"{name}: {hook.__name__}"] = f"{type(error).__name__}: {error}"

    return imported
