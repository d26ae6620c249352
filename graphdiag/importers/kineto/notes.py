"""Sentences a reader of an imported trace must know: what it does not tell, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphdiag.importers.kineto.attribution import Step
from graphdiag.importers.kineto.calls import GRAPH, HIP
from graphdiag.importers.kineto.costs import StepCosts, Window
from graphdiag.importers.kineto.events import EventLog, Events
from graphdiag.importers.kineto.labels import StepLabel
from graphdiag.importers.kineto.stream import Contents

NOT_WHOLE = "The trace is not whole"
_LOST = (
    ", so events of any step may be missing: what a step cost host and GPU, and whether it ran "
    "eager, is unknown, and GPU sums are of the part that was read"
)


def damage(log: EventLog, contents: Contents, steps: int) -> list[str]:
    """Return what was not read of the file; ``steps`` are those found in it."""
    notes = []
    if contents.cut:
        lost = _LOST if contents.lost_events and steps else ""
        notes.append(f"{NOT_WHOLE}: {contents.cut}{lost}.")
    if log.damaged:
        notes.append(f"{log.damaged:,} of {log.count:,} events cannot be read and are left out.")
    return notes


def window_notes(events: Events, window: Window | None, lost_events: bool = False) -> list[str]:
    """Return what the trace as a whole leaves open; ``window`` is None without GPU events."""
    calls = events.calls
    notes = []
    if window is not None:
        notes += _gpu_notes(window)
    elif lost_events:
        notes.append("No GPU event came before the cut: GPU busy and idle time are unknown.")
    elif len(calls):
        notes.append("The trace holds no GPU event: GPU busy and idle time are unknown.")
    else:
        notes.append("The trace holds no GPU event and no runtime call: it profiled the CPU only.")
    if window is not None and (calls.does(GRAPH) & calls.does(HIP)).any():
        notes.append(
            "HIP records the kernels of a graph replay back to back: idle time inside a replay "
            "cannot be seen, and kernel times there are upper bounds."
        )
    times = [spans.start for spans in (events.gpu, calls) if len(spans)]
    if times and not any((start % 1000).any() for start in times):
        notes.append("Times are whole microseconds: each is known to 1 µs only.")
    return notes


def _gpu_notes(window: Window) -> list[str]:
    notes = []
    if not window.launches:
        notes.append(
            "No launch recognised: no runtime call launches a CUDA or HIP kernel or graph, though "
            f"{window.gpu_events:,} GPU events ran; launches, replays and the GPU time of steps "
            "are unknown."
        )
    if window.unlinked_events:
        notes.append(
            f"{window.unlinked_events:,} of {window.gpu_events:,} GPU events are unlinked (the "
            "call that launched them is not in the trace): they count for the whole window, but "
            "for no step and no graph."
        )
    if window.silent_replays:
        notes.append(
            f"{window.silent_replays:,} of {window.graph_launches:,} graph launches have no GPU "
            "event in the trace: GPU time is too low by what they ran."
        )
    return notes


def step_notes(steps: Sequence[Step], costs: StepCosts, lost_events: bool = False) -> list[str]:
    """Return what the steps leave open; ``lost_events`` says that any may lack some of its own."""
    if not steps and lost_events:
        return ["No step of vLLM or SGLang came before the cut, so no step can be judged."]
    if not steps:
        return [
            "No step of vLLM or SGLang is annotated in the trace, so no step can be judged; "
            "profile the engine with CPU activity on."
        ]
    notes = [
        "Step times are those of the annotations on the host: the GPU may run a step's work after "
        "its time has ended, and a step that waits for the GPU includes the wait."
    ]
    real = np.array([step.label.kind is None for step in steps])
    replayed = real & (costs.replays > 0)
    eager = real & (costs.replays == 0) & (costs.launches > 0)
    if any(label.bucket is None for label in _labels(steps, replayed)):
        notes.append(
            "A profiler trace does not name the captured size a replay had: exact hits and "
            "padding are unknown."
        )
    if lost_events:
        return notes
    replaying = {(label.runner, label.phase) for label in _labels(steps, replayed)}
    for runner, phase in dict.fromkeys((x.runner, x.phase) for x in _labels(steps, eager)):
        if (runner, phase) not in replaying and phase is not None:
            whose = "" if runner == "target" else f"{runner} "
            notes.append(
                f"No {whose}{phase} step replays a graph here; whether graphs are off for them "
                "by configuration is not in a profiler trace."
            )
    if not costs.launches.any():
        notes.append("No step holds a launch: how the steps ran is unknown.")
    return notes


def _labels(steps: Sequence[Step], chosen: np.ndarray) -> list[StepLabel]:
    return [steps[index].label for index in np.flatnonzero(chosen).tolist()]
