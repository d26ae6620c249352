"""What the processes of an engine load at their start: entry points that import nothing heavy.

vLLM and SGLang call their plugins in every process they start, most of which never run a model,
and in all of them whether or not somebody records. So a collector, and Arrow with it, is imported
when it is switched on: where ``GRAPHDIAG_TRACE`` is set at once, else when somebody attaches.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from graphdiag_collectors import control

COLLECTORS = {
    "vllm": "graphdiag_collectors.vllm",
    "sglang": "graphdiag_collectors.sglang",
    "torch": "graphdiag_collectors.torch_hooks",
}
"""The module of each collector, by the name of what it records."""


def vllm() -> None:
    """Offer to record vLLM; the entry point of ``vllm.general_plugins``. Never raises."""
    offer("vllm")


def sglang() -> None:
    """Offer to record SGLang; the entry point of ``sglang.srt.plugins``. Never raises."""
    offer("sglang")


def offer(name: str) -> None:
    """Offer a collector without importing it. Never raises; a second call does nothing."""
    module = COLLECTORS[name]
    control.offer(name, _lazily(module, "install"), _lazily(module, "uninstall"))


def _lazily(module: str, function: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(module), function)()
