"""Hooks on vLLM's V2 model runner, ``vllm.v1.worker.gpu.model_runner.GPUModelRunner``.

Here the dispatch is a function, ``dispatch_cg_and_sync_dp``, that the model runner and every
drafter import by name, so it is patched when its module has been imported and before theirs. It
sees the steps that are eager by force, which never reach ``CudaGraphManager.dispatch``, and holds
both dispatches of a data-parallel step. Where it is not there yet (0.19), the manager is hooked.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_chosen import Chosen, chosen_of
from graphdiag_collectors.vllm_mirror import ending, fetching, launching, noting
from graphdiag_collectors.vllm_reasons import Batch, missed_full_v2, mode_name, v2_reason
from graphdiag_collectors.vllm_rows import profiled
from graphdiag_collectors.vllm_runner import End
from graphdiag_collectors.vllm_runner import steps_of as any_steps_of
from graphdiag_collectors.vllm_state import NotRecording, State, module
from graphdiag_collectors.vllm_steps import Steps

DISPATCH = "dispatch_cg_and_sync_dp"
ASKED = ("num_tokens", "num_reqs", "uniform_token_count")
MORE = ("cudagraph_manager", "num_active_loras")
EXECUTED = ("scheduler_output", "dummy_run", "is_profile")
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
    guard = state.hooks.guard("vllm.v2.step", rows=True)
    launched = state.hooks.guard("vllm.v2.dispatch", rows=True)
    end = End(guard, lambda runner: steps_of(state, runner))
    after = _launched(state, launched, end)
    state.hooks.patch(owner, "sample_tokens", lambda f: ending(f, guard, end.failed))
    state.hooks.patch(
        owner,
        "execute_model",
        lambda f: launching(f, EXECUTED, profiled, state.notes, launched, after),
    )


def hook_output(state: State, outputs: ModuleType) -> None:
    """Patch the output objects that wait for the device."""
    guard = state.hooks.guard("vllm.v2.output", rows=True)
    for name in ("AsyncOutput", "AsyncPoolingOutput"):
        owner = getattr(outputs, name, None)
        if owner is not None:
            state.hooks.patch(owner, "get_output", lambda f: fetching(f, guard, Steps.fetched))


def steps_of(state: State, runner: Any) -> Steps:
    """Return the steps of a V2 runner, as :func:`vllm_runner.steps_of` does."""
    return any_steps_of(state, runner, _choose, _options)


def _options(runner: Any) -> dict[str, Any]:
    return {
        "stride": None,
        "v2": True,
        "encoder_decoder": bool(getattr(runner, "is_encoder_decoder", False)),
        "deferred": True,
    }


def _choose(steps: Steps, runner: Any, batch: Batch, key: Any, mode: Any) -> Chosen:
    manager = runner.cudagraph_manager
    if mode._value_:
        reason = missed_full_v2(manager, batch) if mode_name(mode) == "PIECEWISE" else None
        breakable = bool(getattr(manager, "use_breakable_cg", False))
        return chosen_of(steps.pieces, key, mode, breakable, reason)
    outcome, reason = v2_reason(manager, batch)
    return Chosen("eager", outcome, reason, None, NULL, 0, NULL)


def _launched(
    state: State, guard: Guard, end: Callable[[Any, Any, float], None]
) -> Callable[..., None]:
    notes = state.notes

    def launched(
        runner: Any,
        result: Any,
        start: float,
        now: float,
        held: Any,
        plan: Any,
        dummy: bool,
        profile: bool,
    ) -> None:
        """Keep what was asked for ``sample_tokens``, or write a step that serves no request."""
        try:
            tokens, reqs, uniform, began, chosen, answer, _, loras = notes[0]
            notes.clear()
            # The manager's own dispatch, in 0.19, returns nothing else.
            key = answer[0] if type(answer) is tuple else answer
            steps = runner.__dict__.get("_graphdiag") or steps_of(state, runner)
            steps.requested_loras = loras
            asked = (tokens, reqs, uniform, began, chosen, (key.cg_mode, key))
            kind = None
            if dummy or not steps.serving:
                kind = _kind(state, steps, plan, dummy, profile)
            if kind is not None:
                steps.synthetic(kind, runner, tokens, asked, (start, now))
            elif key.num_tokens:  # else no rank had anything to do
                runner._graphdiag_plan = plan
                runner._graphdiag_start = start
                runner._graphdiag_launched = now
                runner._graphdiag_held = held
                runner._graphdiag_asked = asked
                if result is not None:
                    end(runner, result, now)
            if guard.in_a_row:
                guard.in_a_row = 0
        except NotRecording:
            pass
        except Exception as error:
            guard.failed(error)

    return launched


def _kind(state: State, steps: Steps, plan: Any, dummy: bool, profile: bool) -> str | None:
    """Return the kind of a step that serves no request, None for one that does."""
    if dummy:
        if profile or "profile" in state.activity:
            return "profile"
        if state.activity:
            return state.activity[-1]
        return "dummy" if steps.serving else "warmup"
    return "warmup" if next(iter(plan.num_scheduled_tokens), "").startswith(WARMUPS) else None
