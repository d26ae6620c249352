"""Hooks on vLLM's V2 model runner, ``vllm.v1.worker.gpu.model_runner.GPUModelRunner``.

Here the dispatch is a function, ``dispatch_cg_and_sync_dp``, that the model runner and every
drafter import by name, so it is patched when its module has been imported and before theirs. It
sees the steps that are eager by force, which never reach ``CudaGraphManager.dispatch``, and holds
both dispatches of a data-parallel step. Where it is not there yet (0.19), the manager is hooked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_mirror import ending, noting
from graphdiag_collectors.vllm_reasons import Batch, missed_full_v2, mode_name, v2_reason
from graphdiag_collectors.vllm_runconfig import describe, is_steady
from graphdiag_collectors.vllm_state import NotRecording, State, module
from graphdiag_collectors.vllm_steps import Chosen, Steps, chosen_of
from graphdiag_collectors.vllm_v1 import ending_step, fetching

DISPATCH = "dispatch_cg_and_sync_dp"
ASKED = ("num_tokens", "num_reqs", "uniform_token_count")
MORE = ("cudagraph_manager", "num_active_loras")
WARMUPS = ("_warmup_", "_v2_mixed_warmup_")
"""How the ids of requests begin that vLLM sends itself before it serves."""

Function = Callable[..., Any]


def hook_dispatch(state: State, defining: ModuleType) -> None:
    """Patch the dispatch function in the module that defines it."""
    if DISPATCH in vars(defining):
        note = state.notes.append
        state.hooks.patch(defining, DISPATCH, lambda f: noting(f, ASKED, note, MORE))


def hook_runner(state: State, runners: ModuleType) -> None:
    """Patch the runner class, and the manager where no function stands before it."""
    owner = runners.GPUModelRunner
    if DISPATCH not in vars(module("vllm.v1.worker.gpu.dp_utils") or object):
        managers = module("vllm.v1.worker.gpu.cudagraph_utils")
        manager = getattr(managers, "CudaGraphManager", None)
        if manager is not None:
            note = state.notes.append
            more = ("self", "num_active_loras")
            state.hooks.patch(manager, "dispatch", lambda f: noting(f, ASKED, note, more))
    guard = state.hooks.guard("vllm.v2.dispatch")
    end = ending_step(state, state.hooks.guard("vllm.v2.step"), steps_of)
    state.hooks.patch(owner, "sample_tokens", lambda f: ending(f, end))
    state.hooks.patch(owner, "execute_model", _execute(state, guard, end))


def hook_output(state: State, outputs: ModuleType) -> None:
    """Patch the output objects that wait for the device."""
    guard = state.hooks.guard("vllm.v2.output")
    for name in ("AsyncOutput", "AsyncPoolingOutput"):
        owner = getattr(outputs, name, None)
        if owner is not None:
            state.hooks.patch(owner, "get_output", fetching(guard))


def steps_of(state: State, runner: Any) -> Steps:
    """Return the steps of a runner, made at its first.

    Raises
    ------
    NotRecording
        When there is no trace to record into.
    """
    steps = runner.__dict__.get("_graphdiag")
    if isinstance(steps, Steps):
        return steps
    config = runner.vllm_config
    owner: list[Steps] = []
    of = weakref.ref(runner)  # an engine that is deleted must free its device memory

    def now() -> dict[str, Any]:
        return describe(of(), state.hooks.describe(), owner[0].graph_bytes)

    def choose(runner: Any, batch: Batch, key: Any, mode: Any) -> Chosen:
        return _choose(owner[0], runner, batch, key, mode)

    recorder = state.recorder(config)
    steps = Steps(
        recorder,
        choose,
        now,
        stride=None,
        v2=True,
        lora=getattr(config, "lora_config", None) is not None,
        encoder_decoder=bool(getattr(runner, "is_encoder_decoder", False)),
        deferred=True,
        ranks=getattr(config.parallel_config, "data_parallel_size", 1),
        steady=is_steady(config),
    )
    owner.append(steps)
    runner._graphdiag = steps
    state.at_exit(steps.drain)
    steps.refresh()
    steps.stale = True  # vLLM goes on resolving it until it serves
    return steps


def _choose(steps: Steps, runner: Any, batch: Batch, key: Any, mode: Any) -> Chosen:
    manager = runner.cudagraph_manager
    if mode._value_:
        reason = missed_full_v2(manager, batch) if mode_name(mode) == "PIECEWISE" else None
        breakable = bool(getattr(manager, "use_breakable_cg", False))
        return chosen_of(steps.pieces, key, mode, breakable, reason)
    outcome, reason = v2_reason(manager, batch)
    return Chosen("eager", outcome, reason, None, NULL, 0, NULL)


def _execute(
    state: State, guard: Guard, end: Callable[[Any, Any, int], None]
) -> Callable[[Function], Function]:
    notes = state.notes

    def launched(runner: Any, plan: Any, start: int, given: dict[str, Any]) -> None:
        """Keep what was asked for ``sample_tokens``, or write a step that serves no request."""
        now = perf_counter_ns()
        tokens, reqs, uniform, began, chosen, answer, _, loras = notes[0]
        notes.clear()
        if type(answer) is not tuple:  # the manager's own dispatch, in 0.19
            answer = (answer,)
        steps = steps_of(state, runner)
        steps.requested_loras = loras
        asked = (tokens, reqs, uniform, began, chosen, answer)
        kind = _kind(state, steps, plan, given)
        if kind is not None:
            steps.synthetic(kind, runner, tokens, asked, (start, now))
        elif answer[0].num_tokens:  # else no rank had anything to do
            runner._graphdiag_begun = (plan, start, now)
            runner._graphdiag_asked = asked

    def wrap(original: Function) -> Function:
        def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            notes.clear()
            start = perf_counter_ns()
            result = original(self, scheduler_output, *args, **kwargs)
            if notes and guard.on:
                try:
                    launched(self, scheduler_output, start, kwargs)
                    if result is not None:
                        end(self, result, perf_counter_ns())
                    if guard.in_a_row:
                        guard.in_a_row = 0
                except NotRecording:
                    pass
                except Exception as error:
                    guard.failed(error)
            return result

        return execute_model

    return wrap


def _kind(state: State, steps: Steps, plan: Any, given: dict[str, Any]) -> str | None:
    """Return the kind of a step that serves no request, None for one that does."""
    if given.get("dummy_run"):
        if given.get("is_profile") or "profile" in state.activity:
            return "profile"
        if state.activity:
            return state.activity[-1]
        return "dummy" if steps.serving else "warmup"
    if steps.serving:
        return None
    return "warmup" if next(iter(plan.num_scheduled_tokens), "").startswith(WARMUPS) else None
