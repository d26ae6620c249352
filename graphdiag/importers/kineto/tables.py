"""Steps, captures and the GPU window of one trace file as rows of trace format 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from graphdiag.importers.kineto.attribution import Step
from graphdiag.importers.kineto.costs import StepCosts, Window
from graphdiag.importers.kineto.events import Annotation
from graphdiag.importers.kineto.labels import CaptureLabel, StepLabel, parse_label
from graphdiag.importers.rows import batch
from graphdiag_collectors.schema import GPU_WINDOW

_LABELLED = (
    "kind",
    "runner",
    "phase",
    "axis",
    "requested",
    "num_reqs",
    "num_tokens",
    "query_len",
    "kv_tokens",
)
"""Columns that come from the label as they are."""


_NEED_EVERY_EVENT = (
    "mode",
    "replays",
    "host_ns",
    "blocked_ns",
    "graph_launch_ns",
    "gpu_ns",
    "gap_ns",
    "launches",
    "kernels",
    "graph_kernels",
    "compile_ns",
)
"""Columns of a step that are wrong where one of its calls or GPU events is missing."""


def step_rows(
    steps: Sequence[Step],
    costs: StepCosts,
    numbers: Sequence[int],
    base_ns: int,
    common: dict[str, Any],
    *,
    lost_events: bool = False,
) -> pa.RecordBatch:
    """Return a row a step.

    Parameters
    ----------
    steps, costs
        The steps by start, and what each cost.
    numbers
        Index of each step in its process and runner.
    base_ns
        Wall-clock ns that the steps' times count from.
    common
        Values of the columns that all rows of the file share.
    lost_events
        True where any step may lack some of its events: what it cost, and that it replayed
        nothing, is then null; a replay or a capture that was seen stays one.
    """
    n = len(steps)
    labels = [step.label for step in steps]
    duration = np.array([step.duration for step in steps], np.int64)
    bucket = _buckets(labels, costs)
    outcome = _outcomes(labels, costs)
    if lost_events:
        outcome = [None if fate == "fallback" else fate for fate in outcome]
    idle = costs.gpu.count == 0
    columns: dict[str, Any] = {
        "event": ["step"] * n,
        "t_ns": np.array([step.start for step in steps], np.int64) + base_ns,
        "dur_ns": duration,
        "step": numbers,
        "weight": np.ones(n, np.int64),
        "bucket": bucket,
        "padding_ratio": [
            (size - label.requested) / label.requested if size and label.requested else None
            for size, label in zip(bucket, labels, strict=True)
        ],
        "fallback": [
            True if fate == "fallback" else False if replays else None
            for fate, replays in zip(outcome, costs.replays, strict=True)
        ],
        "mode": _modes(costs),
        "outcome": outcome,
        "reason": ["unknown" if fate == "fallback" else None for fate in outcome],
        "replays": costs.replays,
        "host_ns": np.maximum(duration - costs.blocked_ns, 0),
        "blocked_ns": costs.blocked_ns,
        "graph_launch_ns": costs.graph_launch_ns,
        "gpu_ns": np.ma.array(costs.gpu.union, mask=idle),
        "gap_ns": np.ma.array(costs.gpu.idle, mask=idle),
        "launches": costs.launches,
        "kernels": costs.kernels,
        "graph_kernels": costs.graph_kernels,
        "compile_ns": np.ma.array(costs.capture_ns, mask=costs.capture_ns == 0),
        "tokens_out": [
            label.num_reqs if (label.runner, label.phase) == ("target", "decode") else None
            for label in labels
        ],
    }
    for name in _LABELLED:
        columns[name] = [getattr(label, name) for label in labels]
    if lost_events:
        columns = {name: columns[name] for name in columns if name not in _NEED_EVERY_EVENT}
    return batch({**columns, **_repeated(common, n)}, n)


def _modes(costs: StepCosts) -> list[str | None]:
    """Return how each step ran, judged by what its graph launches ran.

    A full graph runs most of the step, be there smaller ones beside it (a drafter's, a sampler's);
    piecewise graphs share it, with attention between them.
    """
    most = (costs.replays == 1) | (2 * costs.largest_replay > np.maximum(costs.kernels, 1))
    modes = np.where(costs.replays == 0, "eager", np.where(most, "full", "piecewise")).tolist()
    return [mode if n else None for mode, n in zip(modes, costs.launches, strict=True)]


def _buckets(labels: Sequence[StepLabel], costs: StepCosts) -> list[int | None]:
    """Return the bucket each label names, which was replayed only if a graph was launched."""
    pairs = zip(labels, costs.replays, strict=True)
    return [label.bucket if replays else None for label, replays in pairs]


def _outcomes(labels: Sequence[StepLabel], costs: StepCosts) -> list[str | None]:
    """Return what became of each step, as far as the trace tells.

    A replay whose bucket is not known is neither exact nor padded, and an eager step is a fallback
    only where others of its runner and phase replay: else graphs may be off by configuration.
    """
    replaying = {
        (label.runner, label.phase)
        for label, replays in zip(labels, costs.replays, strict=True)
        if replays and label.phase is not None
    }
    outcomes: list[str | None] = []
    for index, label in enumerate(labels):
        outcome = None
        if label.kind is not None:
            pass  # no real step
        elif costs.capture_ns[index]:
            outcome = "capture"
        elif costs.replays[index]:
            if label.bucket is not None and label.requested is not None:
                outcome = "exact" if label.bucket == label.requested else "padded"
        elif costs.launches[index] and (label.runner, label.phase) in replaying:
            outcome = "fallback"
        outcomes.append(outcome)
    return outcomes


def capture_rows(
    annotations: Sequence[Annotation], base_ns: int, common: dict[str, Any]
) -> pa.RecordBatch:
    """Return a row for each annotated capture of one graph."""
    found = [(note, parse_label(note.name)) for note in annotations]
    captures = [(note, label) for note, label in found if isinstance(label, CaptureLabel)]
    n = len(captures)
    columns: dict[str, Any] = {
        "event": ["capture"] * n,
        "t_ns": [note.start + base_ns for note, _ in captures],
        "dur_ns": [note.duration for note, _ in captures],
        "kind": ["graph"] * n,
        "weight": [1] * n,
        "mode": [label.mode for _, label in captures],
        "size": [label.size for _, label in captures],
        "artifact": [f"{label.mode or 'graph'}/{label.size}" for _, label in captures],
    }
    return batch({**columns, **_repeated(common, n)}, n)


def window_row(window: Window, base_ns: int, common: dict[str, Any]) -> pa.RecordBatch:
    """Return the mark that sums up the GPU's side of the whole file."""
    columns = {
        "event": "mark",
        "kind": GPU_WINDOW,
        "t_ns": window.first_ns + base_ns,
        "dur_ns": window.span_ns,
        "gpu_ns": window.busy_ns,
        "gap_ns": window.span_ns - window.busy_ns,
        "launches": window.launches,
        "kernels": window.kernels,
        "graph_kernels": window.graph_kernels,
        "config": msgspec.json.encode(window.details()).decode(),
    }
    return batch(_repeated({**columns, **common}, 1), 1)


def run_row(start_ns: int | None, config: dict[str, Any], common: dict[str, Any]) -> pa.RecordBatch:
    """Return the run event: what the header told, and what a reader must know."""
    text = msgspec.json.encode(config).decode()
    columns = {"event": "run", "t_ns": start_ns, "config": text}
    return batch(_repeated({**columns, **common}, 1), 1)


def _repeated(values: dict[str, Any], n: int) -> dict[str, list[Any]]:
    return {name: [value] * n for name, value in values.items()}
