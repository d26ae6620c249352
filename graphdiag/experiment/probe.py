"""Whether the engine's Python has what an experiment needs, asked before anything runs."""

from __future__ import annotations

import os
import subprocess

import msgspec

from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable

_TIMEOUT_S = 180
_SCRIPT = """
import importlib.util, json, sys
engine, compiling = sys.argv[1], sys.argv[2] == "1"
needed = ["torch", "msgspec", "pyarrow", "numpy"] + ([] if engine == "bundled" else [engine])
told = {"missing": [name for name in needed if importlib.util.find_spec(name) is None]}
if not told["missing"]:
    import torch
    told["torch"] = torch.__version__
    told["cuda"] = torch.cuda.is_available()
    if compiling:
        from torch._inductor.cpp_builder import get_cpp_compiler
        try:
            get_cpp_compiler()
            told["compiler"] = True
        except Exception:
            told["compiler"] = False
print(json.dumps(told))
"""


class _Told(msgspec.Struct, frozen=True):
    missing: list[str]
    torch: str | None = None
    cuda: bool = False
    compiler: bool = True


def check_python(python: str, engine: str, device: str | None, modes: tuple[str, ...]) -> str:
    """Check that ``python`` can run ``modes`` of ``engine``, and return the device to run on.

    Where none is asked for, the bundled engine runs on the CPU, and another where it finds itself.

    Raises
    ------
    GraphdiagError
        When it is no Python, lacks a package, has no GPU where one is asked for, or no C++ compiler
        where something is to be compiled; the sentence says what to install.
    """
    compiling = [mode for mode in modes if mode != "eager"]
    told = _ask(python, engine, compiling=bool(compiling))
    shown = printable(python)
    if told.missing:
        raise GraphdiagError(_lacking(told.missing, shown, engine))
    if device == "cuda" and not told.cuda:
        raise GraphdiagError(
            f"--device cuda: torch {told.torch} of {shown} finds no GPU; give --device cpu, or "
            "install a torch for this GPU's driver."
        )
    found = device or ("cuda" if engine != "bundled" and told.cuda else "cpu")
    if compiling and found == "cpu" and not told.compiler:
        raise GraphdiagError(
            f"--modes {','.join(compiling)}: torch.compile needs a C++ compiler, and there is none "
            "on this machine; install g++, or give --modes eager."
        )
    return found


def _lacking(missing: list[str], shown: str, engine: str) -> str:
    if engine != "bundled" and engine in missing:
        return (
            f"--engine {engine}: {shown} has no {engine}; name the Python of the engine's own "
            "environment with --python."
        )
    if "torch" in missing:
        return (
            f'the bundled engine needs torch, which {shown} lacks: pip install "graphdiag[torch]", '
            "or name a Python that has it with --python."
        )
    packages = " ".join(missing)
    return (
        f"recording needs {', '.join(missing)}, which {shown} lacks: {shown} -m pip install "
        f"{packages}."
    )


def _ask(python: str, engine: str, *, compiling: bool) -> _Told:
    command = [python, "-c", _SCRIPT, engine, str(int(compiling))]
    shown = printable(python)
    try:
        done = subprocess.run(
            command,
            # From 3.11 on: a person's files lie in the folder that we are called in.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise GraphdiagError(
            f"--python {shown}: {error.strerror or error}; name a Python that runs."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise GraphdiagError(
            f"--python {shown}: did not import torch within {_TIMEOUT_S} s; try it by hand."
        ) from error
    lines = done.stdout.splitlines()
    try:
        return msgspec.json.decode(lines[-1] if lines else "", type=_Told)
    except msgspec.DecodeError as error:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise GraphdiagError(
            f"--python {shown}: cannot be used ({words[-1][:200] if words else 'it says nothing'})."
        ) from error
