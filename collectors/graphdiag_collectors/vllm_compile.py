"""Compilations and cache loads: every piece vLLM compiles, and its ahead-of-time artifacts.

A region compiled or loaded by ``CompilerManager.compile`` is one row. What Dynamo and the rest
take around the regions is a row of weight 0, so that times add up; where vLLM leaves everything to
the compiler and no region is seen, that row stands for the one artifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from types import ModuleType, TracebackType
from typing import Any

from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_capture import _guarded
from graphdiag_collectors.vllm_state import State, module

Function = Callable[..., Any]


def hook_backends(state: State, backends: ModuleType) -> None:
    """Patch the manager that compiles or loads each piece for each range."""
    guard = state.hooks.guard("vllm.compile")
    owner = backends.CompilerManager
    loaded: list[bool] = []

    def note_load(original: Function) -> Function:
        def load(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            loaded.append(result is not None)
            return result

        return load

    def wrap(original: Function) -> Function:
        def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
            loaded.clear()
            start = perf_counter()
            result = original(self, *args, **kwargs)
            hit = any(loaded)
            _guarded(guard, lambda: _region(state, self, kwargs, args, start, hit))
            return result

        return compile

    state.hooks.patch(owner, "load", note_load)
    state.hooks.patch(owner, "compile", wrap)


def hook_decorators(state: State, decorators: ModuleType) -> None:
    """Patch the whole of a model's compilation, and the load of its ahead-of-time artifact."""
    guard = state.hooks.guard("vllm.compile.model")
    inside: list[str] = []

    def wrap_monitor(original: Function) -> Function:
        def monitor_torch_compile(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
            manager = original(vllm_config, *args, **kwargs)
            if not guard.on or inside:
                return manager
            return _Timed(state, guard, manager, vllm_config)

        return monitor_torch_compile

    def wrap_load(original: Function) -> Function:
        def _try_load_aot_compiled_fn(model: Any, aot_compilation_path: Any, *args: Any) -> Any:
            start = perf_counter()
            inside.append("load")
            try:
                result = original(model, aot_compilation_path, *args)
            finally:
                inside.pop()
            if result is not None or Path(aot_compilation_path).exists():
                _guarded(
                    guard,
                    lambda: _load(state, model, aot_compilation_path, start, result is not None),
                )
            return result

        return _try_load_aot_compiled_fn

    if "_try_load_aot_compiled_fn" in vars(decorators):
        state.hooks.patch(decorators, "_try_load_aot_compiled_fn", wrap_load)
    if "monitor_torch_compile" in vars(decorators):
        state.hooks.patch(decorators, "monitor_torch_compile", wrap_monitor)
    else:
        state.hooks.missing["vllm.compilation.decorators.monitor_torch_compile"] = (
            "not there in this version: time outside the compiled regions is not recorded"
        )


class _Timed:
    """vLLM's own context manager around a compilation, timed."""

    def __init__(self, state: State, guard: Guard, manager: Any, config: Any) -> None:
        self._state = state
        self._guard = guard
        self._manager = manager
        self._config = config

    def __enter__(self) -> Any:
        self._start = perf_counter()
        self._regions = self._state.region_ns
        self._count = self._state.regions
        return self._manager.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        result = self._manager.__exit__(kind, error, traceback)
        if kind is None:
            _guarded(self._guard, self._write)
        return result

    def _write(self) -> None:
        state = self._state
        whole = int((perf_counter() - self._start) * 1e9)
        regions = state.regions - self._count
        folder = getattr(self._config.compilation_config, "local_cache_dir", None)
        state.recorder(self._config).compile(
            artifact=_artifact(folder),
            kind="dynamo" if regions else "model",
            dur_ns=max(whole - (state.region_ns - self._regions), 0),
            weight=0 if regions else 1,
            cache="none" if regions else "miss",
            identity=_identity(self._config, folder),
            runner="target",
            axis="tokens",
            t_ns=None,
        )


def _region(
    state: State,
    manager: Any,
    named: dict[str, Any],
    given: tuple[Any, ...],
    start: float,
    hit: bool,
) -> None:
    took = int((perf_counter() - start) * 1e9)
    state.regions += 1
    state.region_ns += took
    span = named.get("compile_range", named.get("runtime_shape", "any"))
    compile_range = "any" if span is None else str(span)
    index = named.get("graph_index", 0)
    folder = getattr(manager, "cache_dir", None)
    cached = "none" if getattr(manager, "disable_cache", False) else "hit" if hit else "miss"
    config = getattr(manager, "vllm_config", None)
    state.recorder().compile(
        artifact=f"compiled/{compile_range}/{index}",
        kind="region",
        dur_ns=took,
        cache=cached,
        key={
            "range": compile_range,
            "graph_index": index,
            "graphs": named.get("num_graphs"),
            "compiler": getattr(manager.compiler, "name", None),
        },
        identity=_identity(config, folder),
        runner="target",
        axis="tokens",
    )


def _load(state: State, model: Any, path: Any, start: float, hit: bool) -> None:
    folder = Path(path).parent.parent
    state.recorder(model.vllm_config).compile(
        artifact=_artifact(folder),
        kind="model" if hit else "failed load",
        dur_ns=int((perf_counter() - start) * 1e9),
        weight=1 if hit else 0,
        cache="hit" if hit else "miss",
        reason=None if hit else "the cached artifact could not be loaded",
        identity=_identity(model.vllm_config, folder),
        runner="target",
        axis="tokens",
    )


def _artifact(folder: Any) -> str:
    """Return the name of an artifact by the hash that its cache folder is named after."""
    return f"model/{Path(folder).name[:12]}" if folder else "model"


def _identity(config: Any, folder: Any) -> dict[str, Any]:
    """Return the hash vLLM looks the artifact up by and the factors that went into it."""
    found: dict[str, Any] = {}
    if folder:
        found["cache"] = "/".join(Path(folder).parts[-3:])
        factors = Path(folder) / "cache_key_factors.json"
        if factors.is_file():
            given = json.loads(factors.read_text())
            # The environment may hold what is nobody's business: its hash tells two apart as well.
            environment = json.dumps(given.pop("env", None), sort_keys=True)
            given["env_hash"] = sha256(environment.encode()).hexdigest()[:16]
            found["factors"] = given
    if config is not None:
        found["config_hash"] = config.compute_hash()
        caching = module("vllm.compilation.caching")
        hashed = getattr(caching, "aot_compile_hash_factors", None)
        if hashed is not None and "factors" not in found:
            found["factors"] = [_short(factor) for factor in hashed(config)]
    return found


def _short(factor: Any) -> str:
    """Return a factor that is a hash as it is, and the hash of any other."""
    text = str(factor)
    return text if text.isalnum() else sha256(text.encode()).hexdigest()[:16]
