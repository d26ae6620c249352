"""What the hooks on both model runners share: the steps of a runner, and the end of each step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_chosen import Chosen
from graphdiag_collectors.vllm_draft import write_drafts
from graphdiag_collectors.vllm_reasons import Batch
from graphdiag_collectors.vllm_runconfig import describe, is_steady
from graphdiag_collectors.vllm_state import NotRecording, State
from graphdiag_collectors.vllm_steps import Steps

Choose = Callable[[Steps, Any, Batch, Any, Any], Chosen]


def steps_of(
    state: State, runner: Any, choose: Choose, options: Callable[[Any], Mapping[str, Any]]
) -> Steps:
    """Return the steps of a runner, made at its first.

    ``choose`` and what ``options`` returns for the runner are arguments of :class:`Steps`.

    Raises
    ------
    NotRecording
        When there is no trace to record into.
    """
    steps = runner.__dict__.get("_graphdiag")
    if isinstance(steps, Steps):
        return steps
    config = runner.vllm_config
    of = weakref.ref(runner)  # an engine that is deleted must free its device memory

    def now(steps: Steps) -> dict[str, Any]:
        return describe(of(), state.hooks.describe(), steps.graph_bytes)

    steps = Steps(
        state.recorder(config),
        choose,
        now,
        state.notes,
        write_drafts,
        lora=getattr(config, "lora_config", None) is not None,
        ranks=getattr(config.parallel_config, "data_parallel_size", 1),
        steady=is_steady(config),
        **options(runner),
    )
    runner._graphdiag = steps
    runner.__dict__.setdefault("_graphdiag_asked", None)
    state.runners.add(runner)
    dispatcher = getattr(runner, "cudagraph_dispatcher", None)
    if dispatcher is not None:
        state.dispatchers[dispatcher] = steps
    state.at_exit(steps.drain)
    steps.refresh()
    steps.stale = True  # vLLM goes on resolving it until it serves
    return steps


class End:
    """The end of a step: what :func:`vllm_mirror.ending` needs, and itself the end of a step.

    The attributes of a runner have no default on its class, which would make each access slower; so
    a runner's first step ends in :meth:`failed`.
    """

    def __init__(self, guard: Guard, steps_of: Callable[[Any], Steps]) -> None:
        self.guard = guard
        self._steps_of = steps_of

    def __call__(self, runner: Any, result: Any, now: float) -> None:
        """End the step of ``runner`` with ``result``; never raises."""
        guard = self.guard
        if not guard.on:
            return
        try:
            runner._graphdiag.finish(runner, result, now)
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            self.failed(runner, result, error)

    def failed(self, runner: Any, result: Any, error: Exception) -> None:
        """End the first step of ``runner``, or count ``error``."""
        now = perf_counter()
        if "_graphdiag" in runner.__dict__:
            self.guard.failed(error)
        elif runner.__dict__.get("_graphdiag_asked") is not None:
            self.guard.run(self._first, runner, result, now)

    def _first(self, runner: Any, result: Any, now: float) -> None:
        try:
            steps = self._steps_of(runner)
        except NotRecording:
            return
        steps.finish(runner, result, now)
