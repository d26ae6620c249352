"""What the environment asks for: ``GRAPHDIAG_PROFILE`` and ``GRAPHDIAG_DEVICE_TIME``.

Windows now and then, at a bounded share of time: a thread looks once a second how many rows were
recorded, so that counting costs a step nothing. And the device time of every Nth step: a thread
waits for a recorder, and gives up what no step asks for.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphdiag_collectors import profiler
from graphdiag_collectors.control import Refused

if TYPE_CHECKING:
    from graphdiag_collectors.profiler_device import DeviceTimer

VARIABLE = "GRAPHDIAG_PROFILE"
DEVICE_VARIABLE = "GRAPHDIAG_DEVICE_TIME"
LOOK_SECONDS = 1.0
TIDY_SECONDS = 0.25


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


def parse_device(text: str) -> int:
    """Read ``every:50``: one step in how many.

    Raises
    ------
    ValueError
        When it is not of that form, in words for a person.
    """
    match = re.fullmatch(r"every:([1-9][0-9]{0,8})", text.strip())
    if match is None:
        raise ValueError(f"{DEVICE_VARIABLE}={text!r} is not every:STEPS")
    return int(match[1])


_threads: dict[str, threading.Thread] = {}


def start() -> None:
    """Start a thread for each variable that is set; one that cannot be read is said on stderr."""
    _start(VARIABLE, parse, _run, "not profiling")
    _start(DEVICE_VARIABLE, parse_device, _time_steps, "not timing steps")


def _start(
    variable: str, parse: Callable[[str], Any], work: Callable[[Any], None], otherwise: str
) -> None:
    text = os.environ.get(variable)
    running = _threads.get(variable)
    if not text or (running is not None and running.is_alive()):
        return
    try:
        told = parse(text)
    except ValueError as error:
        print(f"graphdiag: {error}; {otherwise}", file=sys.stderr)
        return
    name = "graphdiag-profile-periods" if variable == VARIABLE else "graphdiag-device-time"
    _threads[variable] = threading.Thread(target=work, args=(told,), name=name, daemon=True)
    _threads[variable].start()


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


def _time_steps(every: int, sleep: Callable[[float], None] = time.sleep) -> None:
    """Time every ``every``-th step of whichever recorder there is."""
    timer: DeviceTimer | None = None
    while True:
        sleep(TIDY_SECONDS)
        recorder = profiler.current_recorder()
        if recorder is None:
            continue
        if timer is None or timer.recorder is not recorder:
            timer = profiler.time_steps(recorder, every)
        else:
            timer.tidy()


def _forked() -> None:
    begun = bool(_threads)
    _threads.clear()
    if begun:
        start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
