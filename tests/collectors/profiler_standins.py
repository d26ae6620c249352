"""Torch's profiler as far as a window sees it, serving the events of a hand-made trace."""

from __future__ import annotations

import contextlib
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

JsonEvent = dict[str, Any]


class Event:
    """An event as torch holds it in memory, made of one of a JSON trace."""

    def __init__(self, event: JsonEvent, base_ns: int, name: str | None = None) -> None:
        self._event, self._base_ns, self._name = event, base_ns, name

    def name(self) -> str:
        return self._name or self._event["name"]

    def activity_type(self) -> str:
        return self._event["cat"]

    def start_ns(self) -> int:
        return round(self._event["ts"] * 1000) + self._base_ns

    def duration_ns(self) -> int:
        return round(self._event["dur"] * 1000)

    def correlation_id(self) -> int:
        return self._event["args"].get("correlation", 0)

    def device_resource_id(self) -> int:
        return self._event["tid"]


class Torch:
    """What the stand-in profiler did, and what it will see or raise.

    Attributes
    ----------
    calls
        ``prepare``, ``start``, ``stop``, in order.
    notes
        Names of the annotations, in order.
    serve
        Events for the notes of a window.
    fail
        Name of a call to what it raises.
    now_ms, reached_ms
        Time at which events are recorded on the device, and up to which it has come.
    stream
        The current one.
    ready
        Whether CUDA is initialized.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.notes: list[str] = []
        self.serve: Callable[[list[str]], list[Any]] = lambda notes: []
        self.fail: dict[str, BaseException] = {}
        self.capturing = False
        self.ready = True
        self.now_ms = 0.0
        self.reached_ms = math.inf
        self.stream = "stream"

    def call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fail:
            raise self.fail[name]


class CudaEvent:
    """An event of the stand-in device, which may be asked and never waited for."""

    made = 0

    def __init__(self, state: Torch) -> None:
        CudaEvent.made += 1
        self._state = state
        self._at = math.nan
        self._passed = False

    def record(self) -> None:
        assert not self._state.capturing
        self._state.call("record")
        self._at, self._passed = self._state.now_ms, False

    def query(self) -> bool:
        assert not self._state.capturing
        self._state.call("query")
        self._passed = self._at <= self._state.reached_ms
        return self._passed

    def elapsed_time(self, end: CudaEvent) -> float:
        assert end._passed, "asked for the time of an event that may not have passed"
        self._state.call("elapsed_time")
        return end._at - self._at


def install(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Put the stand-in where ``import torch`` would put the real one."""
    state = Torch()

    class Results:
        def events(self) -> list[Any]:
            state.call("events")
            return state.serve(state.notes)

    class Profile:
        def __init__(self, activities: list[str]) -> None:
            state.calls.append("+".join(activities))
            self.profiler = types.SimpleNamespace(kineto_results=Results())

        def prepare_trace(self) -> None:
            state.call("prepare")

        def start_trace(self) -> None:
            state.notes.clear()
            state.call("start")

        def stop_trace(self) -> None:
            state.call("stop")

    @contextlib.contextmanager
    def record_function(name: str) -> Iterator[None]:
        state.call("annotate")
        state.notes.append(name)
        yield

    torch = types.ModuleType("torch")
    torch.__version__ = "9.9"  # type: ignore[attr-defined]
    vars(torch).update(
        profiler=types.SimpleNamespace(
            ProfilerActivity=types.SimpleNamespace(CPU="cpu", CUDA="cuda"),
            profile=Profile,
            record_function=record_function,
        ),
        autograd=types.SimpleNamespace(
            profiler=types.SimpleNamespace(_is_profiler_enabled=False),
        ),
        cuda=types.SimpleNamespace(
            is_initialized=lambda: state.ready,
            is_current_stream_capturing=lambda: state.capturing,
            current_stream=lambda: state.stream,
            Event=lambda enable_timing: CudaEvent(state),
        ),
        version=types.SimpleNamespace(cuda="12.8"),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return state
