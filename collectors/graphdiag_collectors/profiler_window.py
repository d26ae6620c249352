"""One profile window: torch's profiler over the next few steps, and their rows with its figures.

The engine's thread prepares the profiler at one step, starts it at the next, annotates each step
and stops it after the last, since Kineto belongs to the thread that steps. Reading what it saw is
a thread of its own. Nothing is raised into the engine.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from graphdiag_collectors.guard import Guard
from graphdiag_collectors.marks import GPU_WINDOW
from graphdiag_collectors.profiler_events import Profile, read_profile
from graphdiag_collectors.profiler_rows import HeldRows, Profiled, Watched
from graphdiag_collectors.recorder import Recorder

PROFILE_WINDOW = "profile_window"
"""``kind`` of the mark of a window, from its first step's start to its last one's end. ``config``:
``steps`` profiled, and how long (ns) the engine's thread stood still to prepare, start and stop the
profiler, how long reading it took, ``cost_ns`` from the beginning to the end of all, the ``error``
where it failed, and ``notes``."""

ROW_SECONDS = 2.0
"""How long the last step's row is waited for: an asynchronous engine has it when the result is."""

NO_GPU = (
    "Profiled steps have host times and no device time: the profiler saw no GPU event, because "
    "torch ran on the CPU or its GPU activities could not be recorded."
)
_CUPTI_SURVIVES = (12, 6)
"""The CUDA version from which CUPTI may be taken down and set up again beside CUDA graphs."""


