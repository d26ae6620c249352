"""Hooks on vLLM's V1 model runner, ``vllm.v1.worker.gpu_model_runner.GPUModelRunner``.

A step is ``execute_model``, in it one dispatch, then ``sample_tokens``, which has the result. The
CPU runner inherits all of it. Before 0.12 there is no ``sample_tokens``, and before 0.13 the
runner asks its dispatcher itself; then the dispatcher is hooked.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import Any

from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_capture import Capture
from graphdiag_collectors.vllm_chosen import Chosen, chosen_of
from graphdiag_collectors.vllm_mirror import beginning, ending, fetching, keeping
from graphdiag_collectors.vllm_reasons import Batch, missed_full, mode_name, v1_reason
from graphdiag_collectors.vllm_rows import profiled
from graphdiag_collectors.vllm_runner import End
from graphdiag_collectors.vllm_runner import steps_of as any_steps_of
from graphdiag_collectors.vllm_state import NotRecording, State, module
from graphdiag_collectors.vllm_steps import Steps

DETERMINE = "_determine_batch_execution_and_padding"
ASKED = ("num_tokens", "num_reqs", "max_num_scheduled_tokens")

Function = Callable[..., Any]


def hook_runner(state: State, runners: ModuleType) -> None:
    """Patch the runner class of a module just imported."""
    owner = runners.GPUModelRunner
    guard = state.hooks.guard("vllm.v1.step", rows=True)
    dummy = state.hooks.guard("vllm.v1.dummy")
    old = DETERMINE not in vars(owner)
    if not old:
        state.hooks.patch(owner, DETERMINE, lambda f: keeping(f, ASKED))
    end = End(guard, lambda runner: steps_of(state, runner))
    sampled = state.hooks.patch(owner, "sample_tokens", lambda f: ending(f, guard, end.failed))
    state.hooks.patch(
        owner,
        "execute_model",
        lambda f: beginning(f, "scheduler_output", profiled, end, not sampled),
    )
    if old:
        state.hooks.patch(owner, "__init__", _claiming)
    state.hooks.patch(owner, "_dummy_run", _dummy(state, dummy))
    output = getattr(runners, "AsyncGPUModelRunnerOutput", None)
    if output is not None:
        fetched = state.hooks.guard("vllm.output", rows=True)
        state.hooks.patch(output, "get_output", lambda f: fetching(f, fetched, Steps.fetched))


def hook_dispatcher(state: State, dispatchers: ModuleType) -> None:
    """Patch the dispatcher: changed keys, and the dispatch itself where the runner calls it."""
    owner = dispatchers.CudagraphDispatcher
    guard = state.hooks.guard("vllm.v1.keys")

    def wrap(original: Function) -> Function:
        def initialize_cudagraph_keys(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if guard.on:
                steps = state.dispatchers.get(self)
                if steps is not None:
                    guard.run(steps.changed)
            return result

        return initialize_cudagraph_keys

    state.hooks.patch(owner, "initialize_cudagraph_keys", wrap)
    first = list(inspect.signature(owner.dispatch).parameters)[1:2]
    if first == ["batch_descriptor"]:
        state.hooks.patch(owner, "dispatch", _old_dispatch)


def steps_of(state: State, runner: Any) -> Steps:
    """Return the steps of a V1 runner, as :func:`vllm_runner.steps_of` does."""
    return any_steps_of(state, runner, _choose, _options)


def _options(runner: Any) -> dict[str, Any]:
    model = runner.vllm_config.model_config
    return {
        "stride": getattr(runner, "uniform_decode_query_len", 1),
        "encoder_decoder": bool(getattr(model, "is_encoder_decoder", False)),
        "deferred": bool(getattr(runner, "use_async_scheduling", False)),
    }


def _choose(steps: Steps, runner: Any, batch: Batch, key: Any, mode: Any) -> Chosen:
    dispatcher = runner.cudagraph_dispatcher
    if mode._value_:
        reason = missed_full(dispatcher, batch) if mode_name(mode) == "PIECEWISE" else None
        pieces = steps.pieces or _pieces(runner)
        return chosen_of(pieces, key, mode, _breakable(), reason)
    outcome, reason = v1_reason(dispatcher, batch)
    return Chosen("eager", outcome, reason, None, NULL, 0, NULL)


def _pieces(runner: Any) -> dict[str, int]:
    """Return how many graphs a piecewise step launches, where that is certain."""
    graphs = module("vllm.compilation.cuda_graph")
    instances = getattr(getattr(graphs, "CUDAGraphWrapper", None), "_all_instances", None)
    if not instances or getattr(runner, "drafter", None) is not None:
        return {}
    count = sum(mode_name(one.runtime_mode) == "PIECEWISE" for one in list(instances))
    return {"piecewise": count} if count else {}


def _breakable() -> bool:
    breakable = module("vllm.compilation.breakable_cudagraph")
    return bool(breakable is not None and breakable.is_breakable_cudagraph_enabled())


def _dummy(state: State, guard: Guard) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        signature = inspect.signature(original)

        def _dummy_run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not guard.on:
                return original(self, *args, **kwargs)
            outer = self.__dict__.get("_graphdiag_asked")
            self._graphdiag_asked = None
            captures = state.captures_in_dummy and "capture" in state.activity
            before = guard.run(Capture) if captures else None
            start = perf_counter()
            try:
                result = original(self, *args, **kwargs)
            finally:
                asked = self.__dict__.get("_graphdiag_asked")
                self._graphdiag_asked = outer
                state.notes.clear()  # a drafter's dummies

            def write() -> None:
                end = perf_counter()
                try:
                    steps = steps_of(state, self)
                except NotRecording:
                    return
                given = signature.bind(self, *args, **kwargs)
                given.apply_defaults()
                kind = _kind(state, steps, given.arguments)
                tokens = given.arguments["num_tokens"]
                steps.synthetic(kind, self, tokens, asked, (start, end))
                if kind == "capture" and before is not None and asked is not None:
                    mode, key = asked[5][:2]
                    before.write(state, key, mode)

            guard.run(write)
            return result

        return _dummy_run

    return wrap


def _kind(state: State, steps: Steps, given: dict[str, Any]) -> str:
    """Return the kind of a dummy run, by its arguments and by what called it."""
    if given.get("is_profile") or "profile" in state.activity:
        return "profile"
    mode = given.get("cudagraph_runtime_mode")
    if "capture" in state.activity or given.get("is_graph_capturing"):
        eager = mode is not None and mode_name(mode) == "NONE"
        return "warmup" if eager else "capture"
    if state.activity:
        return state.activity[-1]
    return "dummy" if steps.serving else "warmup"


def _claiming(original: Function) -> Function:
    """Let a runner's own dispatcher know it, so that a drafter's is told apart."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        dispatcher = getattr(self, "cudagraph_dispatcher", None)
        if dispatcher is not None:
            dispatcher._graphdiag_runner = weakref.ref(self)

    return __init__


def _old_dispatch(original: Function) -> Function:
    """Return the hook on the dispatch of 0.11, whose argument the runner has padded already."""

    def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        result = original(self, *args, **kwargs)
        of = self.__dict__.get("_graphdiag_runner")
        runner = of() if of is not None else None
        if runner is not None:
            runner._graphdiag_asked = (None, None, None, began, perf_counter(), result)
        return result

    return dispatch
