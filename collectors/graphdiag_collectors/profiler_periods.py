"""Windows now and then, at a bounded share of time: ``GRAPHDIAG_PROFILE``.

A thread looks once a second how many rows were recorded, so that counting costs a step nothing.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from graphdiag_collectors import profiler
from graphdiag_collectors.control import Refused

VARIABLE = "GRAPHDIAG_PROFILE"
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Period:
    """When to profile.

    Attributes
    ----------
    every
        Rows recorded between two windows, at least.
    steps
        Steps a window.
    share
        Largest share of the time that may lie in windows, from 0 to 1.
    """

    every: int
    steps: int = 5
    share: float = 0.01

    def pause(self, cost_seconds: float) -> float:
        """Return seconds to wait after a window that took ``cost_seconds`` in all."""
        return cost_seconds * (1 / self.share - 1)


def parse(text: str) -> Period:
    """Read ``every:1000,steps:5,share:0.01``; ``steps`` and ``share`` may be left out.

    Raises
    ------
    ValueError
        When it is not of that form, in words for a person.
    """
    wrong = f"{VARIABLE}={text!r} is not every:ROWS[,steps:STEPS][,share:FRACTION]"
    try:
        given = dict(part.strip().split(":") for part in text.split(","))
        every, steps = int(given.pop("every")), int(given.pop("steps", "5"))
        share = float(given.pop("share", "0.01"))
    except (KeyError, ValueError):
        raise ValueError(wrong) from None
    if given or every < 1 or not 1 <= steps <= profiler.MOST_STEPS:
        raise ValueError(wrong)
    if not (math.isfinite(share) and 0 < share <= 1):
        raise ValueError(f"{wrong}; share is from 0 to 1")
    return Period(every, steps, share)


_thread: threading.Thread | None = None


def start() -> None:
    """Start the thread where the variable is set; one that cannot be read is said on stderr."""
    global _thread
    text = os.environ.get(VARIABLE)
    if not text or (_thread is not None and _thread.is_alive()):
        return
    try:
        period = parse(text)
    except ValueError as error:
        print(f"graphdiag: {error}; not profiling", file=sys.stderr)
        return
    _thread = threading.Thread(
        target=_run, args=(period,), name="graphdiag-profile-periods", daemon=True
    )
    _thread.start()


def _run(period: Period, sleep: Callable[[float], None] = time.sleep) -> None:
    due, earliest = period.every, 0.0
    while True:
        sleep(LOOK_SECONDS)
        recorder = profiler.current_recorder()
        if recorder is None:
            due = period.every
            continue
        rows = recorder.status().rows
        if rows < due - period.every:  # another recorder
            due = period.every
        if rows < due or time.monotonic() < earliest:
            continue
        due = rows + period.every
        try:
            opened = profiler.open_window(period.steps)
        except Refused:
            continue
        opened.finished.wait()
        due = recorder.status().rows + period.every
        cost = opened.told.get("cost_ns", profiler.DEFAULT_SECONDS * 1e9) / 1e9
        earliest = time.monotonic() + period.pause(cost)


def _forked() -> None:
    global _thread
    if _thread is not None:
        _thread = None
        start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
