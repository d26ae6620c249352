"""Pairs of runs in which what changed, and by how much, is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from graphdiag.steptable import CAPTURE, EAGER, FALLBACK, REPLAY, START_UP, StepTable, stalls

SLICES = 30
STEPS = 6_000
LARGEST = 64
_TRUE_STEPS = 400_000


@dataclass(frozen=True)
class Run:
    """An engine whose step times are known, in ns.

    ``load`` is the mean of the requested sizes; ``buckets`` are its graphs, none where it runs
    eager; each of a step's requests attends to about ``context`` tokens, ``token_ns`` each.
    ``recompiling`` is the share of steps that capture, ``cold`` the number of first steps
    that compile, each for ``compile_ns`` more. ``pausing`` is the share of steps that take
    ``pause`` times as long.
    """

    buckets: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64)
    load: float = 18.0
    base_ns: float = 4_000_000.0
    row_ns: float = 40_000.0
    launch_ns: float = 700_000.0
    fallback_share: float = 0.0
    recompiling: float = 0.0
    cold: int = 0
    compile_ns: float = 30_000_000.0
    jitter: float = 0.03
    token_ns: float = 0.0
    context: int = 0
    pausing: float = 0.0
    pause: float = 50.0

    def table(self, seed: int) -> StepTable:
        """The run's steps, in slices of time; the load wanders."""
        size, bucket, role, time = self._steps(seed)
        length = np.random.default_rng(seed + 7).uniform(0.5, 1.5, STEPS) * self.context
        tokens = np.round(size * length)
        return _table(size, bucket, role, time + self.token_ns * tokens, tokens)

    def start_up(self, seed: int) -> float:
        """What the first steps took beyond their bucket's replay, over all steps, ns a step.

        Start-up happens once: its cost in a run is what it was, not a mean over many starts.
        """
        size, bucket, role, time = self._steps(seed)
        cold = role == START_UP
        usual = self.replay(np.maximum(size, bucket)) if self.buckets else self.eager(size)
        return float((time - usual)[cold].sum() / STEPS)

    def _steps(self, seed):
        random = np.random.default_rng(seed)
        size = _sizes(self.load, random, STEPS)
        bucket = self._buckets(size)
        bucket[random.random(STEPS) < self.fallback_share] = 0
        role = np.where(bucket > 0, REPLAY, FALLBACK if self.buckets else EAGER)
        time = np.where(bucket > 0, self.replay(bucket), self.eager(size))
        time *= 1 + random.normal(0, self.jitter, STEPS)
        time[random.random(STEPS) < self.pausing] *= self.pause
        captured = random.random(STEPS) < self.recompiling
        captured[: self.cold] = False
        role[captured] = CAPTURE
        role[: self.cold] = START_UP
        time[captured] += self.compile_ns
        time[: self.cold] += self.compile_ns
        return size, bucket, role, time

    def replay(self, rows):
        """Step time of replay, ns."""
        return self.base_ns + self.row_ns * rows

    def eager(self, rows):
        """Step time of eager execution, ns."""
        return self.replay(rows) + self.launch_ns

    def shares(self):
        """The share of the steps of each size, 1 to LARGEST, in a run too long for chance."""
        return _true_shares(self.load)

    def costs(self):
        """Best achievable, padding and fallback of a step of each size, 1 to LARGEST, ns."""
        size = np.arange(1, LARGEST + 1)
        if not self.buckets:
            return self.eager(size), np.zeros(LARGEST), np.zeros(LARGEST)
        ideal, eager = self.replay(size), self.eager(size)
        bucket = self._buckets(size)
        served = (bucket > 0) * (1 - self.fallback_share) * (1 - self.recompiling)
        padding = served * (self.replay(bucket) - ideal)
        fell_back = (1 - (bucket > 0) * (1 - self.fallback_share)) * (1 - self.recompiling)
        return ideal, padding, fell_back * (eager - ideal)

    def _buckets(self, size):
        ladder = np.array(self.buckets, dtype=np.int64)
        return np.append(ladder, 0)[np.searchsorted(ladder, size)]


def _sizes(load, random, steps):
    wave = np.repeat(random.normal(0, 0.10, steps // 50), 50)
    return np.clip(random.poisson(load * np.exp(wave)), 1, LARGEST).astype(np.int64)


@cache
def _true_shares(load: float):
    sizes = _sizes(load, np.random.default_rng(12345), _TRUE_STEPS)
    return np.bincount(sizes, minlength=LARGEST + 1)[1:] / _TRUE_STEPS


def true_terms(base: Run, candidate: Run, seeds: tuple[int, int]) -> dict[str, float]:
    """The terms of the change by their definition, from the runs' own formulas, ns a step."""
    first, second = base.shares(), candidate.shares()
    before, after = base.costs(), candidate.costs()
    share = (first + second) / 2
    ideal, padding, fallback = (
        float((share * (b - a)).sum()) for a, b in zip(before, after, strict=True)
    )
    mean = (sum(before) + sum(after)) / 2
    other_kind = bool(base.buckets) != bool(candidate.buckets)
    return {
        "traffic_mix": float(((second - first) * mean).sum()),
        "compile": candidate.start_up(seeds[1]) - base.start_up(seeds[0]),
        "shapes": (candidate.recompiling - base.recompiling)
        * (candidate.compile_ns + float((second * _padded(candidate)).sum())),
        "fallback": fallback,
        "padding": padding,
        "launch_saving": ideal if other_kind else 0.0,
        "memory": 0.0,
        "stalls": _stalls(candidate, after, second) - _stalls(base, before, first),
        "residual": 0.0 if other_kind else ideal,
    }


def _stalls(run: Run, costs, shares) -> float:
    return run.pausing * (run.pause - 1) * float((shares * sum(costs)).sum())


def _padded(run: Run):
    """What a capturing step takes beyond exact replay and the capture itself: its padded rows."""
    size = np.arange(1, LARGEST + 1)
    return run.replay(run._buckets(size)) - run.replay(size)


def _table(size, bucket, role, time, context) -> StepTable:
    octave = np.floor(np.log2(time)).astype(np.int64)
    kinds, kind = np.unique(
        np.stack([size, bucket, role, octave], axis=1), axis=0, return_inverse=True
    )
    decode = np.zeros(len(kinds), np.int64)
    late = stalls(decode, *kinds.T, np.bincount(kind.ravel()))[kind.ravel()]
    keys, place = np.unique(
        np.stack([size, bucket, role, late], axis=1), axis=0, return_inverse=True
    )
    place = place.ravel()
    piece = np.arange(len(size)) * SLICES // len(size)
    sums = np.zeros((3, SLICES, len(keys)))
    np.add.at(sums[0], (piece, place), 1.0)
    np.add.at(sums[1], (piece, place), time)
    np.add.at(sums[2], (piece, place), context)
    none = np.zeros((SLICES, len(keys)))
    return StepTable(
        phases=("decode",),
        phase=np.zeros(len(keys), np.int64),
        requested=keys[:, 0],
        bucket=keys[:, 1],
        role=keys[:, 2],
        stalled=keys[:, 3] > 0,
        steps=sums[0],
        time=sums[1],
        compiling=none,
        tokens=sums[0] * keys[:, 0],
        context=sums[2],
        again=none,
    )
