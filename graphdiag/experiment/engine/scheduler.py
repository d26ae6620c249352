"""Continuous batching: which sequences run in the next step, and how many tokens of each.

A step has a budget of tokens. Sequences that decode take one each; what is left goes to prompts, in
chunks. Where the cache has no block for a running sequence, the one that came last makes room: it
gives its blocks back and computes its tokens again later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from graphdiag.experiment.engine.kv_cache import Blocks


@dataclass(eq=False)
class Sequence:
    """A request on its way.

    Attributes
    ----------
    number
        Its place in the plan.
    tokens
        Prompt, then what was sampled.
    prompt_tokens, output_tokens
        How many of each it has in the end.
    computed
        Tokens whose keys and values are in the cache.
    table
        Its blocks.
    arrived_ns, scheduled_ns, first_ns, ended_ns
        When it arrived, first ran, had its first token and its last; wall clock, 0 where not yet.
    """

    number: int
    tokens: list[int]
    prompt_tokens: int
    output_tokens: int
    arrived_ns: int = 0
    computed: int = 0
    table: list[int] = field(default_factory=list)
    scheduled_ns: int = 0
    first_ns: int = 0
    ended_ns: int = 0

    @property
    def missing(self) -> int:
        """Tokens that must be computed before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def is_done(self) -> bool:
        """Whether all its tokens are sampled."""
        return len(self.tokens) == self.prompt_tokens + self.output_tokens


class Row(NamedTuple):
    """A sequence's part in a step: ``length`` tokens from ``start`` on."""

    sequence: Sequence
    start: int
    length: int

    @property
    def samples(self) -> bool:
        """Whether the step ends with a new token for it."""
        return self.start + self.length == len(self.sequence.tokens)


@dataclass(frozen=True)
class Batch:
    """What one step computes; rows of one token come first, then chunks of prompts.

    Attributes
    ----------
    rows
        Not empty.
    decodes
        How many rows have one token.
    tokens
        Tokens of all rows.
    preempted
        Sequences that made room.
    queued
        Sequences that wait.
    """

    rows: tuple[Row, ...]
    decodes: int
    tokens: int
    preempted: int
    queued: int

    @property
    def uniform(self) -> bool:
        """Whether every row has one token, which is what a full graph is captured for."""
        return self.decodes == len(self.rows)

    @property
    def phase(self) -> str:
        """``decode``, ``prefill`` or ``mixed``."""
        if self.uniform:
            return "decode"
        return "mixed" if self.decodes else "prefill"

    @property
    def kv_tokens(self) -> int:
        """Tokens of context that the step attends to."""
        return sum(row.start + row.length for row in self.rows)


class Scheduler:
    """The sequences that wait and run.

    Parameters
    ----------
    blocks
        The cache's.
    max_requests, token_budget
        Most sequences, and most tokens, in a step.
    """

    def __init__(self, blocks: Blocks, max_requests: int, token_budget: int) -> None:
        self._blocks = blocks
        self._max_requests = max_requests
        self._budget = self._left = token_budget
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn."""
        self.waiting.append(sequence)

    def schedule(self, now_ns: int) -> Batch | None:
        """Return the batch of the step that begins at ``now_ns``, None where nothing can run."""
        taken: dict[int, Row] = {}
        self._left = self._budget
        preempted = self._continue(taken)
        if not preempted:
            self._admit(taken, now_ns)
        if not taken:
            return None
        rows = sorted(taken.values(), key=lambda row: row.length > 1)
        return Batch(
            rows=tuple(rows),
            decodes=sum(row.length == 1 for row in rows),
            tokens=sum(row.length for row in rows),
            preempted=preempted,
            queued=len(self.waiting),
        )

    def finish(self, batch: Batch, sampled: list[int], now_ns: int) -> list[Sequence]:
        """Give each row that samples its token; return the sequences that are done.

        ``sampled`` are the tokens of those rows, in the batch's order.
        """
        tokens, done = iter(sampled), []
        for row in batch.rows:
            sequence, samples = row.sequence, row.samples
            sequence.computed += row.length
            if not samples:
                continue
            sequence.tokens.append(next(tokens))
            sequence.first_ns = sequence.first_ns or now_ns
            if sequence.is_done:
                sequence.ended_ns = now_ns
                self._blocks.release(sequence.table)
                self.running.remove(sequence)
                done.append(sequence)
        return done

    def _continue(self, taken: dict[int, Row]) -> int:
        """Take the running sequences, those that decode first; return how many made room."""
        preempted = 0
        for sequence in sorted(self.running, key=lambda one: one.missing > 1):
            count = min(sequence.missing, self._left)
            if count and sequence in self.running:
                preempted += self._take(sequence, count, taken)
        return preempted

    def _take(self, sequence: Sequence, count: int, taken: dict[int, Row]) -> int:
        """Take a running sequence if there is room, or can be made; return who made it."""
        preempted = 0
        while not self._blocks.grow(sequence.table, sequence.computed + count):
            free = (one for one in reversed(self.running) if one.number not in taken)
            victim = next((one for one in free if one is not sequence), None)
            if victim is None:
                return preempted  # it waits for a step, with what it has
            self._preempt(victim)
            preempted += 1
        self._left -= count
        taken[sequence.number] = Row(sequence, sequence.computed, count)
        return preempted

    def _preempt(self, sequence: Sequence) -> None:
        self._blocks.release(sequence.table)
        sequence.computed = 0
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)

    def _admit(self, taken: dict[int, Row], now_ns: int) -> None:
        """Take waiting sequences while requests, tokens and blocks allow."""
        while self.waiting and len(self.running) < self._max_requests:
            sequence = self.waiting[0]
            count = min(sequence.missing, self._left)
            if not count or not self._blocks.grow(sequence.table, count):
                return
            self.waiting.popleft()
            self.running.append(sequence)
            sequence.scheduled_ns = sequence.scheduled_ns or now_ns
            self._left -= count
            taken[sequence.number] = Row(sequence, 0, count)
