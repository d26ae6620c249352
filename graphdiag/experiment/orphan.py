"""No run outlives the experiment, not even one that is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "GRAPHDIAG_EXPERIMENT_PARENT"
"""The process whose end is the run's too; not set where a person starts a run by hand."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Have the kernel terminate this process when the experiment ends; on Linux, else nothing."""
    if sys.platform != "linux" or not os.environ.get(PARENT_VARIABLE):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.environ[PARENT_VARIABLE] != str(os.getppid()):  # it ended before we asked
        os.kill(os.getpid(), signal.SIGTERM)
