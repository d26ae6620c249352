"""Profile a few steps of a running engine, on demand or now and then: :func:`offer`.

While no window is open and no steps are timed, ``window`` is None and a step costs that look
alone::

    step = profiler.window and profiler.step_begun()
    …                                    # the engine's step
    profiler.step_ended(step)            # where step is not None

Steps of ``with recorder.step(…)`` need neither call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphdiag_collectors import control
from graphdiag_collectors.control import Refused

if TYPE_CHECKING:
    from graphdiag_collectors.guard import Guard
    from graphdiag_collectors.profiler_device import DeviceTimer
    from graphdiag_collectors.profiler_rows import Watched
    from graphdiag_collectors.profiler_window import Window
    from graphdiag_collectors.recorder import Recorder

COMMAND = "profile"
MOST_STEPS = 1000
MOST_SECONDS = 3600.0
DEFAULT_SECONDS = 60.0

window: Window | DeviceTimer | None = None
"""The window that is open, else what times every Nth step where that is asked for, else None."""

_lock = threading.Lock()
_given: Recorder | None = None
_guard: Guard | None = None
_timer: DeviceTimer | None = None
_warm = False
_last: Window | None = None
_number = 0


def offer(recorder: Recorder | None = None) -> None:
    """Let ``graphdiag profile`` open windows here, and the environment as its variables say.

    Those are ``GRAPHDIAG_PROFILE`` and ``GRAPHDIAG_DEVICE_TIME``; ``control.offer`` does the same
    where a collector is switched on. Imports nothing heavy and never raises. ``recorder`` is where
    to record, by default the process's own; one that was opened by hand must be given.
    """
    global _given
    try:
        if recorder is not None:
            _given = recorder
        control.add_command(COMMAND, command)
        from graphdiag_collectors import profiler_periods

        profiler_periods.start()
    except Exception as error:
        print(f"graphdiag: steps cannot be profiled ({error})", file=sys.stderr)


def step_begun() -> Watched | None:
    """Say that a step begins in this thread; give what this returns to :func:`step_ended`."""
    opened = window
    return None if opened is None else opened.begin()


def step_ended(step: Watched | None) -> None:
    """Say that the step ends, before or after its row is recorded by ``Channel.record``."""
    opened = window
    if step is not None and opened is not None:
        opened.end(step)


def record(step: Watched | None, channel: Any, *args: Any, **columns: Any) -> None:
    """Record the row of a step by ``channel.record``'s arguments, whenever its result comes.

    Needed only where rows come later than the next step begins, as asynchronous engines have it,
    or where an engine packs its rows itself; and then for every row while ``window`` is not None,
    also those with ``step`` None. Else ``channel.record`` finds the step itself.

    Raises
    ------
    TypeError
        As ``channel.record`` does.
    """
    opened = window or (_last if step is not None else None)
    if opened is None:
        channel.record(*args, **columns)
    else:
        opened.record(step, channel, *args, **columns)


def open_window(steps: int, seconds: float = DEFAULT_SECONDS) -> Window:
    """Profile the next ``steps`` steps, or give up after ``seconds``; returns at once.

    Raises
    ------
    Refused
        When there is nothing to profile or nowhere to record, or a profiler runs already.
    """
    global window, _last, _number
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "profiler"):
        raise Refused("it has not imported torch, whose profiler this needs")
    recorder = current_recorder()
    if recorder is None:
        raise Refused("it records nothing; graphdiag attach switches it on")
    from graphdiag_collectors.guard import Hooks
    from graphdiag_collectors.profiler_window import Window, profiling

    with _lock:
        global _guard
        if _guard is None:
            _guard = Hooks(current_recorder).guard("torch.profiler")
        if not _guard.on:
            raise Refused(f"profiling switched itself off after failures ({_guard.last})")
        if isinstance(window, Window):
            raise Refused("a window is open in it already")
        if profiling(torch):
            raise Refused("another profiler runs in it, and torch allows one a process")
        if _timer is not None:
            _timer.pause()
        opened = Window(recorder, torch, steps, _guard, _close)
        window = _last = opened
        _number += 1
    threading.Thread(
        target=_start, args=(opened, torch, seconds), name="graphdiag-profile", daemon=True
    ).start()
    return opened


def finish(seconds: float = 2.0) -> bool:
    """End a window with the step under way, and the timing of steps, before hooks are taken off.

    For another thread than the engine's. Every row is recorded when it returns. False where torch's
    profiler still runs: only the engine's next step can stop it, and none came within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    opened = _last
    if opened is not None and opened is window:
        opened.finish(seconds)
        while opened.engaged and time.monotonic() < deadline:
            time.sleep(0.01)
        if opened.engaged:
            return False
    timer = _timer
    if timer is not None:
        timer.finish()
    return True


def time_steps(recorder: Recorder, every: int) -> DeviceTimer:
    """Sample the device time of every ``every``-th step of ``recorder`` from now on."""
    global window, _timer
    from graphdiag_collectors.guard import Hooks
    from graphdiag_collectors.profiler_device import DeviceTimer

    with _lock:
        before, idle = _timer, window is _timer
        guard = Hooks(current_recorder).guard("torch.device_time")
        _timer = timer = DeviceTimer(recorder, every, guard, _over)
        if idle:
            timer.resume()
            window = timer
    if before is not None:
        before.finish()
    return timer


def current_recorder() -> Recorder | None:
    """Return the recorder that steps go to, or None where there is none."""
    session = sys.modules.get("graphdiag_collectors.session")
    return _given or (session.current() if session is not None else None)


def _start(opened: Window, torch: Any, seconds: float) -> None:
    """Load Kineto once outside the engine's thread, which takes seconds; then wait for steps."""
    global _warm
    try:
        if not _warm:
            _warm = True
            profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            profile.prepare_trace()
            profile.start_trace()
            profile.stop_trace()
        opened.await_steps()
        if not opened.finished.wait(seconds):
            begun = f"{opened.seen} of {opened.wanted} steps ended within {seconds:g} s"
            opened.cancel(begun if opened.seen else f"no step was profiled within {seconds:g} s")
    except Exception as error:
        opened.cancel(f"torch's profiler could not be started ({type(error).__name__}: {error})")


def _close() -> None:
    """Go on after a window."""
    global window
    timer = _timer
    if timer is not None:
        timer.resume()
    window = timer


def _over(timer: DeviceTimer) -> None:
    """Forget a timer that has ended."""
    global window, _timer
    if _timer is timer:
        _timer = None
        if window is timer:
            window = None


def command(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer ``graphdiag profile``.

    Open a window of ``steps`` within ``seconds``; with ``window``, say how far that one is.
    """
    number = question.get("window")
    if number is not None:
        if _last is None or number != _number:
            raise Refused("another window has been opened since")
        if question.get("cancel"):
            _last.cancel("it was given up")
        return _told(_last)
    steps, seconds = question.get("steps"), question.get("seconds", DEFAULT_SECONDS)
    if not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise Refused(f"steps must be a number from 1 to {MOST_STEPS}")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise Refused(f"the timeout must be a number of seconds up to {MOST_SECONDS:g}")
    return _told(open_window(steps, seconds))


def _told(opened: Window) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "window": _number,
        "state": opened.state,
        "wanted": opened.wanted,
        "seen": opened.seen,
        "why": opened.error,
        "figures": dict(opened.told),
    }


def _forked() -> None:
    global window, _last, _guard, _lock, _timer
    _lock = threading.Lock()
    for one in (window, _timer):
        if one is not None:
            one.forget()
    window = _last = _guard = _timer = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
