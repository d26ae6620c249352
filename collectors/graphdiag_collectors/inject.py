"""The first thing that runs in a process into which ``graphdiag attach --inject`` brings us."""

from __future__ import annotations

import importlib
import sys

from graphdiag_collectors import control, plugin


def boot() -> None:
    """Offer the collectors of what this process has imported, and listen.

    An engine's own collector knows more of its graphs than torch's, which is offered where there
    is no engine. Their modules are imported when somebody attaches. Called in a thread of its own.
    """
    importlib.invalidate_caches()  # pyarrow may have been installed after the process began
    engines: list[str] = [name for name in ("vllm", "sglang") if name in sys.modules]
    if not engines and "torch" in sys.modules:
        engines = ["torch"]
    for name in engines:
        plugin.offer(name)
    control.listen()
