"""What each step, and the whole window, cost on the host and on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiag.importers.kineto.attribution import Links, Step, link, steps_of_calls
from graphdiag.importers.kineto.calls import BLOCKING, CAPTURE_BEGIN, CAPTURE_END, GRAPH, LAUNCH
from graphdiag.importers.kineto.events import Calls, Events
from graphdiag.importers.kineto.intervals import Busy, busy


@dataclass(frozen=True)
class StepCosts:
    """Arrays over the steps: int64 ns and counts.

    ``largest_replay`` is the most kernels that one graph launch of the step ran; ``capture_ns`` the
    time from the first stream capture begun in the step to the end of the last, 0 without one.
    """

    launches: np.ndarray
    replays: np.ndarray
    kernels: np.ndarray
    graph_kernels: np.ndarray
    largest_replay: np.ndarray
    blocked_ns: np.ndarray
    graph_launch_ns: np.ndarray
    capture_ns: np.ndarray
    gpu: Busy


def step_costs(events: Events, steps: Sequence[Step]) -> tuple[StepCosts, Links]:
    """Charge calls and GPU events to ``steps``; return also how the GPU events hang on calls."""
    gpu, calls, count = events.gpu, events.calls, len(steps)
    call_step = steps_of_calls(calls, steps)
    links = link(gpu, calls, call_step)
    owned = links.step >= 0

    def number(bits: int) -> np.ndarray:
        chosen = (call_step >= 0) & calls.does(bits)
        return np.bincount(call_step[chosen], minlength=count)

    def host_ns(bits: int) -> np.ndarray:
        chosen = (call_step >= 0) & calls.does(bits)
        total = np.zeros(count, np.int64)
        np.add.at(total, call_step[chosen], calls.duration[chosen])
        return total

    largest = np.zeros(count, np.int64)
    replayed = links.replay_step >= 0
    np.maximum.at(largest, links.replay_step[replayed], links.replay_kernels[replayed])
    kernels = owned & gpu.kernel
    costs = StepCosts(
        launches=number(LAUNCH),
        replays=number(GRAPH),
        kernels=np.bincount(links.step[kernels], minlength=count),
        graph_kernels=np.bincount(links.step[kernels & links.in_graph], minlength=count),
        largest_replay=largest,
        blocked_ns=host_ns(BLOCKING),
        graph_launch_ns=host_ns(GRAPH),
        capture_ns=_capture_ns(calls, call_step, count),
        gpu=busy(gpu.start[owned], gpu.end[owned], links.step[owned], count),
    )
    return costs, links


def _capture_ns(calls: Calls, call_step: np.ndarray, count: int) -> np.ndarray:
    begun = np.full(count, np.iinfo(np.int64).max)
    ended = np.zeros(count, np.int64)
    begin = (call_step >= 0) & calls.does(CAPTURE_BEGIN)
    end = (call_step >= 0) & calls.does(CAPTURE_END)
    np.minimum.at(begun, call_step[begin], calls.start[begin])
    np.maximum.at(ended, call_step[end], calls.end[end])
    return np.where(ended > begun, ended - np.minimum(begun, ended), 0)


@dataclass(frozen=True)
class Window:
    """Figures of all GPU events of a trace: ns and counts.

    ``silent_replays`` are graph launches of which the trace holds no GPU event.
    """

    first_ns: int
    span_ns: int
    busy_ns: int
    graph_busy_ns: int
    gpu_events: int
    graph_events: int
    unlinked_events: int
    kernels: int
    graph_kernels: int
    launches: int
    graph_launches: int
    graph_launch_ns: int
    silent_replays: int

    def details(self) -> dict[str, Any]:
        """Return the figures that have no column of their own, for the mark's ``config``."""
        return {
            "graph_launches": self.graph_launches,
            "graph_launch_ns": self.graph_launch_ns,
            "graph_launches_without_events": self.silent_replays,
            "kernels_outside_graphs": self.kernels - self.graph_kernels,
            "gpu_events": self.gpu_events,
            "gpu_events_in_graphs": self.graph_events,
            "graph_gpu_busy_ns": self.graph_busy_ns,
            "unlinked_events": self.unlinked_events,
        }


def window(events: Events, links: Links) -> Window | None:
    """Measure the whole trace, or return None where it holds no GPU event."""
    gpu, calls = events.gpu, events.calls
    if not len(gpu):
        return None
    measured = _busy_together(gpu.start, gpu.end)
    in_graph = links.in_graph
    in_graphs = _busy_together(gpu.start[in_graph], gpu.end[in_graph])
    graph_calls = calls.does(GRAPH)
    return Window(
        first_ns=int(measured.first[0]),
        span_ns=int(measured.span[0]),
        busy_ns=int(measured.union[0]),
        graph_busy_ns=int(in_graphs.union[0]),
        gpu_events=len(gpu),
        graph_events=int(in_graphs.count[0]),
        unlinked_events=int((~links.linked).sum()),
        kernels=int(gpu.kernel.sum()),
        graph_kernels=int((gpu.kernel & in_graph).sum()),
        launches=int(calls.does(LAUNCH).sum()),
        graph_launches=int(graph_calls.sum()),
        graph_launch_ns=int(calls.duration[graph_calls].sum()),
        silent_replays=int((links.replay_events == 0).sum()),
    )


def _busy_together(start: np.ndarray, end: np.ndarray) -> Busy:
    return busy(start, end, np.zeros(len(start), np.int64), 1)
