"""What must hold before an engine is started: of the plan, and of the machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphdiag.experiment.engine.errors import EngineError
from graphdiag.experiment.plan import MODES, RunPlan

_COMPILERS = ("g++", "clang++", "c++")


def check_plan(plan: RunPlan) -> int:
    """Return the blocks that the plan's cache has.

    Raises
    ------
    EngineError
        When the plan asks for what the engine cannot do.
    """
    size = plan.size
    if plan.mode not in MODES:
        raise EngineError(f"no mode is called {plan.mode}: choose from {', '.join(MODES)}.")
    if plan.device not in ("cpu", "cuda"):
        raise EngineError(f"the engine runs on cpu or cuda, not on {plan.device}.")
    smallest = min(
        *(size.layers, size.hidden, size.heads, size.words, size.max_requests, size.token_budget),
        *(size.block_tokens, size.max_context, plan.threads, plan.time_every),
        *(*plan.buckets, *plan.piecewise),
    )
    if smallest < 1:
        raise EngineError(f"sizes must be at least 1, and the plan has one of {smallest}.")
    if size.hidden % size.heads:
        raise EngineError(f"hidden ({size.hidden}) must be a multiple of heads ({size.heads}).")
    if plan.mode == "graphs" and not plan.buckets and not plan.piecewise:
        raise EngineError("mode graphs needs sizes to capture: name some buckets.")
    for number, request in enumerate(plan.requests):
        tokens = request.prompt_tokens + request.output_tokens
        if min(request.prompt_tokens, request.output_tokens) < 1 or tokens > size.max_context:
            raise EngineError(
                f"request {number} has {request.prompt_tokens} prompt and {request.output_tokens} "
                f"output tokens: both must be at least 1, and together at most max_context "
                f"({size.max_context})."
            )
    longest = blocks_of_longest(plan)
    blocks = size.max_requests * longest if size.cache_blocks is None else size.cache_blocks
    if blocks < longest:
        raise EngineError(
            f"a cache of {blocks} blocks does not hold the longest request, which needs {longest}: "
            "raise cache_blocks."
        )
    return blocks


def blocks_of_longest(plan: RunPlan) -> int:
    """Return the blocks that the plan's longest request needs: the width of the block tables.

    Attention looks through a table's whole width, so that a wider one would cost all steps.
    """
    longest = max((one.prompt_tokens + one.output_tokens for one in plan.requests), default=1)
    return -(-longest // plan.size.block_tokens)


def check_machine(plan: RunPlan) -> Any:
    """Import and return torch.

    Raises
    ------
    EngineError
        When the machine lacks torch, the device, or the compiler that the mode needs.
    """
    try:
        import torch
    except ImportError as error:
        raise EngineError(
            f'the bundled engine needs torch, which is not there ({error}): pip install "'
            'graphdiag[torch]".'
        ) from error
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "the plan asks for a GPU, and torch finds none (torch.cuda.is_available() is false): "
            "use --device cpu, or a torch that is built for this machine's GPU."
        )
    compiles = plan.mode == "compiled" or (plan.mode == "graphs" and plan.device == "cpu")
    if compiles and plan.compiler == "inductor" and not has_compiler():
        raise EngineError(
            f"mode {plan.mode} compiles with inductor, which needs a C++ compiler, and there is "
            "none: install g++ (Debian: apt-get install g++), or name one in CXX."
        )
    return torch


def has_compiler() -> bool:
    """Say whether there is a C++ compiler that inductor would find."""
    named = os.environ.get("CXX")
    return any(shutil.which(name) for name in ((named,) if named else _COMPILERS))


@contextmanager
def in_words(torch: Any, plan: RunPlan) -> Iterator[None]:
    """Turn what torch raises over a compiler or a lack of memory into a sentence.

    Raises
    ------
    EngineError
        In its place.
    """
    try:
        yield
    except torch._dynamo.exc.TorchDynamoException as error:
        raise EngineError(
            f"torch.compile with {plan.compiler} failed ({_first_line(error)}): try another "
            "compiler in the plan, or mode eager."
        ) from error
    except torch.cuda.OutOfMemoryError as error:
        raise EngineError(
            f"the GPU's memory is too small ({_first_line(error)}): a smaller model, fewer "
            "requests, or fewer cache_blocks need less."
        ) from error


def _first_line(error: BaseException) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), "no reason told"
    )
