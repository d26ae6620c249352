"""What a step costs host and GPU, by phase, where the steps were profiled."""

from __future__ import annotations

import polars as pl

from graphdiag.findings import StepCosts
from graphdiag.metrics import is_real, is_target
from graphdiag.summary import Summary


def step_costs(summary: Summary) -> dict[str, StepCosts]:
    """Return the means by phase over the target's real steps; phases without any are left out."""
    steps = summary.groups.filter(is_real() & is_target())
    found = {}
    for (phase,), rows in steps.group_by(pl.col("phase").fill_null("unknown")):
        if any(int(rows[f"{name}_weight"].sum()) for name in ("host_ns", "gpu_ns", "gpu_span_ns")):
            found[str(phase)] = _means(rows)
    return dict(sorted(found.items()))


def _means(rows: pl.DataFrame) -> StepCosts:
    """Return the means of one phase.

    A step that carries a GPU time was profiled whole, so that its launches and waits are known; one
    that carries only a host time, or a span sampled by events, says nothing of the rest.
    """
    hosted, profiled = int(rows["host_ns_weight"].sum()), int(rows["gpu_ns_weight"].sum())
    sampled = int(rows["gpu_span_ns_weight"].sum())

    def mean(name: str, steps: int, unit: float = 1.0) -> float | None:
        return int(rows[name].sum()) / unit / steps if steps else None

    return StepCosts(
        steps=max(hosted, profiled, sampled),
        host_ms=mean("host_ns", hosted, 1e6),
        blocked_ms=mean("blocked_ns", profiled, 1e6),
        graph_launch_ms=mean("graph_launch_ns", profiled, 1e6),
        gpu_busy_ms=mean("gpu_ns", profiled, 1e6),
        gpu_gap_ms=mean("gap_ns", profiled, 1e6),
        gpu_span_ms=mean("gpu_span_ns", sampled, 1e6),
        launches=mean("launches", profiled),
        graph_launches=mean("replays", profiled),
        kernels=mean("kernels", profiled),
    )
