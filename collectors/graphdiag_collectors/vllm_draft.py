"""Steps of drafters and of vision encoders, each in a channel of its own.

A drafter asks its own dispatcher once a pass, inside the runner's ``sample_tokens``. A pass lasts
until the next begins; the last one until the step's end, sampling included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from types import ModuleType
from typing import Any

from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_chosen import artifact_of
from graphdiag_collectors.vllm_mirror import noting
from graphdiag_collectors.vllm_reasons import Batch, Verdict, mode_name, v2_reason
from graphdiag_collectors.vllm_state import NotRecording, State
from graphdiag_collectors.vllm_steps import Asked, Steps

DETERMINE = "_determine_batch_execution_and_padding"
ASKED = ("num_tokens", "num_reqs", "uniform_token_count")

Function = Callable[..., Any]


def hook_drafters(state: State, drafters: ModuleType) -> None:
    """Patch the V1 drafters that a module defines."""
    note = state.notes.append
    for owner in list(vars(drafters).values()):
        if isinstance(owner, type) and DETERMINE in vars(owner):
            state.hooks.patch(owner, DETERMINE, lambda f: noting(f, ASKED, note, ("self",)))


def write_drafts(steps: Steps, notes: Iterable[Asked], end: float) -> None:
    """Write the passes that drafters noted since the target's step."""
    passes = list(notes)
    starts = [note[3] for note in passes[1:]]
    for note, until in zip(passes, [*starts, end], strict=True):
        tokens, reqs, uniform, began, chosen, result = note[:6]
        asker = note[6] if len(note) > 6 else None
        first = result[0]
        if hasattr(first, "cg_mode"):
            mode, bucket, key = first.cg_mode, first.num_tokens, first
        else:
            mode, bucket, key = first, result[1], None
            bucket = getattr(bucket, "num_tokens", bucket)
        word = mode_name(mode).lower()
        outcome = reason = artifact = None
        if word == "none":
            word, bucket = "eager", None
            batch = Batch(tokens, reqs or 0, uniform or 0, ranks=steps.ranks)
            outcome, reason = _why(asker, batch)
        elif key is not None:
            artifact = artifact_of(key, word, "draft/")
        else:
            artifact = f"draft/{word}/{bucket}"
        steps.draft.record(
            tokens,
            bucket,
            artifact,
            word,
            outcome,
            reason,
            (began, until),
            phase="decode" if uniform == 1 else None,
            num_reqs=reqs,
            num_tokens=tokens,
            query_len=uniform,
            dispatch_ns=round((chosen - began) * 1e9),
        )


def _why(asker: Any, batch: Batch) -> Verdict:
    """Say why a drafter ran eager: ``asker`` is its manager (V2) or itself (V1)."""
    if hasattr(asker, "cudagraph_mode"):
        return v2_reason(asker, batch)
    dispatcher = getattr(asker, "cudagraph_dispatcher", None)
    if dispatcher is None:
        return "fallback", "unknown"
    if mode_name(dispatcher.cudagraph_mode) == "NONE":
        return "eager", None
    largest = dispatcher.compilation_config.max_cudagraph_capture_size
    if largest is not None and batch.tokens > largest:
        return "fallback", "over_max"
    return "fallback", "dp_sync" if batch.ranks > 1 else "mode_excluded"


def hook_encoder(state: State, encoders: ModuleType) -> None:
    """Patch the manager of vision-encoder graphs."""
    owner = encoders.EncoderCudaGraphManager
    guard = state.hooks.guard("vllm.encoder")
    state.hooks.patch(owner, "_run_budget_graph", _run_budget(state, guard))
    state.hooks.patch(owner, "_capture_budget_graph", _capture_budget(state, guard))


def _run_budget(state: State, guard: Guard) -> Callable[[Function], Function]:
    channels: list[Any] = []

    def wrap(original: Function) -> Function:
        def _run_budget_graph(self: Any, mm_kwargs: Any, token_budget: Any, *args: Any) -> Any:
            start = perf_counter()
            result = original(self, mm_kwargs, token_budget, *args)

            def write() -> None:
                end = perf_counter()
                if not channels:
                    recorder = state.recorder()
                    channels.append(recorder.channel(runner="encoder", axis="tokens"))
                specs = self._get_item_specs(mm_kwargs)
                tokens = sum(int(spec.output_tokens) for spec in specs)
                hit = result is not None
                channels[0].record(
                    tokens,
                    int(token_budget) if hit else None,
                    f"encoder/{token_budget}" if hit else None,
                    "full" if hit else "eager",
                    None if hit else "fallback",
                    None if hit else "no_key",
                    (start, end),
                    phase="prefill",
                    num_reqs=len(specs),
                    num_tokens=tokens,
                    replays=1 if hit else 0,
                )

            _unless_off(guard, write)
            return result

        return _run_budget_graph

    return wrap


def _capture_budget(state: State, guard: Guard) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def _capture_budget_graph(self: Any, token_budget: Any, *args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            result = original(self, token_budget, *args, **kwargs)

            def write() -> None:
                profile = "profile" in state.activity
                state.recorder().capture(
                    artifact=f"encoder/{token_budget}",
                    size=int(token_budget),
                    kind="profile" if profile else "encoder",
                    mode="full",
                    dur_ns=int((perf_counter() - start) * 1e9),
                    runner="encoder",
                    axis="tokens",
                    weight=0 if profile else 1,
                )

            _unless_off(guard, write)
            return result

        return _capture_budget_graph

    return wrap


def _unless_off(guard: Guard, write: Callable[[], None]) -> None:
    try:
        if guard.on:
            write()
            guard.in_a_row = 0
    except NotRecording:
        pass
    except Exception as error:
        guard.failed(error)
