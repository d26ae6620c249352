"""What runs inside an engine: the trace format, the recorder, and the hooks.

Nothing here imports :mod:`graphdiag`, and nothing here imports torch unless the
engine already has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

__all__ = ["Recorder"]


def __getattr__(name: str) -> object:
    """Import the recorder when it is first asked for: the analyzer needs the schema alone."""
    if name == "Recorder":
        from graphdiag_collectors.recorder import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
