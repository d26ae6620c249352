"""The modules of SGLang that are patched, and the watch for them: the standard library alone.

SGLang up to 0.5.10 loads no plugins. There :func:`start`, called where Python starts, does what
the engine's plugin loader does later: the collector is offered when SGLang is about to be imported,
in every process of the engine. ``graphdiag record`` has it called by ``boot/sitecustomize.py``; a
``.pth`` file does as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from graphdiag_collectors.import_hook import when_imported

_EXECUTOR = "sglang.srt.model_executor"
_DRAFTS = "sglang.srt.speculative"
_HARDWARE = "sglang.srt.hardware_backend"

CLASSES = {
    f"{_EXECUTOR}.model_runner": "ModelRunner",
    "sglang.srt.managers.scheduler": "Scheduler",
    "sglang.srt.managers.schedule_batch": "ScheduleBatch",
    "sglang.srt.entrypoints.engine": "Engine",
    f"{_EXECUTOR}.runner_backend.cuda_graph_dedup_mixin": "DedupedCudaGraphRegistry",
    "torch.profiler.profiler": "profile",
}
"""Module to the one class in it that is patched."""

RUNNERS = (
    f"{_EXECUTOR}.runner.decode_cuda_graph_runner",
    f"{_EXECUTOR}.runner.prefill_cuda_graph_runner",
    f"{_EXECUTOR}.cuda_graph_runner",
    f"{_EXECUTOR}.piecewise_cuda_graph_runner",
    f"{_EXECUTOR}.breakable_cuda_graph_runner",
    f"{_EXECUTOR}.cpu_graph_runner",
    f"{_EXECUTOR}.npu_graph_runner",
    f"{_HARDWARE}.npu.graph_runner.npu_graph_runner",
    f"{_HARDWARE}.xpu.graph_runner.xpu_graph_runner",
    f"{_DRAFTS}.eagle_draft_cuda_graph_runner",
    f"{_DRAFTS}.eagle_draft_extend_cuda_graph_runner",
    f"{_DRAFTS}.multi_layer_eagle_draft_extend_cuda_graph_runner",
    f"{_DRAFTS}.frozen_kv_mtp_cuda_graph_runner",
    f"{_DRAFTS}.uno_cuda_graph_runner",
)
"""Modules whose every graph runner is patched."""

BACKENDS = (
    f"{_EXECUTOR}.runner_backend.full_cuda_graph_backend",
    f"{_EXECUTOR}.runner_backend.breakable_cuda_graph_backend",
    f"{_EXECUTOR}.runner_backend.tc_piecewise_cuda_graph_backend",
)
"""Modules whose every graph backend is patched."""

_watching = False


class _Beginning(MetaPathFinder):
    """Finds nothing, but is asked for SGLang before any of its modules is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Offer the collector if it is SGLang that is asked for."""
        if fullname == "sglang":
            sys.meta_path.remove(self)
            from graphdiag_collectors import plugin

            plugin.sglang()


def start() -> None:
    """Offer the collector as soon as this process imports SGLang; a second call does nothing.

    Where the engine loads plugins as well, that is a second offer, which does nothing either.
    """
    if "sglang" not in sys.modules and not any(
        isinstance(finder, _Beginning) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _Beginning())


def watch() -> None:
    """Patch each module when it is imported, or now if it is; a second call does nothing."""
    global _watching
    if _watching:
        return
    _watching = True
    for name in (*CLASSES, *RUNNERS, *BACKENDS):
        when_imported(name, _arrived)


def forget() -> None:
    """Let :func:`watch` begin anew, after the patches were taken back."""
    global _watching
    _watching = False


def _arrived(module: ModuleType) -> None:
    from graphdiag_collectors.sglang import patch_module

    patch_module(module)
