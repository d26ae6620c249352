"""Which backends a mode and a device come to."""

from __future__ import annotations

from dataclasses import dataclass

from graphdiag.experiment.engine.backends.base import Backend
from graphdiag.experiment.engine.backends.compiled import Compiled
from graphdiag.experiment.engine.dispatcher import FULL, PIECEWISE
from graphdiag.experiment.engine.faults import Setup
from graphdiag.experiment.engine.state import State
from graphdiag.experiment.plan import RunPlan


@dataclass(frozen=True)
class Backends:
    """The engine's backends.

    Attributes
    ----------
    eager
        Runs anything.
    floor
        What runs a batch that no artifact is for, by mode.
    graphs
        What makes artifacts for buckets; None where the mode has none.
    """

    eager: Backend
    floor: dict[str, Backend]
    graphs: Backend | None


def choose(plan: RunPlan, setup: Setup, state: State) -> Backends:
    """Return the backends of a plan's mode on its device."""
    eager = Backend(state)
    floor = {FULL: eager, PIECEWISE: eager}
    if plan.mode == "compiled":
        compiled = Compiled(state, plan.compiler, setup.dynamic)
        floor = {FULL: compiled, PIECEWISE: compiled if setup.piecewise else eager}
    graphs = _graphs(plan, state) if plan.mode == "graphs" else None
    return Backends(eager, floor, graphs)


def _graphs(plan: RunPlan, state: State) -> Backend:
    if plan.device == "cpu":
        from graphdiag.experiment.engine.backends.static import StaticCompile

        return StaticCompile(state, plan.compiler)
    from graphdiag.experiment.engine.backends.cuda_graph import CudaGraphs

    return CudaGraphs(state)
