"""The run's configuration as the worker has resolved it, not as the command line asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdiag_collectors.vllm_reasons import mode_name
from graphdiag_collectors.vllm_state import module

ALL_PHASES = ["decode", "prefill", "mixed", "verify"]


def is_steady(config: Any) -> bool:
    """Whether a decode step adds its tokens to the context, and gives a request one token."""
    speculative = getattr(config, "speculative_config", None)
    stages = getattr(config.parallel_config, "pipeline_parallel_size", 1)
    diffusion = bool(getattr(config.model_config, "is_diffusion", False))
    return speculative is None and stages == 1 and not diffusion


def describe(
    runner: Any, hooks: Mapping[str, Any], graph_bytes: int | None = None
) -> dict[str, Any]:
    """Return the run event's configuration; what cannot be read is left out."""
    config = getattr(runner, "vllm_config", None)
    mode, sizes = _graphs(runner, config)
    found: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": getattr(module("vllm"), "__version__", None),
        "axis": "tokens",
        "mode": mode,
        "capture_sizes": sizes,
        "graphs_off": ALL_PHASES if mode == "NONE" else [],
        "speculative_tokens": _int(config, "num_speculative_tokens"),
        "max_num_seqs": _int(config, "scheduler_config.max_num_seqs"),
        "token_budget": _int(config, "scheduler_config.max_num_batched_tokens"),
        "async_scheduling": _get(config, "scheduler_config.async_scheduling"),
        "lora": _int(config, "lora_config.max_loras"),
        "tensor_parallel": _int(config, "parallel_config.tensor_parallel_size"),
        "pipeline_parallel": _int(config, "parallel_config.pipeline_parallel_size"),
        "data_parallel": _int(config, "parallel_config.data_parallel_size"),
        "model": _text(config, "model_config.model"),
        "compile_mode": mode_name(_get(config, "compilation_config.mode")),
        "config_hash": _hash(config),
        "kv_tokens": _kv_tokens(config),
        "graph_bytes": graph_bytes,
        "runner": "v2" if type(runner).__module__.startswith("vllm.v1.worker.gpu.") else "v1",
        "hooks": dict(hooks),
    }
    found.update(_device(runner))
    return {name: value for name, value in found.items() if value is not None}


def _graphs(runner: Any, config: Any) -> tuple[str | None, list[int] | None]:
    """Return the mode in force and the sizes with a key."""
    dispatcher = getattr(runner, "cudagraph_dispatcher", None)
    manager = getattr(runner, "cudagraph_manager", None)
    if dispatcher is not None and hasattr(dispatcher, "cudagraph_mode"):
        keys = [key for found in dispatcher.cudagraph_keys.values() for key in found]
        mode = dispatcher.cudagraph_mode
    elif manager is not None:
        keys = [key for found in manager._capture_descs.values() for key in found]
        mode = manager.cudagraph_mode
    else:
        mode = _get(config, "compilation_config.cudagraph_mode")
        listed = _get(config, "compilation_config.cudagraph_capture_sizes")
        sizes = sorted(map(int, listed)) if listed is not None else None
        return (None if mode is None else mode_name(mode)), sizes
    return mode_name(mode), sorted({int(key.num_tokens) for key in keys})


def _device(runner: Any) -> dict[str, Any]:
    torch = module("torch")
    if torch is None:
        return {}
    found: dict[str, Any] = {"torch": str(torch.__version__)}
    device = getattr(runner, "device", None)
    found["device"] = str(getattr(device, "type", device))
    try:
        if found["device"] == "cuda":
            found["device"] = torch.cuda.get_device_name(device)
            version = torch._C._cuda_getDriverVersion()
            found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
    except Exception as error:
        found["notes"] = [f"The device could not be named ({error})."]
    return found


def _hash(config: Any) -> str | None:
    try:
        return str(config.compute_hash())
    except Exception:  # a configuration that is not complete yet has none
        return None


def _kv_tokens(config: Any) -> int | None:
    blocks = _int(config, "cache_config.num_gpu_blocks")
    size = _int(config, "cache_config.block_size")
    return blocks * size if blocks and size else None


def _get(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def _int(owner: Any, path: str) -> int | None:
    value = _get(owner, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(owner: Any, path: str) -> str | None:
    value = _get(owner, path)
    return value if isinstance(value, str) else None
