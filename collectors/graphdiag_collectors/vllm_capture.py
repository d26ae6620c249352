"""Graph captures: size, mode, time and memory of each, and what the whole phase took.

V1 captures one descriptor a call of ``_warmup_and_capture``; before 0.19 it is the dummy run that
captures. V2 captures in one loop, told apart by the calls of the ``create_forward_fn`` it is given.
Memory is what the device had free before and after, so it is marginal: the first capture carries
the pool's baseline. What vLLM captures only to estimate memory, and throws away, is written with
kind ``profile`` and weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from types import ModuleType
from typing import Any

from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_chosen import artifact_of
from graphdiag_collectors.vllm_reasons import mode_name
from graphdiag_collectors.vllm_state import NotRecording, State, module

Function = Callable[..., Any]


def hook_runner(state: State, runners: ModuleType) -> None:
    """Patch how a runner class, V1 or V2, captures."""
    owner = runners.GPUModelRunner
    guard = state.hooks.guard("vllm.capture")
    if "_warmup_and_capture" in vars(owner):
        state.hooks.patch(owner, "_warmup_and_capture", _one(state, guard))
    elif "_capture_cudagraphs" in vars(owner):
        state.hooks.patch(owner, "_capture_cudagraphs", state.during("capture", guard))
        state.captures_in_dummy = True
    state.hooks.patch(owner, "capture_model", _phase(state, guard))
    if "profile_cudagraph_memory" in vars(owner):
        state.hooks.patch(owner, "profile_cudagraph_memory", state.during("profile", guard))


def hook_manager(state: State, managers: ModuleType) -> None:
    """Patch the V2 manager's capture loop."""
    guard = state.hooks.guard("vllm.v2.capture")
    state.hooks.patch(managers.CudaGraphManager, "capture", _loop(state, guard))


def hook_worker(state: State, workers: ModuleType) -> None:
    """Patch the worker: warm-ups, and the batches that idle data-parallel ranks run along."""
    guard = state.hooks.guard("vllm.worker")
    for name, activity in (
        ("compile_or_warm_up_model", "warmup"),
        ("execute_dummy_batch", "filler"),
    ):
        state.hooks.patch(workers.Worker, name, state.during(activity, guard))


class Capture:
    """One descriptor being captured."""

    def __init__(self) -> None:
        self.memory = _free()
        self.count = _captured()
        self.start = perf_counter()

    def write(self, state: State, key: Any, mode: Any, owner: str = "") -> int:
        """Write what was captured since; return how many graphs vLLM counted."""
        took = int((perf_counter() - self.start) * 1e9)
        after = _free()
        pieces = max(_captured() - self.count, 0)
        profile = "profile" in state.activity
        word = mode_name(mode).lower()
        if word == "piecewise" and not pieces and _is_breakable():
            word = "breakable"
        grew = None if self.memory is None or after is None else self.memory - after
        state.recorder().capture(
            artifact=None if profile else artifact_of(key, word, owner),
            size=int(key.num_tokens),
            kind="profile" if profile else "cudagraph",
            mode=word,
            dur_ns=took,
            mem_before=self.memory,
            mem_after=after,
            pool_bytes=grew,
            key=_fields(key),
            identity={"graphs": pieces or 1},
            runner="draft" if owner else "target",
            axis="tokens",
            weight=0 if profile else 1,
        )
        return pieces


def _one(state: State, guard: Guard) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def _warmup_and_capture(self: Any, desc: Any, *args: Any, **kwargs: Any) -> Any:
            if not guard.on:
                return original(self, desc, *args, **kwargs)
            capture = guard.run(Capture)
            with state.doing("capture"):
                result = original(self, desc, *args, **kwargs)

            def write() -> None:
                mode = kwargs.get("cudagraph_runtime_mode", args[0] if args else None)
                pieces = capture.write(state, desc, mode)
                steps = self.__dict__.get("_graphdiag")
                if steps is not None and pieces:
                    steps.pieces[mode_name(mode).lower()] = pieces

            if capture is not None:
                _guarded(guard, write)
            return result

        return _warmup_and_capture

    return wrap


def _phase(state: State, guard: Guard) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def capture_model(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)

            def write() -> None:
                steps = self.__dict__.get("_graphdiag")
                if steps is None or "profile" in state.activity:
                    return
                if isinstance(result, int):
                    steps.graph_bytes = result
                steps.changed()
                steps.refresh()

            _guarded(guard, write)
            return result

        return capture_model

    return wrap


def _loop(state: State, guard: Guard) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def capture(self: Any, create_forward_fn: Function, *args: Any, **kwargs: Any) -> Any:
            if not guard.on:
                return original(self, create_forward_fn, *args, **kwargs)
            owner = "" if type(self).__name__ == "ModelCudaGraphManager" else "draft/"
            current: list[tuple[Any, Capture]] = []

            def end() -> None:
                if current:
                    desc, running = current.pop()
                    running.write(state, desc, desc.cg_mode, owner)

            def begin(desc: Any) -> None:
                if not current or current[0][0] != desc:
                    end()
                    current.append((desc, Capture()))

            def noted(desc: Any, *more: Any, **named: Any) -> Any:
                _guarded(guard, lambda: begin(desc))
                return create_forward_fn(desc, *more, **named)

            with state.doing("capture"):
                result = original(self, noted, *args, **kwargs)
            _guarded(guard, end)
            return result

        return capture

    return wrap


def _guarded(guard: Guard, work: Callable[[], None]) -> None:
    try:
        if guard.on:
            work()
            guard.in_a_row = 0
    except NotRecording:
        pass
    except Exception as error:
        guard.failed(error)


def _free() -> int | None:
    """Return the device memory free now, in bytes, everything under way done; None on a CPU."""
    torch = module("torch")
    accelerator = getattr(torch, "accelerator", None)
    try:
        if accelerator is not None and accelerator.is_available():
            accelerator.synchronize()
            return int(accelerator.get_memory_info()[0])
        if torch is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
            return int(torch.cuda.mem_get_info()[0])
    except Exception:
        return None
    return None


def _captured() -> int:
    counters = module("vllm.compilation.counter")
    counter = getattr(counters, "compilation_counter", None)
    return int(getattr(counter, "num_cudagraph_captured", 0))


def _is_breakable() -> bool:
    breakable = module("vllm.compilation.breakable_cudagraph")
    return bool(breakable is not None and breakable.is_breakable_cudagraph_enabled())


def _fields(key: Any) -> dict[str, Any]:
    names: Iterable[str] = getattr(key, "_fields", None) or list(key.__dataclass_fields__)
    found = {name: getattr(key, name) for name in names}
    return {
        name: value if isinstance(value, (int, str, bool, type(None))) else mode_name(value)
        for name, value in found.items()
    }
