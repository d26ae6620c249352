"""Which step made which call, and which call launched which GPU event.

A call belongs to the step on its thread in which it began. A GPU event belongs to the call with its
correlation id, and so to that call's step, whenever it ran: on an asynchronous device
it runs after the step's own time on the host. All kernels, copies and sets of a graph replay
carry the correlation id of the one graph launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphdiag.importers.kineto.calls import GRAPH
from graphdiag.importers.kineto.events import Annotation, Calls, GpuEvents
from graphdiag.importers.kineto.labels import StepLabel, parse_label, refine

NO_STEP = -1


@dataclass(frozen=True)
class Step:
    """One step on the host: its label, start and duration in ns, its thread, its inner labels."""

    label: StepLabel
    start: int
    duration: int
    thread: int


def outer_steps(annotations: Sequence[Annotation]) -> list[Step]:
    """Return the steps by start; a label within the time of another's step is part of that step."""
    nested: list[tuple[Annotation, StepLabel, list[StepLabel]]] = []
    for note in sorted(annotations, key=lambda note: (note.thread, note.start, -note.duration)):
        label = parse_label(note.name)
        if not isinstance(label, StepLabel):
            continue
        if nested:
            outer, _, inner = nested[-1]
            if outer.thread == note.thread and note.start < outer.start + outer.duration:
                inner.append(label)
                continue
        nested.append((note, label, []))
    steps = [
        Step(refine(label, inner), note.start, note.duration, note.thread)
        for note, label, inner in nested
    ]
    return sorted(steps, key=lambda step: step.start)


def steps_of_calls(calls: Calls, steps: Sequence[Step]) -> np.ndarray:
    """Return the index into ``steps`` of the step each call began in, or :data:`NO_STEP`."""
    found = np.full(len(calls), NO_STEP, np.int64)
    start = np.array([step.start for step in steps], np.int64)
    end = start + np.array([step.duration for step in steps], np.int64)
    thread = np.array([step.thread for step in steps], np.int32)
    for each in np.unique(thread):
        own = np.flatnonzero(thread == each)  # by start, and none overlaps another
        here = np.flatnonzero(calls.thread == each)
        latest = np.searchsorted(start[own], calls.start[here], side="right") - 1
        index = own[np.maximum(latest, 0)]
        inside = (latest >= 0) & (calls.start[here] < end[index])
        found[here[inside]] = index[inside]
    return found


@dataclass(frozen=True)
class Links:
    """How GPU events hang on calls.

    Attributes
    ----------
    linked, in_graph
        Masks over GPU events: whose call is known, and whose call launched a graph.
    step
        Step of each GPU event, or :data:`NO_STEP`.
    replay_step, replay_events, replay_kernels
        For each graph launch with a correlation id: its step, and what its replay ran.
    """

    linked: np.ndarray
    in_graph: np.ndarray
    step: np.ndarray
    replay_step: np.ndarray
    replay_events: np.ndarray
    replay_kernels: np.ndarray


def link(gpu: GpuEvents, calls: Calls, call_step: np.ndarray) -> Links:
    """Join GPU events to calls by correlation id; ``call_step`` is :func:`steps_of_calls`."""
    usable = np.flatnonzero(calls.correlation >= 0)
    order = usable[np.argsort(calls.correlation[usable], kind="stable")]
    if not len(order):
        none = np.zeros(len(gpu), bool)
        empty = np.zeros(0, np.int64)
        return Links(none, none, np.full(len(gpu), NO_STEP, np.int64), empty, empty, empty)
    known = calls.correlation[order]
    heads = np.flatnonzero(np.diff(known, prepend=known[0] - 1))
    known = known[heads]
    # A runtime call and the driver call beneath it may share an id: either may be the one we know.
    is_graph = np.logical_or.reduceat(calls.does(GRAPH)[order], heads)
    step = np.maximum.reduceat(call_step[order], heads)
    call = np.minimum(np.searchsorted(known, gpu.correlation), len(known) - 1)
    linked = known[call] == gpu.correlation
    in_graph = linked & is_graph[call]
    events = np.bincount(call[in_graph], minlength=len(known))
    kernels = np.bincount(call[in_graph & gpu.kernel], minlength=len(known))
    return Links(
        linked=linked,
        in_graph=in_graph,
        step=np.where(linked, step[call], NO_STEP),
        replay_step=step[is_graph],
        replay_events=events[is_graph],
        replay_kernels=kernels[is_graph],
    )
