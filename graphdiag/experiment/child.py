"""A process that is run to its end, or to ours: no signal leaves it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from graphdiag.experiment.orphan import PARENT_VARIABLE

_LOOK_S = 0.05
_STOP_S = 60.0
"""How long an interrupted run has to write its trace to the end: a compilation is not broken off.

A second interruption ends it at once."""


def run_child(
    command: list[str], environment: dict[str, str], output: int, folder: Path
) -> tuple[int, bool]:
    """Run ``command`` in ``folder``; return its exit code, and whether a person broke it off.

    ``output`` is the descriptor that it writes to. It is asked to end where we are interrupted or
    terminated, and is ended where it does not.
    """
    with _terminated_as_interrupted():
        # A session of its own: Ctrl-C reaches it through us alone, and once.
        child = subprocess.Popen(
            command,
            env={**environment, PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
        try:
            # Polars' handler of SIGINT restarts a blocking wait, and Python would not hear of it.
            while child.poll() is None:
                time.sleep(_LOOK_S)
            return child.returncode, False
        except KeyboardInterrupt:
            _stop(child)
            return child.returncode, True
        except BaseException:
            _kill(child)
            raise


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Ask a run to end, and end it where it does not or a person asks again."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGINT)
        child.wait(_STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        _kill(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a run and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Take SIGTERM, and SIGHUP where it is not ignored, for an interruption."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup leaves it
    }
    try:
        for number in before:
            signal.signal(number, interrupt)
    except ValueError:  # not in the main thread, where no signal arrives either
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
