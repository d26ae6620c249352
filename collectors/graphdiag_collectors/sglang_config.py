"""The run event: what the engine resolved, read from its objects once the model is ready."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.sglang_words import DECODE_PHASES, PREFILL_PHASES, graph_mode

MET = "_graphdiag_model"
"""Attribute of a model runner that holds what the hooks need at each of its forwards."""

_TOLD = "_graphdiag_told"
_GIB = 1 << 30
OVERLAP_THREAD = "sglang.srt.managers.tp_worker_overlap_thread"
"""Where it is loaded, up to 0.5.3, another thread than the scheduler's runs the model."""
_DECODE_RUNNERS = ("decode_cuda_graph_runner", "graph_runner", "cuda_graph_runner")
_PREFILL_RUNNERS = (
    "prefill_cuda_graph_runner",
    "piecewise_cuda_graph_runner",
    "breakable_cuda_graph_runner",
)


def open_recorder(model_runner: Any) -> Recorder | None:
    """Return this process's recorder, opened with what is known before the model is ready."""
    recorder = session.current()
    if recorder is None:
        config = {"engine": "sglang", "engine_version": engine_version(), "axis": "requests"}
        recorder = session.recorder(config, rank=rank_of(model_runner))
    return recorder


def tell_run(model_runner: Any, hooks: Hooks) -> Recorder | None:
    """Record the run's configuration, once for each model and recorder; a drafter's not.

    Returns the recorder, None where nothing is to be recorded.
    """
    recorder = open_recorder(model_runner)
    if recorder is not None and getattr(model_runner, _TOLD, None) is not recorder:
        setattr(model_runner, _TOLD, recorder)
        if not getattr(model_runner, "is_draft_worker", False):
            recorder.run({**run_config(model_runner), "hooks": hooks.describe()})
    return recorder


def tell_again(model_runner: Any) -> None:
    """Let the next forward record the configuration anew, after the engine captured again."""
    for name in (_TOLD, MET):
        if getattr(model_runner, name, None) is not None:
            setattr(model_runner, name, None)


def engine_version() -> str | None:
    """Return the version of the SGLang that is loaded."""
    version = getattr(sys.modules.get("sglang"), "__version__", None)
    return version if isinstance(version, str) else None


def rank_of(model_runner: Any) -> int | None:
    """Return the global rank of this process: tensor-parallel fastest, then pipeline, then data."""
    tp, tp_size = parallel(model_runner, "tp_rank"), parallel(model_runner, "tp_size") or 1
    if tp is None:
        return None
    pp, pp_size = parallel(model_runner, "pp_rank") or 0, parallel(model_runner, "pp_size") or 1
    args = getattr(model_runner, "server_args", None)
    inside = bool(getattr(args, "enable_dp_attention", False))  # then its groups are tp ranks
    dp = 0 if inside else parallel(model_runner, "dp_rank") or 0
    return tp + tp_size * (pp + pp_size * dp)


def parallel(model_runner: Any, name: str) -> int | None:
    """Return a rank or size of this process, of the model runner or of the newer context."""
    value = getattr(model_runner, name, None)
    if not isinstance(value, int):
        context = sys.modules.get("sglang.srt.runtime_context")
        if context is not None:
            try:
                value = getattr(context.get_parallel(), name, None)
            except Exception:  # not published yet
                value = None
    return value if isinstance(value, int) else None


def decode_runner(model_runner: Any) -> Any:
    """Return the runner that holds a model's decode graphs, or None where they are off."""
    return _graph_runner(model_runner, _DECODE_RUNNERS)


def prefill_runner(model_runner: Any) -> Any:
    """Return the runner that holds a model's prefill graphs, or None where they are off."""
    return _graph_runner(model_runner, _PREFILL_RUNNERS)


