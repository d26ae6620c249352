"""What each profiled step cost, from Kineto's events as torch holds them in memory.

The rules are those of ``graphdiag import`` for the same events as a JSON trace: a call belongs to
the step on its thread in which it began, and a GPU event to the call with its correlation id, and
so to that call's step, whenever it ran. All that a graph replay runs carries the id of its launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LAUNCH, GRAPH, BLOCKING = 1, 2, 4

_PATTERNS = (
    (re.compile(r"(?:cuda|hip|cu)\w*Launch\w*Kernel|(?:cuda|hip|cu)\w*GraphLaunch"), LAUNCH),
    (re.compile(r"(?:cuda|hip|cu)\w*GraphLaunch"), GRAPH),
    (re.compile(r"(?:cuda|hip|cu)(?:Drv)?Memcpy(?!\w*Async)"), BLOCKING),
    (re.compile(r"(?:cuda|hip|cu)(?:Device|Ctx|Stream|Event)Synchronize"), BLOCKING),
)
_GPU = {"kernel": 1, "gpu_memcpy": 0, "gpu_memset": 0}
_CALLS = ("cuda_runtime", "cuda_driver")
_ANNOTATION = "user_annotation"
_NO_STEP = -1

Columns = dict[str, Any]


@dataclass
class Profile:
    """What a profile holds of its steps.

    Attributes
    ----------
    steps
        Columns of each step by its number; one whose annotation is missing has none.
    window
        Columns of the mark that sums up the GPU's side, ``config`` a mapping; None where the
        profile holds no GPU event.
    first_ns, last_ns
        From the first step's start to the last one's end, wall clock.
    """

    steps: dict[int, Columns] = field(default_factory=dict)
    window: Columns | None = None
    first_ns: int = 0
    last_ns: int = 0


def read_profile(events: Iterable[Any], labels: Mapping[str, int]) -> Profile:
    """Charge the events of a profile to its steps.

    Parameters
    ----------
    events
        Of ``kineto_results.events()``, or of the same shape: ``name``, ``activity_type``,
        ``start_ns``, ``duration_ns``, ``correlation_id``, ``device_resource_id``.
    labels
        Number of each step by the name of its annotation.

    Raises
    ------
    AttributeError
        When this version's events do not tell one of these.
    """
    steps: list[tuple[int, int, int, int]] = []  # start, end, thread, number
    calls: list[tuple[int, int, int, int, int]] = []  # start, ns, correlation, thread, flags
    gpu: list[tuple[int, int, int, int]] = []  # start, end, correlation, kernel
    known: dict[str, int] = {}
    for event in events:
        sort = event.activity_type()
        if sort in _GPU:
            start = event.start_ns()
            end = start + max(event.duration_ns(), 0)
            gpu.append((start, end, event.correlation_id(), _GPU[sort]))
        elif sort in _CALLS:
            name = event.name()
            flags = known.get(name)
            if flags is None:
                flags = known[name] = sum(bit for form, bit in _PATTERNS if form.match(name))
            took = max(event.duration_ns(), 0)
            thread = event.device_resource_id()
            calls.append((event.start_ns(), took, event.correlation_id(), thread, flags))
        elif sort == _ANNOTATION and (number := labels.get(event.name())) is not None:
            start = event.start_ns()
            steps.append((start, start + event.duration_ns(), event.device_resource_id(), number))
    return _charge(sorted(steps), _table(calls, 5), _table(gpu, 4))


def _charge(
    steps: Sequence[tuple[int, int, int, int]], calls: np.ndarray, gpu: np.ndarray
) -> Profile:
    call_step = np.full(len(calls), _NO_STEP, np.int64)
    for index, (start, end, thread, _) in enumerate(steps):
        inside = (calls[:, 3] == thread) & (calls[:, 0] >= start) & (calls[:, 0] < end)
        call_step[inside] = index
    linked, gpu_step, in_graph, silent = _link(calls, call_step, gpu)
    flags, took = calls[:, 4], calls[:, 1]
    kernel = gpu[:, 3] == 1
    profile = Profile()
    if steps:
        profile.first_ns, profile.last_ns = steps[0][0], max(step[1] for step in steps)
    for index, (start, end, _, number) in enumerate(steps):
        own, ran = call_step == index, gpu_step == index
        blocked = int(took[own & (flags & BLOCKING > 0)].sum())
        columns: Columns = {
            "host_ns": max(end - start - blocked, 0),
            "blocked_ns": blocked,
            "graph_launch_ns": int(took[own & (flags & GRAPH > 0)].sum()),
            "launches": int((own & (flags & LAUNCH > 0)).sum()),
            "kernels": int((ran & kernel).sum()),
            "graph_kernels": int((ran & kernel & in_graph).sum()),
        }
        if len(gpu):  # else nobody watched for replays either
            columns["replays"] = int((own & (flags & GRAPH > 0)).sum())
        if ran.any():
            columns["gpu_ns"], span = _busy(gpu[ran])
            columns["gap_ns"] = span - columns["gpu_ns"]
        profile.steps[number] = columns
    if len(gpu):
        busy, span = _busy(gpu)
        graph = flags & GRAPH > 0
        profile.window = {
            "t_ns": int(gpu[:, 0].min()),
            "dur_ns": span,
            "gpu_ns": busy,
            "gap_ns": span - busy,
            "launches": int((flags & LAUNCH > 0).sum()),
            "kernels": int(kernel.sum()),
            "graph_kernels": int((kernel & in_graph).sum()),
            "config": {
                "graph_launches": int(graph.sum()),
                "graph_launch_ns": int(took[graph].sum()),
                "graph_launches_without_events": silent,
                "kernels_outside_graphs": int((kernel & ~in_graph).sum()),
                "gpu_events": len(gpu),
                "gpu_events_in_graphs": int(in_graph.sum()),
                "graph_gpu_busy_ns": _busy(gpu[in_graph])[0],
                "unlinked_events": int((~linked).sum()),
            },
        }
    return profile


def _link(
    calls: np.ndarray, call_step: np.ndarray, gpu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return which GPU events have a call, their steps, which a graph ran, and silent replays."""
    usable = np.flatnonzero(calls[:, 2] >= 0)
    order = usable[np.argsort(calls[usable, 2], kind="stable")]
    if not len(order):
        none = np.zeros(len(gpu), bool)
        return none, np.full(len(gpu), _NO_STEP), none, 0
    ids, heads = np.unique(calls[order, 2], return_index=True)
    # A runtime call and the driver call beneath it may share an id: either may be the one we know.
    is_graph = np.logical_or.reduceat(calls[order, 4] & GRAPH > 0, heads)
    step = np.maximum.reduceat(call_step[order], heads)
    call = np.minimum(np.searchsorted(ids, gpu[:, 2]), len(ids) - 1)
    linked = ids[call] == gpu[:, 2]
    in_graph = linked & is_graph[call]
    ran = np.bincount(call[in_graph], minlength=len(ids))
    silent = int((ran[is_graph] == 0).sum())
    return linked, np.where(linked, step[call], _NO_STEP), in_graph, silent


def _busy(gpu: np.ndarray) -> tuple[int, int]:
    """Return the time that any of the GPU events covers, and the span from first to last; ns."""
    if not len(gpu):
        return 0, 0
    gpu = gpu[np.argsort(gpu[:, 0], kind="stable")]
    start, end = gpu[:, 0], gpu[:, 1]
    reached = np.maximum.accumulate(end)
    covered = np.append(start[0], reached[:-1])
    return int(np.maximum(end - np.maximum(start, covered), 0).sum()), int(reached[-1] - start[0])


def _table(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(len(rows), width)
