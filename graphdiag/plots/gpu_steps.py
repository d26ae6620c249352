"""What a step costs host and GPU, where it was recorded: time busy and idle, and launches."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag import wording
from graphdiag.findings import Report, StepCosts
from graphdiag.plots import palette
from graphdiag.plots.lanes import Bar, in_rows
from graphdiag.plots.picture import Picture, Words, plain

NOT_RECORDED = (
    "GPU time, idle gaps and launches were not recorded: open a profiler window on the running "
    "engine with graphdiag profile, or read a profiler's trace."
)
NO_LAUNCHES = (
    "Launches were not counted: open a profiler window on the running engine with graphdiag "
    "profile, or read a profiler's trace."
)

Part = tuple[str, float, str]
"""Name in the legend, amount, colour."""


def gpu_times(report: Report) -> Picture | Words:
    """Return the mean ms a step of host and GPU by phase: busy, idle, launching, blocked."""
    rows = [row for phase, costs in report.step_costs.items() for row in _times(phase, costs)]
    if not rows:
        return Words(NOT_RECORDED)
    return _stacked(rows, "ms", "mean ms a step, over the steps measured")


def gpu_launches(report: Report) -> Picture | Words:
    """Return how many calls launch the work of a step, and how many kernels run, by phase."""
    rows = [row for phase, costs in report.step_costs.items() for row in _launches(phase, costs)]
    if not rows:
        return Words(NO_LAUNCHES if report.step_costs else NOT_RECORDED)
    return _stacked(rows, "", "mean number a step, over the steps measured")


def _times(phase: str, costs: StepCosts) -> Iterator[tuple[str, int, list[Part]]]:
    launching = costs.graph_launch_ms or 0.0
    host = [
        ("graph launches", launching, palette.LAUNCH),
        ("other host work", max((costs.host_ms or 0.0) - launching, 0.0), palette.HOST),
        ("blocked", costs.blocked_ms or 0.0, palette.BLOCKED),
    ]
    gpu = [
        ("GPU busy", costs.gpu_busy_ms or 0.0, palette.BUSY),
        ("GPU gap", costs.gpu_gap_ms or 0.0, palette.GAP),
    ]
    span = [("GPU span, sampled", costs.gpu_span_ms or 0.0, palette.SPAN)]
    named = plain(phase, 20)
    if costs.host_ms is not None or costs.blocked_ms is not None:
        yield f"{named}: host", costs.steps, host
    if costs.gpu_busy_ms is not None:
        yield f"{named}: GPU", costs.steps, gpu
    if costs.gpu_span_ms is not None:
        yield f"{named}: GPU", costs.steps, span


def _launches(phase: str, costs: StepCosts) -> Iterator[tuple[str, int, list[Part]]]:
    named = plain(phase, 20)
    if costs.launches is not None:
        graphs = costs.graph_launches or 0.0
        rest = max(costs.launches - graphs, 0.0)
        yield (
            f"{named}: launches",
            costs.steps,
            [("graphs", graphs, palette.LAUNCH), ("other launches", rest, palette.HOST)],
        )
    if costs.kernels is not None:
        kernels = [("kernels", costs.kernels, palette.BUSY)]
        yield f"{named}: kernels", costs.steps, kernels


def _stacked(rows: list[tuple[str, int, list[Part]]], unit: str, x: str) -> Picture:
    found, labels = [], []
    for place, (label, steps, parts) in enumerate(rows):
        running = 0.0
        for name, amount, color in parts:
            if amount:
                told = {
                    name: f"{wording.figure(amount)} {unit}".strip(),
                    "over": wording.count(steps, "step"),
                }
                found.append(Bar(place, running, running + amount, color, told, name))
                running += amount
        labels.append(f"{label}\n{wording.figure(running)} {unit}".strip())
    return in_rows(found, labels, x=x, x_range=None if found else (0.0, 1.0))