def _graph_runner(model_runner: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        runner = getattr(model_runner, name, None)
        if runner is not None:
            return None if type(runner).__name__ == "EagerRunner" else runner
    return None


def run_config(model_runner: Any) -> dict[str, Any]:
    """Return the configuration of a model runner by the keys of ``schema.RUN_CONFIG``."""
    args = getattr(model_runner, "server_args", None)
    decode, prefill = decode_runner(model_runner), prefill_runner(model_runner)
    off = [*(DECODE_PHASES if decode is None else ())]
    off += PREFILL_PHASES if prefill is None else ()
    drafted = _integer(args, "speculative_num_draft_tokens")
    config: dict[str, Any] = {
        "engine": "sglang",
        "engine_version": engine_version(),
        "axis": "requests",
        "mode": "disabled" if decode is None else graph_mode(getattr(decode, "backend", decode)),
        "capture_sizes": _sizes(decode, "capture_bs"),
        "prefill_capture_sizes": _sizes(prefill, "capture_num_tokens"),
        "prefill_mode": "disabled"
        if prefill is None
        else graph_mode(getattr(prefill, "backend", prefill)),
        "graphs_off": off,
        "padding": not getattr(args, "disable_cuda_graph_padding", False),
        "max_num_seqs": _integer(model_runner, "max_running_requests")
        or _integer(args, "max_running_requests"),
        "request_pool": _integer(getattr(model_runner, "req_to_token_pool", None), "size"),
        "token_budget": _budget(args),
        "speculative_tokens": drafted - 1 if drafted else None,
        "tensor_parallel": parallel(model_runner, "tp_size"),
        "data_parallel": parallel(model_runner, "dp_size") or _integer(args, "dp_size"),
        "kv_tokens": _integer(model_runner, "max_total_num_tokens"),
        "graph_bytes": _graph_bytes(model_runner),
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
        "device": _device(model_runner),
        "model": getattr(args, "model_path", None),
        "attention_backend": getattr(args, "attention_backend", None),
    }
    if getattr(args, "enable_lora", False):
        config["lora"] = _integer(args, "max_loras_per_batch")
    notes = _notes()
    if notes:
        config["notes"] = notes
    return {name: value for name, value in config.items() if value is not None}


def identity_of(model_runner: Any, owner: Any) -> dict[str, Any]:
    """Return all that we know to influence a captured graph, for the column ``identity``."""
    args = getattr(model_runner, "server_args", None)
    found = {
        name: getattr(args, name, None)
        for name in ("model_path", "revision", "dtype", "quantization", "kv_cache_dtype")
    }
    found["backend"] = type(owner).__name__
    found["engine_version"] = engine_version()
    found["torch"] = getattr(sys.modules.get("torch"), "__version__", None)
    found["tensor_parallel"] = parallel(model_runner, "tp_size")
    found["device"] = _device(model_runner)
    found["attention_backend"] = getattr(args, "attention_backend", None)
    return {name: value for name, value in found.items() if value is not None}


def _sizes(runner: Any, name: str) -> list[int] | None:
    sizes = getattr(runner, name, None)
    if not isinstance(sizes, list | tuple):
        return None
    return sorted({int(size) for size in sizes if isinstance(size, int)}) or None


def _integer(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _budget(args: Any) -> int | None:
    """Return the most tokens of a prefill; without chunking the engine's other limit."""
    chunk = _integer(args, "chunked_prefill_size")
    return chunk if chunk and chunk > 0 else _integer(args, "max_prefill_tokens")


def _graph_bytes(model_runner: Any) -> int | None:
    """Return what the engine measured for its graphs, in bytes; on a CPU that is no figure."""
    if getattr(model_runner, "device", None) == "cpu":
        return None
    usage = getattr(model_runner, "graph_memory_usage", None)
    if isinstance(usage, Mapping):
        return round(sum(usage.values()) * _GIB)
    usage = getattr(model_runner, "graph_mem_usage", None)
    return round(usage * _GIB) if isinstance(usage, int | float) and usage else None


def _device(model_runner: Any) -> str | None:
    device = getattr(model_runner, "device", None)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if device == "cuda" and cuda is not None and cuda.is_initialized():
        return str(cuda.get_device_name())
    return str(device) if device is not None else None


def _notes() -> list[str]:
    if OVERLAP_THREAD in sys.modules:
        return [
            "This version of SGLang runs the model in a thread of its own: steps have their host "
            "time, but no time from schedule to result."
        ]
    return []