def profiling(torch: Any) -> bool:
    """Say whether some thread of this process runs torch's profiler."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


class Window:
    """A profile of the next ``wanted`` steps of the thread that steps first.

    Attributes
    ----------
    state
        ``starting``, ``waiting`` for a step, ``running``, ``reading``, ``done`` or ``failed``.
    wanted, seen
        Steps asked for, and profiled so far.
    error
        Why it failed.
    told
        What the window's mark says, once it is done.
    engaged
        Whether torch's profiler is prepared or running: only a step of the same thread can stop it.
    """

    def __init__(
        self, recorder: Recorder, torch: Any, wanted: int, guard: Guard, over: Callable[[], None]
    ) -> None:
        self.state = "starting"
        self.wanted, self.seen = wanted, 0
        self.error: str | None = None
        self.told: dict[str, Any] = {}
        self.finished = threading.Event()
        self._recorder, self._torch, self._guard, self._over = recorder, torch, guard, over
        self._lock = threading.RLock()
        self._rows = HeldRows(recorder, self._lock, self.begin, self.end, self._closing)
        self._profile: Any = None
        self.engaged = False
        self._live = False
        self._thread = 0
        self._open: Profiled | None = None
        self._label = f"graphdiag {time.time_ns()} step "
        self._cuda = False
        self._begun_ns = 0
        self._concluded = self._left = False

    def await_steps(self) -> None:
        """Let the next step begin it."""
        with self._lock:
            if self.state == "starting":
                atexit.register(self._closing)
                self._rows.take_over()
                self.state = "waiting"

    def begin(self) -> Profiled | None:
        """Say that a step of the engine begins in this thread; return it if it is profiled."""
        try:
            with self._lock:
                return self._begin()
        except Exception as error:
            self._failed(error)
            return None

    def end(self, step: Watched | None) -> None:
        """Say that the step that :meth:`begin` returned ends."""
        if not isinstance(step, Profiled):
            return  # none, or one of an event pair's that began before the window
        try:
            with self._lock:
                self._end(step)
        except Exception as error:
            self._failed(error)

    def record(self, step: Watched | None, channel: Any, *args: Any, **columns: Any) -> None:
        """Record a row by ``Channel.record``'s arguments, with what the profile says of ``step``.

        Raises
        ------
        TypeError
            As ``Channel.record`` does.
        """
        self._rows.add(step, channel, *args, **columns)

    def cancel(self, why: str) -> None:
        """Give up: record the rows without figures. The engine's next step stops the profiler."""
        with self._lock:
            if self._concluded:
                return
            self.error = why
            self._conclude(Profile())

    def finish(self, seconds: float) -> None:
        """End it with the step under way, or give up after ``seconds``; not the engine's thread.

        Its rows are recorded then in any case. Where the engine made no step meanwhile,
        :attr:`engaged` still holds.
        """
        with self._lock:
            if self.state == "running" and self._live:
                self.wanted = min(self.wanted, max(self.seen + (self._open is not None), 1))
            elif self.state != "reading":
                self._closing()
        if not self.finished.wait(seconds):
            self._closing()

    def forget(self) -> None:
        """Drop everything, in a forked child: the rows and the profiler are the parent's."""
        self._rows.give_back()
        self._rows.delivered = True
        self._live = self.engaged = False
        atexit.unregister(self._closing)

    def _closing(self, why: str = "the recording ended within the window") -> None:
        self.cancel(why)

    def _begin(self) -> Profiled | None:
        thread = threading.get_ident()
        if self.state == "waiting":
            if profiling(self._torch):
                self.cancel("another profiler was started in it meanwhile")
            elif not self._capturing():
                self._thread = thread
                self.state = "running"
                self._prepare()
            return None
        if thread != self._thread:
            return None
        if self._concluded:
            self._disengage()
            return None
        if self._open is not None:
            return None
        if self.state != "running":
            return None
        if self.seen >= self.wanted:  # it could not be stopped at the end of the last one
            self._stop()
            return None
        if not self._live:
            if self._capturing():
                return None
            began = perf_counter_ns()
            self._live = True
            self._profile.start_trace()
            self.told["start_ns"] = perf_counter_ns() - began
        annotation = self._torch.profiler.record_function(f"{self._label}{self.seen}")
        annotation.__enter__()
        self._open = self._rows.latest = Profiled(self._rows, self.seen, annotation)
        return self._open

    def _end(self, step: Profiled) -> None:
        if step is not self._open or threading.get_ident() != self._thread:
            return
        self._open = None
        step.annotation.__exit__(None, None, None)
        self.seen += 1
        if self._concluded:
            self._disengage()
        elif self.seen >= self.wanted:
            self._stop()

    def _prepare(self) -> None:
        self._begun_ns = perf_counter_ns()
        profiler = self._torch.profiler
        cuda = self._torch.cuda
        activities = [profiler.ProfilerActivity.CPU]
        self._cuda = bool(cuda.is_initialized())
        if self._cuda:
            activities.append(profiler.ProfilerActivity.CUDA)
            version = getattr(self._torch.version, "cuda", None)
            if version and tuple(map(int, version.split(".")[:2])) < _CUPTI_SURVIVES:
                os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
                os.environ.setdefault("TEARDOWN_CUPTI", "0")
        self._profile = profiler.profile(activities=activities)
        self.engaged = True
        self._profile.prepare_trace()
        self.told["prepare_ns"] = perf_counter_ns() - self._begun_ns

    def _stop(self) -> None:
        if self._capturing():
            return  # stopping waits for the device, which would spoil the capture
        began = perf_counter_ns()
        self._live = self.engaged = False
        self._profile.stop_trace()
        self.told["stop_ns"] = perf_counter_ns() - began
        self.state = "reading"
        threading.Thread(target=self._read, name="graphdiag-profile", daemon=True).start()

    def _disengage(self) -> None:
        """Stop the profiler of a window that was given up, and leave."""
        if not self.engaged:
            self._leave()
        elif not self._capturing():
            started, self._live, self.engaged = self._live, False, False
            try:
                if not started:
                    self._profile.start_trace()  # one that was prepared can only be stopped so
                self._profile.stop_trace()
            finally:
                self._leave()

    def _capturing(self) -> bool:
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _read(self) -> None:
        profile = Profile()
        try:
            began = perf_counter_ns()
            events = self._profile.profiler.kineto_results.events()
            labels = {f"{self._label}{number}": number for number in range(self.seen)}
            profile = read_profile(events, labels)
            self._profile = None
            now = perf_counter_ns()
            self.told.update(read_ns=now - began, cost_ns=now - self._begun_ns)
        except Exception as error:
            self._guard.failed(error)
            self.error = f"the profile could not be read ({type(error).__name__}: {error})"
        with self._rows.claimed:
            last = self._rows.latest
            if last is not None:
                self._rows.claimed.wait_for(lambda: last.claimed, ROW_SECONDS)
            self._conclude(profile)

    def _conclude(self, profile: Profile) -> None:
        """Record the rows and the marks, and leave."""
        if self._concluded:
            return
        self._concluded = True
        atexit.unregister(self._closing)
        self._rows.deliver(profile.steps)
        self.state = "failed" if self.error else "done"
        if self.error is None:
            self._guard.in_a_row = 0
        try:
            self._mark(profile)
        except Exception as error:
            self._guard.failed(error)
        try:
            if threading.get_ident() == self._thread:
                self._disengage()
            elif not self.engaged:
                self._leave()
        except Exception as error:
            self._guard.failed(error)
        self.finished.set()

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._rows.give_back()
            self._over()

    def _mark(self, profile: Profile) -> None:
        notes = []
        if self.error is None and profile.window is None:
            notes.append(NO_GPU)
        elif profile.window is not None:
            self._recorder.event("mark", kind=GPU_WINDOW, **profile.window)
        lost = self.seen - len(profile.steps)
        if self.error is None and lost:
            notes.append(f"{lost} of {self.seen} profiled steps are not in the profile.")
        self.told.update(steps=len(profile.steps), error=self.error, notes=notes)
        span = {"t_ns": profile.first_ns, "dur_ns": profile.last_ns - profile.first_ns}
        self._recorder.mark(PROFILE_WINDOW, self.told, **(span if profile.steps else {}))
        if notes:
            self._recorder.run({"notes": notes})
        self._recorder.write_soon()

    def _failed(self, error: BaseException) -> None:
        """Give up after an error in the engine's thread."""
        self._guard.failed(error)
        try:
            with self._lock:
                self._open = None
                live, self._live, self.engaged = self._live, False, False
                if live:
                    self._profile.stop_trace()
        except Exception as second:
            self._guard.last += f"; stopping it: {type(second).__name__}: {second}"[:200]
        try:
            self.cancel(f"torch's profiler failed ({self._guard.last})")
        except Exception as second:
            self._guard.failed(second)
