"""A continuous-batching engine in a few lines, on a simulated clock, recorded for real.

The dispatcher has the contract every engine's has (exact size, else the next bucket up, else
eager), its step times are formulas, and its steps go through the same Recorder an engine uses.
So the traces have known right answers, and none of their times was measured on a device.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path

import numpy as np

from graphdiag_collectors import Recorder

MS = 1_000_000
START_NS = 1_767_225_600_000_000_000  # 2026-01-01 00:00:00 UTC


@dataclass(frozen=True)
class Request:
    """One request: when it arrives (s from the start), its prompt and its output tokens."""

    arrives_s: float
    prompt: int
    output: int


@dataclass(frozen=True)
class StepTimes:
    """Step times in ms: replay of a bucket, eager at a size, prefill of a prompt."""

    replay_base: float
    replay_row: float
    eager_base: float
    eager_row: float
    prefill_base: float = 2.0
    prefill_token: float = 0.01
    host_replay: float = 0.35
    host_eager: float = 1.1

    def replay(self, bucket: int) -> float:
        """Return the time of a replay of ``bucket`` rows."""
        return self.replay_base + self.replay_row * bucket

    def eager(self, rows: int) -> float:
        """Return the time of an eager step of ``rows`` rows."""
        return self.eager_base + self.eager_row * rows


@dataclass
class Engine:
    """The engine: admits, prefills, decodes a token a step, and records every step.

    Its graphs are off where it has no ``buckets``. ``jitter`` is the standard deviation of a step's
    time, as a share of it; ``lazy_ms`` is the time to compile and to capture a bucket on its first
    use, when nothing was warmed up.
    """

    recorder: Recorder
    buckets: list[int]
    times: StepTimes
    max_running: int
    seed: int = 0
    jitter: float = 0.02
    lazy_ms: tuple[float, float] | None = None
    clock_ns: int = START_NS
    captured: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def capture_all(self, ms_each: float, pool_bytes: int, graph_bytes: int) -> None:
        """Warm up: capture every bucket, largest first; the first grows the pool."""
        for bucket in sorted(self.buckets, reverse=True):
            grown = graph_bytes + (pool_bytes if bucket == max(self.buckets) else 0)
            self._capture(bucket, ms_each, grown)

    def serve(self, requests: Iterable[Request], until_s: float, most_steps: int) -> None:
        """Serve ``requests`` until the clock reads ``until_s`` or ``most_steps`` steps ran."""
        coming = deque(requests)
        running: list[list[int]] = []  # [context tokens, output tokens left] of each request
        began = self.clock_ns
        for _ in range(most_steps):
            now_s = (self.clock_ns - began) / 1e9
            if now_s >= until_s:
                break
            admitted = []
            while (
                coming
                and coming[0].arrives_s <= now_s
                and len(running) + len(admitted) < self.max_running
            ):
                admitted.append(coming.popleft())
            if admitted:
                self._prefill(admitted)
                running += [[request.prompt, request.output] for request in admitted]
            elif not running:
                if not coming:
                    break
                self.clock_ns = began + int(coming[0].arrives_s * 1e9) + 1_000
                continue
            waiting = _arrived(coming, now_s)
            self.decode(len(running), sum(context for context, _ in running), waiting)
            for request in running:
                request[0] += 1
                request[1] -= 1
            running = [request for request in running if request[1] > 0]

    def decode(self, size: int, kv_tokens: int, waiting: int = 0) -> None:
        """Dispatch one decode step of ``size`` requests and record it."""
        slot = bisect_left(self.buckets, size)
        bucket = self.buckets[slot] if slot < len(self.buckets) else None
        if bucket is not None and self.lazy_ms is not None and bucket not in self.captured:
            self._warm_lazily(bucket)
        ms = self.times.eager(size) if bucket is None else self.times.replay(bucket)
        took = self._took(ms)
        host = self.times.host_eager if bucket is None else self.times.host_replay
        self.recorder.record(
            t_ns=self.clock_ns,
            dur_ns=took,
            requested=size,
            bucket=bucket,
            mode="eager" if bucket is None else "full",
            outcome=None if bucket else "fallback" if self.buckets else "eager",
            reason="over_max" if bucket is None and self.buckets else None,
            artifact=None if bucket is None else f"decode/{bucket}",
            replays=0 if bucket is None else 1,
            num_reqs=size,
            num_tokens=size,
            kv_tokens=kv_tokens,
            tokens_out=size,
            queued=waiting,
            host_ns=round(host * MS),
        )
        self.clock_ns += took

    def _prefill(self, admitted: list[Request]) -> None:
        tokens = sum(request.prompt for request in admitted)
        took = self._took(self.times.prefill_base + self.times.prefill_token * tokens)
        self.recorder.record(
            t_ns=self.clock_ns,
            dur_ns=took,
            phase="prefill",
            axis="tokens",
            requested=tokens,
            mode="eager",
            outcome="eager",
            num_reqs=len(admitted),
            num_tokens=tokens,
        )
        self.clock_ns += took

    def _warm_lazily(self, bucket: int) -> None:
        assert self.lazy_ms is not None
        compile_ms, capture_ms = self.lazy_ms
        took = self._took(compile_ms)
        self.recorder.compile(
            artifact=f"decode/{bucket}",
            t_ns=self.clock_ns,
            dur_ns=took,
            kind="inductor",
            cache="miss",
            key={"rows": bucket},
        )
        self.clock_ns += took
        self._capture(bucket, capture_ms, 12 << 20)

    def _capture(self, bucket: int, ms: float, pool_bytes: int) -> None:
        took = self._took(ms)
        self.recorder.capture(
            artifact=f"decode/{bucket}",
            size=bucket,
            kind="cuda_graph",
            mode="full",
            t_ns=self.clock_ns,
            dur_ns=took,
            pool_bytes=pool_bytes,
            key={"rows": bucket},
        )
        self.clock_ns += took
        self.captured.add(bucket)

    def _took(self, ms: float) -> int:
        spread = 1.0 + self.jitter * self.random.standard_normal()
        return max(1, round(ms * spread * 10)) * (MS // 10)


def _arrived(coming: deque[Request], now_s: float) -> int:
    return sum(1 for _ in takewhile(lambda request: request.arrives_s <= now_s, coming))


def azure(arrivals: Path, times_as_fast: float) -> Iterator[Request]:
    """Yield the requests of the Azure LLM inference trace (conversation, 2023), sped up."""
    with arrivals.open(newline="") as file:
        first: datetime | None = None
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            first = first or at
            seconds = (at - first).total_seconds() / times_as_fast
            yield Request(seconds, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def poisson(rate: float, seconds: float, output: int, seed: int) -> Iterator[Request]:
    """Yield requests that arrive at random, ``rate`` a second, with exponential output lengths."""
    random = np.random.default_rng(seed)
    at = 0.0
    while (at := at + random.exponential(1 / rate)) < seconds:
        yield Request(at, int(random.integers(100, 900)), 1 + int(random.exponential(output)))


PRACTICE = ((1, 1, 0.08), (2, 4, 0.17), (5, 8, 0.31), (9, 16, 0.29), (17, 32, 0.15))
"""The practice distribution: first size, last size, share; even within each range."""


def practice_sizes(steps: int, seed: int) -> list[int]:
    """Return ``steps`` batch sizes of the practice distribution, in random order."""
    random = np.random.default_rng(seed)
    shares = [share for _, _, share in PRACTICE]
    ranges = random.choice(len(PRACTICE), size=steps, p=shares)
    return [int(random.integers(PRACTICE[i][0], PRACTICE[i][1] + 1)) for i in ranges]
