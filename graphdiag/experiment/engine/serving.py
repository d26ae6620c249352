"""Feeds requests to the engine as their time comes, until all are done or somebody stops it."""

from __future__ import annotations

import hashlib
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from graphdiag.experiment.engine.scheduler import Batch, Scheduler, Sequence
from graphdiag.experiment.plan import Request, RunPlan
from graphdiag_collectors import Recorder

_NAP_S = 0.02
"""Longest sleep before the next look at whether to stop."""


class Runs(Protocol):
    """What runs batches."""

    def step(self, batch: Batch) -> list[int]:
        """Run a batch; return a token for each row that samples one."""

    def reload(self) -> None:
        """Take new weights."""


class Serving:
    """The requests of a plan, on their way through an engine.

    Parameters
    ----------
    plan
        Whose requests.
    scheduler
        Makes the batches.
    recorder
        Where requests are recorded when they end.
    reload_step
        The step before which the engine takes new weights; None for never.

    Attributes
    ----------
    steps, tokens_out
        Steps run and tokens sampled so far.
    schedule_ns
        Host time spent on making batches so far.
    first_step_at
        When the first step had ended, on the clock of :func:`time.time`; None before.
    """

    def __init__(
        self, plan: RunPlan, scheduler: Scheduler, recorder: Recorder, reload_step: int | None
    ) -> None:
        self._plan, self._scheduler, self._recorder = plan, scheduler, recorder
        self._reload_step = reload_step
        order = sorted(enumerate(plan.requests), key=lambda item: (item[1].step or 0, item[1].at))
        self._coming: deque[tuple[int, Request]] = deque(order)
        self._sequences: dict[int, Sequence] = {}
        self._skipped_steps, self._skipped_s = 0, 0.0
        self._clock = time.thread_time if plan.by_cpu_time else time.time
        self.steps = self.tokens_out = self.schedule_ns = 0
        self.first_step_at: float | None = None

    def run(self, engine: Runs, stopped: Callable[[], bool]) -> None:
        """Serve until all requests are done, or ``stopped`` says so."""
        start = self._clock()
        while not stopped() and (
            self._coming or self._scheduler.running or self._scheduler.waiting
        ):
            if self.steps == self._reload_step:
                self._reload_step = None
                engine.reload()
            begun = time.perf_counter_ns()
            self._admit(start)
            batch = self._scheduler.schedule(time.time_ns())
            self.schedule_ns += time.perf_counter_ns() - begun
            if batch is None:
                self._wait(start)
                continue
            sampled = engine.step(batch)
            self.steps += 1
            self.tokens_out += len(sampled)
            self.first_step_at = self.first_step_at or time.time()
            for sequence in self._scheduler.finish(batch, sampled, time.time_ns()):
                self._record(sequence, "length")
        for sequence in (*self._scheduler.running, *self._scheduler.waiting):
            self._record(sequence, "stopped")

    def digest(self) -> str:
        """Return a digest of all tokens that were sampled, whatever the order of the steps."""
        digest = hashlib.blake2b(digest_size=16)
        for number, sequence in sorted(self._sequences.items()):
            told = sequence.tokens[sequence.prompt_tokens :]
            digest.update(repr((number, told)).encode())
        return digest.hexdigest()

    def _admit(self, start: float) -> None:
        """Hand over the requests whose time, or step, has come."""
        while self._coming:
            number, request = self._coming[0]
            if request.step is None:
                late = self._clock() - start + self._skipped_s - request.at
            else:
                late = self.steps + self._skipped_steps - request.step
            if late < 0:
                return
            by_wall = request.step is None and not self._plan.by_cpu_time
            arrived = time.time() - (late if by_wall else 0)
            self._coming.popleft()
            prompt = prompt_of(self._plan, number)
            sequence = Sequence(number, prompt, len(prompt), request.output_tokens)
            sequence.arrived_ns = int(arrived * 1e9)
            self._sequences[number] = sequence
            self._scheduler.add(sequence)

    def _wait(self, start: float) -> None:
        """Nothing runs: pass the time, or the steps, until the next request."""
        request = self._coming[0][1]
        if request.step is not None:
            self._skipped_steps = request.step - self.steps
            return
        early = request.at - (self._clock() - start + self._skipped_s)
        if self._plan.by_cpu_time:
            self._skipped_s += max(0.0, early)
        else:
            time.sleep(min(_NAP_S, max(0.0, early)))

    def _record(self, sequence: Sequence, reason: str) -> None:
        self._recorder.request(  #:
            arrival_ns=sequence.arrived_ns,  #:
            scheduled_ns=sequence.scheduled_ns or None,  #:
            first_token_ns=sequence.first_ns or None,  #:
            end_ns=sequence.ended_ns or None,  #:
            prompt_tokens=sequence.prompt_tokens,  #:
            output_tokens=len(sequence.tokens) - sequence.prompt_tokens,  #:
            reason=reason,  #:
        )  #:


def prompt_of(plan: RunPlan, number: int) -> list[int]:
    """Return the tokens of a request's prompt; they follow from the plan's seed."""
    chance = random.Random(f"{plan.seed}/{number}")
    return [chance.randrange(plan.size.words) for _ in range(plan.requests[number].prompt_tokens)]
