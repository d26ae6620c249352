"""What one run of an engine is told and what it tells back: the contract of the experiment.

The orchestrator writes a `RunPlan` as JSON, starts a fresh process on it, and reads a `RunResult`.
What a step did is in the trace alone; the result holds what no step can tell.
"""

from __future__ import annotations

import msgspec

MODES = ("eager", "compiled", "graphs")
"""Ways to execute: as it is, by ``torch.compile`` with dynamic shapes, by an artifact a bucket."""


MOST_REQUESTS = 256
"""Largest batch that the bundled engine may be told to take."""


class Request(msgspec.Struct, frozen=True):
    """One request of a workload.

    ``at`` is when it arrives, in seconds after the first; a workload of fixed batches sets
    ``step``, the engine step from which it may run, instead (``at`` is 0 then).
    """

    at: float
    prompt_tokens: int
    output_tokens: int
    step: int | None = None


class EngineSize(msgspec.Struct, frozen=True):
    """How large the bundled engine is: its model, its batches, its cache."""

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    words: int = 512
    max_requests: int = 32
    token_budget: int = 256
    block_tokens: int = 16
    max_context: int = 512
    """Most tokens of one request, prompt and output."""
    cache_blocks: int | None = None
    """Blocks of the KV cache; by default what all requests at their longest need."""


class RunPlan(msgspec.Struct, frozen=True):
    """One run of one mode: a fresh process with an empty compile cache unless ``warm``."""

    mode: str
    trace: str
    requests: tuple[Request, ...]
    buckets: tuple[int, ...]
    size: EngineSize = EngineSize()
    device: str = "cpu"
    seed: int = 0
    faults: tuple[str, ...] = ()
    model: str | None = None
    """The model that an installed engine serves; the bundled one makes its own."""
    identity: dict[str, str] = {}
    """Goes into the run event: experiment, round, mode, workload."""
    piecewise: tuple[int, ...] = ()
    """Sizes in tokens whose graphs leave attention out, for batches with prompts in them; without
    any, those batches run eager by configuration. ``buckets`` are of batches that only decode."""
    reload_step: int | None = None
    """The bundled engine's step before which it takes new weights; None for never."""
    by_cpu_time: bool = False
    """Whether requests come by the CPU time that the bundled engine has used, and not by the wall
    clock: on a machine that runs other work too, the batches are then the same. Time in which
    nothing runs is skipped."""
    compiler: str = "inductor"
    """torch.compile's backend in the bundled engine."""
    threads: int = 1
    """Threads of an operation on a CPU, in the bundled engine."""
    time_every: int = 16
    """The device time of one step in so many is taken, on a GPU."""


class RunResult(msgspec.Struct, frozen=True):
    """What a run tells of itself; seconds since the process started, null where not measured."""

    mode: str
    ready_s: float
    """When the engine could take its first request: imports, model, compile, capture, warm-up."""
    first_step_s: float | None
    """When its first real step had ended."""
    ended_s: float
    prepare_ms: float | None
    """CPU preparation a step (scheduling, block tables, input buffers): the mean."""
    graph_bytes: int | None
    steps: int
    tokens_out: int
    tokens_digest: str
    """A digest of every token that was sampled: modes that compute the same have the same."""
    versions: dict[str, str] = {}
    not_measured: tuple[str, ...] = ()
    """A sentence for each figure that this run could not give, with the reason."""
    interrupted: bool = False
    """Whether it was told to stop before its last request was done; the trace so far is whole."""
