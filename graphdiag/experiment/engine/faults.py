"""Mistakes to learn from: each makes the engine do one thing wrong that real engines get wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from graphdiag.experiment.engine.artifacts import INFLUENCES
from graphdiag.experiment.engine.errors import EngineError
from graphdiag.experiment.plan import RunPlan


class Fault(NamedTuple):
    """A mistake.

    Attributes
    ----------
    name
        As in ``RunPlan.faults``.
    mode
        The mode it shows in.
    does, wrong, report
        What it does, why that is wrong, and what the report of the trace must say.
    """

    name: str
    mode: str
    does: str
    wrong: str
    report: str


FAULTS = (
    Fault(
        "no_warmup",
        "graphs",
        "Traffic is let in before anything is captured.",
        "The first requests wait for captures, and the measurement contains them.",
        "Case compile: start-up fell among the steps; audit never_warmed.",
    ),
    Fault(
        "recompiling_shape",
        "compiled",
        "Every batch size is compiled by itself (dynamic=False).",
        "Each new size compiles while users wait; after eight Dynamo gives up and runs eager.",
        "Audit recompile_limit, an error; case shapes, or fallback where compiling was cheap.",
    ),
    Fault(
        "low_ceiling",
        "graphs",
        "No bucket above half the largest batch is captured.",
        "After a burst the eager batch is slow enough to keep itself above the ceiling.",
        "Audit ceiling and, with a burst in the workload, fallback_trap; case fallback.",
    ),
    Fault(
        "doubling_ladder",
        "graphs",
        "The buckets are the powers of two.",
        "A batch of 17 pays for 32 rows.",
        "Case padding, with the sizes that pad most.",
    ),
    Fault(
        "smallest_first",
        "graphs",
        "The smallest bucket is captured first.",
        "The pool grows with every capture instead of once.",
        "Audit capture_order.",
    ),
    Fault(
        "stale_key",
        "graphs",
        "The key leaves the weights out, and new weights come in the middle.",
        "Artifacts of the old weights are found and served; nothing crashes.",
        "Audit stale_artifact, an error, naming the weights.",
    ),
    Fault(
        "unwarmed_shape",
        "graphs",
        "Warm-up leaves the largest bucket out.",
        "The first batch of that size captures while its users wait.",
        "Audit never_warmed, an error.",
    ),
)

STALE_STEP = 150
"""The step before which new weights come where the plan of ``stale_key`` names none."""


@dataclass(frozen=True)
class Setup:
    """How the engine starts, faults included.

    Attributes
    ----------
    full, piecewise
        Sizes of each mode, ascending.
    warmed
        The full sizes that warm-up captures; None for all there are, of both modes.
    largest_first
        The order of captures.
    influences
        What the key of an artifact holds.
    dynamic
        Whether mode ``compiled`` lets shapes be dynamic.
    reload_step
        The step before which new weights come; None for never.
    """

    full: tuple[int, ...]
    piecewise: tuple[int, ...]
    warmed: frozenset[int] | None = None
    largest_first: bool = True
    influences: tuple[str, ...] = INFLUENCES
    dynamic: bool = True
    reload_step: int | None = None


def set_up(plan: RunPlan) -> Setup:
    """Return how the engine starts for a plan.

    Raises
    ------
    EngineError
        When the plan names a fault that there is not, or one that its mode cannot show.
    """
    known = {fault.name: fault for fault in FAULTS}
    full, piecewise = sorted(set(plan.buckets)), sorted(set(plan.piecewise))
    setup = Setup(tuple(full), tuple(piecewise), reload_step=plan.reload_step)
    for name in plan.faults:
        fault = known.get(name)
        if fault is None:
            raise EngineError(f"no fault is called {name}: choose from {', '.join(known)}.")
        if fault.mode == plan.mode:
            setup = _with(setup, name, plan)
    return setup


def _with(setup: Setup, name: str, plan: RunPlan) -> Setup:
    most = plan.size.max_requests
    if name == "no_warmup":
        return replace(setup, warmed=frozenset())
    if name == "recompiling_shape":
        return replace(setup, dynamic=False)
    if name == "low_ceiling":
        low = tuple(size for size in setup.full if 2 * size <= most)
        return replace(setup, full=low or (max(1, most // 2),))
    if name == "doubling_ladder":
        return replace(setup, full=tuple(2**power for power in range((most - 1).bit_length() + 1)))
    if name == "smallest_first":
        return replace(setup, largest_first=False)
    if name == "stale_key":
        left = tuple(influence for influence in INFLUENCES if influence != "weights")
        step = STALE_STEP if setup.reload_step is None else setup.reload_step
        return replace(setup, influences=left, reload_step=step)
    return replace(setup, warmed=frozenset(setup.full[:-1]))
