"""The one recorder of this process that all collectors share, opened when it is first needed.

A process that loads the plugin but never runs a model opens nothing and leaves no file, and does
not even import Arrow.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

_lock = threading.Lock()
_recorder: Recorder | None = None
_failed = False


def recorder(config: Mapping[str, Any] | None = None, **options: Any) -> Recorder | None:
    """Return this process's recorder, opened into ``GRAPHDIAG_TRACE`` on first use.

    ``config`` and ``options`` are those of :class:`Recorder` and count only when it is opened here.
    None where the variable is not set, or where the folder cannot be made, which is said once on
    stderr and never tried again: the engine goes on without a recording.
    """
    global _recorder, _failed
    if _recorder is not None or _failed:
        return _recorder
    with _lock:
        if _recorder is None and not _failed:
            try:
                from graphdiag_collectors.recorder import Recorder

                _recorder = Recorder.from_environment(config, **options)
            except Exception as error:
                _failed = True
                print(f"graphdiag: not recording ({error})", file=sys.stderr)
    return _recorder


def current() -> Recorder | None:
    """Return this process's recorder if it is open, without opening it."""
    return _recorder


def close() -> None:
    """Seal and forget the recorder; the next :func:`recorder` opens a new one."""
    global _recorder, _failed
    with _lock:
        if _recorder is not None:
            _recorder.close()
        _recorder, _failed = None, False


def _forked() -> None:
    """Take a new lock in a forked child: the parent's may be held by a thread that is not here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
