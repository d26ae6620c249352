"""The modules of SGLang that are patched, and the watch for them: the standard library alone.

SGLang up to 0.5.10 loads no plugins. There a ``.pth`` file in site-packages with the one line ::

    import os; os.environ.get("GRAPHDIAG_TRACE") and
    __import__("graphdiag_collectors.sglang_site", fromlist=["watch"]).watch()

(in one line) starts the watch in every Python process of that environment, those that an engine
spawns included, and costs nothing where the variable is not set. It must start before SGLang is
imported at all, because its modules import one another, so the collector itself comes with the
first module that is watched for.
"""

from __future__ import annotations

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
