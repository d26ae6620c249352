"""What influences an artifact, in words that differ when the influence does."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from graphdiag.experiment.plan import EngineSize


def identify(model: Any, size: EngineSize, device: str, compiler: str | None) -> dict[str, str]:
    """Return the identity of what is made from ``model`` now, by the influences' names.

    ``compiler`` is torch.compile's backend, None where nothing is compiled.
    """
    return {
        "weights": weights_of(model),
        "engine": engine_code(),
        "compiler": compiler_of(compiler),
        "torch": str(torch.__version__),
        "device": device_name(device),
        "configuration": _digest(msgspec.json.encode(size)),
    }


def weights_of(model: Any) -> str:
    """Return a digest of every parameter."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


@cache
def engine_code() -> str:
    """Return a digest of this package's source."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return _digest(b"".join(file.read_bytes() for file in files))


@cache
def compiler_of(backend: str | None) -> str:
    """Return the compiler: torch.compile's backend, and the C++ compiler that inductor calls."""
    if backend is None:
        return "none"
    if backend != "inductor" or torch.cuda.is_available():
        return backend
    from torch._inductor.cpp_builder import get_cpp_compiler

    told = subprocess.run([get_cpp_compiler(), "--version"], capture_output=True, text=True)
    return f"{backend}, {told.stdout.splitlines()[0]}" if told.stdout else backend


def device_name(device: str) -> str:
    """Return what the device is called: a GPU's name and compute capability, or the processor's."""
    if device == "cpu":
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} sm_{major}{minor}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
