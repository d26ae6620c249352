"""The first thing that runs in a process into which ``graphdiag attach --inject`` brings us."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from graphdiag_collectors import control

_ENGINES = {"vllm": "graphdiag_collectors.vllm", "sglang": "graphdiag_collectors.sglang"}
_TORCH = "graphdiag_collectors.torch_hooks"


def boot() -> None:
    """Offer the collectors of what this process has imported, and listen.

    An engine's own collector knows more of its graphs than torch's, which is offered where there
    is no engine. Their modules are imported when somebody attaches. Called in a thread of its own.
    """
    importlib.invalidate_caches()  # pyarrow may have been installed after the process began
    engines = {name: module for name, module in _ENGINES.items() if name in sys.modules}
    if not engines and "torch" in sys.modules:
        engines = {"torch": _TORCH}
    for name, module in engines.items():
        control.offer(name, _lazily(module, "install"), _lazily(module, "uninstall"))
    control.listen()


def _lazily(module: str, function: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), function)()
