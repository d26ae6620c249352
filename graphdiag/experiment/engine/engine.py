"""The engine: makes its artifacts before traffic comes, then runs batches and records each step.

Lines that are there for graphdiag are marked with ``#:``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import perf_counter_ns
from typing import Any

import torch

from graphdiag.experiment.engine import model as regions
from graphdiag.experiment.engine.artifacts import Artifact, Artifacts
from graphdiag.experiment.engine.backends.base import Backend
from graphdiag.experiment.engine.backends.choice import choose
from graphdiag.experiment.engine.checks import blocks_of_longest
from graphdiag.experiment.engine.dispatcher import FULL, PIECEWISE, Choice, Dispatcher
from graphdiag.experiment.engine.faults import Setup
from graphdiag.experiment.engine.identity import identify
from graphdiag.experiment.engine.kv_cache import Blocks
from graphdiag.experiment.engine.scheduler import Batch
from graphdiag.experiment.engine.state import State
from graphdiag.experiment.plan import RunPlan
from graphdiag_collectors import Recorder, torch_hooks  #:


class Engine:
    """Runs batches of a plan's model in its mode.

    Parameters
    ----------
    plan, setup
        What to run, and how to start.
    blocks
        The blocks of the cache.
    recorder
        Where steps and captures are recorded.

    Attributes
    ----------
    prepare_ns
        Host time spent on preparing inputs so far.
    pool_bytes
        What the artifacts' pool has grown by; None where none was made.
    """

    def __init__(self, plan: RunPlan, setup: Setup, blocks: Blocks, recorder: Recorder) -> None:
        size = plan.size
        self.plan, self.setup, self.blocks, self.recorder = plan, setup, blocks, recorder
        rows = max(size.max_requests, size.token_budget, *setup.full, *setup.piecewise)
        width = blocks_of_longest(plan)
        self.state = State(size, rows, blocks.free, width, plan.device, plan.seed)
        self.backends = choose(plan, setup, self.state)
        self.dispatcher = Dispatcher()
        self.artifacts = Artifacts(setup.influences)
        self.current: dict[tuple[str, int], Artifact] = {}
        self.floor: dict[str, Artifact] = {}
        self.pool_bytes: int | None = None
        self.prepare_ns = 0
        self._weights = 0
        self._identity = self._identify()

    @cached_property
    def keys(self) -> list[tuple[str, int]]:
        """What can be dispatched to, in the order of capture: the largest of all modes first."""
        graphs = self.backends.graphs
        if graphs is None:
            return []
        sizes = ((PIECEWISE, self.setup.piecewise), (FULL, self.setup.full))
        keys = [(mode, size) for mode, given in sizes if graphs.can_run(mode) for size in given]
        return sorted(keys, key=lambda key: key[1], reverse=self.setup.largest_first)

    @cached_property
    def graphs_off(self) -> list[str]:
        """Phases that no artifact is configured for."""
        modes = {mode for mode, _ in self.keys}
        off = [] if modes else ["decode"]
        return off if PIECEWISE in modes else [*off, "prefill", "mixed"]

    @cached_property
    def graph_mode(self) -> str:
        """The graph mode in force, in vLLM's words, or the mode of a plan without graphs."""
        modes = {mode for mode, _ in self.keys}
        names = {
            frozenset((FULL,)): "FULL_DECODE_ONLY",
            frozenset((PIECEWISE,)): "PIECEWISE",
            frozenset((FULL, PIECEWISE)): "FULL_AND_PIECEWISE",
        }
        return names.get(frozenset(modes), self.plan.mode)

    @property
    def machine(self) -> dict[str, str]:
        """What it runs on: ``device``, ``torch``, and the driver's CUDA where there is one."""
        told = {name: self._identity[name] for name in ("device", "torch")}
        return told | ({"cuda": str(torch.version.cuda)} if torch.version.cuda else {})

    def warm_up(self, stopped: Callable[[], bool]) -> None:
        """Make what traffic will need, before it comes; ``stopped`` ends it early."""
        for mode, backend in self.backends.floor.items():
            self.floor[mode] = backend.capture_one(mode, None)
        self.state.blank(self.plan.size.max_requests)
        eager = self.backends.eager.capture_one(FULL, None)
        self.backends.eager.replay(eager, self.state.filled, self.state.filled)
        # Only now is it known what can run, so only now does the dispatcher get its keys.
        self.dispatcher.initialize(
            [size for mode, size in self.keys if mode == FULL],
            [size for mode, size in self.keys if mode == PIECEWISE],
        )
        warmed = self.setup.warmed
        for mode, size in self.keys:
            if (warmed is None or size in warmed) and not stopped():
                self.state.blank(size)
                self.make(mode, size)

    def reload(self) -> None:
        """Take new weights, and have the artifacts that go with them."""
        self._weights += 1
        seed = self.plan.seed + 1_000_003 * self._weights
        self.state.model = regions.build(self.plan.size, seed, self.plan.device)
        self._identity = self._identify()
        before, self.current = self.current, {}
        for mode, size in before:
            self.state.blank(size)
            self.make(mode, size)

    def make(self, mode: str, size: int) -> Artifact:
        """Return the artifact of a key: the one in the cache, or a new one, which is recorded."""
        graphs = self.backends.graphs
        assert graphs is not None
        key = self.artifacts.key(mode, size, self._identity)
        found = self.artifacts.get(key)
        told: dict[str, Any] = {"mode": graphs.trace_mode(mode), "kind": graphs.kind}  #:
        told |= {"size": size, "key": key, "identity": self._identity}  #:
        if found is not None:
            self.current[mode, size] = found
            self.recorder.capture(artifact=found.name, cache="hit", weight=0, **told)  #:
            return found
        compiled, start = torch_hooks.compiles(), perf_counter_ns()  #:
        artifact = graphs.capture_one(mode, size, told)
        if not graphs.recorded_by_hooks:  #:
            # The hooks record compiles, so their time is no part of this event's.
            took = perf_counter_ns() - start - (torch_hooks.compiles_since(compiled)[1] or 0)  #:
            grown = artifact.pool_bytes  #:
            self.recorder.capture(artifact=artifact.name, dur_ns=took, pool_bytes=grown, **told)  #:
        self.pool_bytes = (self.pool_bytes or 0) + (artifact.pool_bytes or 0)
        self.artifacts.put(key, artifact)
        self.current[mode, size] = artifact
        return artifact

    def step(self, batch: Batch) -> list[int]:
        """Run a batch; return the token of each row that samples one."""
        with self.recorder.step(  #:
            requested=batch.tokens,  #:
            phase=batch.phase,  #:
            num_reqs=len(batch.rows),  #:
            num_tokens=batch.tokens,  #:
            kv_tokens=batch.kv_tokens,  #:
            preempted=batch.preempted,  #:
            queued=batch.queued,  #:
        ) as step:  #:
            replays, compiled = torch_hooks.replays(), torch_hooks.compiles()  #:
            start = perf_counter_ns()
            choice = self.dispatcher.dispatch(batch.tokens, batch.uniform)
            chosen = perf_counter_ns()  #:
            rows = choice.size or batch.tokens
            self.state.fill(batch, rows, self.blocks)
            prepared = perf_counter_ns()
            self.prepare_ns += prepared - start

            backend, artifact, made = self._artifact(choice, batch)
            backend.replay(artifact, rows, batch.tokens)
            tokens = self._sample(batch, artifact.result)
            launched = perf_counter_ns()  #:
            self.state.wait()
            sampled: list[int] = tokens.tolist()
            ended = perf_counter_ns()  #:

            mode = backend.trace_mode(artifact.mode)  #:
            compile_ns = torch_hooks.compiles_since(compiled)[1]  #:
            if choice.size is None and batch.phase in self.graphs_off:  #:
                step.eager(mode)  #:
            elif choice.size is None:  #:
                step.fallback(choice.reason or "unknown", mode)  #:
            elif made:  #:
                step.captured(choice.size, artifact.name, mode)  #:
            else:  #:
                step.replayed(choice.size, artifact.name, mode)  #:
            count, launch_ns = torch_hooks.replays_since(replays)  #:
            step.set(  #:
                replays=count,  #:
                graph_launch_ns=launch_ns,  #:
                compile_ns=compile_ns or None,  #:
                dispatch_ns=chosen - start,  #:
                host_ns=launched - start,  #:
                blocked_ns=ended - launched,  #:
                tokens_out=len(sampled),  #:
            )  #:
        return sampled

    def cleanup(self) -> None:
        """Let go of every artifact."""
        self.current.clear()
        self.artifacts.clear()
        if self.backends.graphs is not None:
            self.backends.graphs.cleanup()

    def _artifact(self, choice: Choice, batch: Batch) -> tuple[Backend, Artifact, bool]:
        """Return what runs a choice, and whether it had to be made first."""
        if choice.size is None or self.backends.graphs is None:
            mode = FULL if batch.uniform else PIECEWISE
            return self.backends.floor[mode], self.floor[mode], False
        found = self.current.get((choice.mode, choice.size))
        if found is not None:
            return self.backends.graphs, found, False
        return self.backends.graphs, self.make(choice.mode, choice.size), True

    def _sample(self, batch: Batch, hidden: Any) -> Any:
        """Return the tokens of the rows that sample, still on the device."""
        if batch.uniform and all(row.samples for row in batch.rows):
            return self.state.model.sample(hidden[: batch.tokens])
        at, last = 0, []
        for row in batch.rows:
            at += row.length
            if row.samples:
                last.append(at - 1)
        index = torch.tensor(last, dtype=torch.long, device=hidden.device)
        return self.state.model.sample(hidden[index])

    def _identify(self) -> dict[str, str]:
        graphs = self.backends.graphs or self.backends.floor[FULL]
        identity = identify(self.state.model, self.plan.size, self.plan.device, graphs.compiler)
        torch_hooks.identify_compiles(identity)  #:
        return identity
