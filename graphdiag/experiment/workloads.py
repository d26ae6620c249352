"""Workloads of the experiment: which requests come, and when. Seeded, and without torch.

A workload of *fixed batches* makes decode steps of known sizes: its requests come in lots, each
lot's at one engine step, all of one length, the next lot when this one has ended. Every other
workload is a list of arrivals in time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from graphdiag.errors import GraphdiagError
from graphdiag.experiment.arrivals import read_arrivals
from graphdiag.experiment.plan import MOST_REQUESTS, EngineSize, Request
from graphdiag.paths import printable
from graphdiag.wording import count, figure

PRACTICE = ((1, 1, 8), (2, 4, 17), (5, 8, 31), (9, 16, 29), (17, 32, 15))
"""The practice's batch sizes: first, last and percent; a range is spread evenly over its sizes."""
LOTS = 200
REQUESTS = 400
BLOCK = 25
LONGEST_S = 24 * 3600.0
"""Most seconds from the first arrival to the last."""
LOT_PROMPT, LOT_STEPS = 4, 12
"""Prompt tokens of a lot's requests, and the decode steps that a lot takes after its prefill."""

_PROMPT, _OUTPUT, _SPREAD = 48.0, 24.0, 0.6
"""Medians of prompt and output tokens of arriving requests, and the spread of their logarithm."""
_BURST_EVERY_S, _BURST_REQUESTS, _BURST_S, _BURST_RATE = 2.0, 48, 0.05, 20.0

FORMS = "practice, sweep, sweep:LARGEST, poisson:RATE, bursts, bursts:RATE or azure:FILE"


@dataclass(frozen=True)
class Workload:
    """Requests, in order, and a sentence that says what they are."""

    name: str
    sentence: str
    requests: tuple[Request, ...]

    @property
    def has_fixed_batches(self) -> bool:
        """Whether its batches are the same whatever a step takes."""
        return all(request.step is not None for request in self.requests)


@dataclass(frozen=True)
class Wanted:
    """How large a workload is to be.

    ``number`` is of lots, of a workload of fixed batches, or else of requests; None is its own
    default. ``speed`` divides the times between arrivals.
    """

    size: EngineSize = field(default_factory=EngineSize)
    seed: int = 0
    number: int | None = None
    speed: float = 1.0


def make_workload(told: str, wanted: Wanted | None = None) -> Workload:
    """Make the workload that ``told`` names, such as ``practice`` or ``poisson:40``.

    Raises
    ------
    GraphdiagError
        When no workload is called so, its value is none, or it would take over a day.
    SourceError
        When the file of ``azure:FILE`` cannot be read, or has a bad row.
    """
    wanted = wanted or Wanted()
    name, colon, value = told.partition(":")
    made = _KINDS.get(name)
    if made is None or (colon and not value):
        raise GraphdiagError(f"--workload {printable(told)} is none; give {FORMS}.")
    workload = made(value, wanted)
    last = workload.requests[-1].at
    if last > LONGEST_S:
        raise GraphdiagError(
            f"--workload {printable(told)}: the last of {count(len(workload.requests), 'request')} "
            f"would come after {figure(last / 3600)} hours, and {figure(LONGEST_S / 3600)} are the "
            "most; give a greater --speed, or a smaller --number."
        )
    return workload


def _practice(value: str, wanted: Wanted) -> Workload:
    if value:
        raise GraphdiagError("--workload practice: takes no value.")
    number = wanted.number or LOTS
    sizes = _spread_out(PRACTICE, number)
    largest = max(sizes)
    if largest > wanted.size.max_requests:
        raise GraphdiagError(
            f"--workload practice: has batches of {largest}, and the engine takes "
            f"{count(wanted.size.max_requests, 'request')} at most; give --max-requests {largest}."
        )
    return _in_lots("practice", "the practice's batch sizes", sizes, wanted)


def _sweep(value: str, wanted: Wanted) -> Workload:
    largest = _whole(value, "--workload sweep") if value else wanted.size.max_requests
    if largest > MOST_REQUESTS:
        raise GraphdiagError(
            f"--workload sweep:{largest}: a batch has {MOST_REQUESTS} requests at most; give a "
            "smaller largest batch."
        )
    if largest > wanted.size.max_requests:
        raise GraphdiagError(
            f"--workload sweep:{largest}: the engine takes "
            f"{count(wanted.size.max_requests, 'request')} at most; give --max-requests {largest}."
        )
    number = wanted.number or max(LOTS // largest, 1) * largest
    sizes = _spread_out(((1, largest, 1),), number)
    return _in_lots("sweep", f"every batch size from 1 to {largest} alike", sizes, wanted)


def _poisson(value: str, wanted: Wanted) -> Workload:
    rate = _rate(value, "poisson")
    seeded = random.Random(wanted.seed)
    times = _poisson_times(seeded, rate * wanted.speed, wanted.number or REQUESTS)
    told = f"Poisson arrivals, {figure(rate * wanted.speed)} requests/s"
    return _arriving("poisson", told, times, seeded, wanted.size)


def _bursts(value: str, wanted: Wanted) -> Workload:
    rate = (_rate(value, "bursts") if value else _BURST_RATE) * wanted.speed
    seeded = random.Random(wanted.seed)
    number = wanted.number or REQUESTS
    times: list[float] = []
    burst = _BURST_EVERY_S
    # A burst's requests replace as many of the steady ones at the end, so that the number holds.
    for at in _poisson_times(seeded, rate, number):
        while at >= burst and len(times) < number:
            times += [burst + seeded.uniform(0, _BURST_S) for _ in range(_BURST_REQUESTS)]
            burst += _BURST_EVERY_S
        times.append(at)
        if len(times) >= number:
            break
    told = (
        f"Poisson arrivals, {figure(rate)} requests/s, and a burst of {_BURST_REQUESTS} requests "
        f"every {figure(_BURST_EVERY_S)} s"
    )
    return _arriving("bursts", told, sorted(times)[:number], seeded, wanted.size)


def _azure(value: str, wanted: Wanted) -> Workload:
    if not value:
        raise GraphdiagError("--workload azure: names no file; give azure:FILE.")
    rows = read_arrivals(value)[: wanted.number or REQUESTS]
    longest = max(row.context + row.generated for row in rows)
    share = min(1.0, (wanted.size.max_context - 1) / longest)
    requests = tuple(
        _fitted(row.at / wanted.speed, row.context * share, row.generated * share, wanted.size)
        for row in rows
    )
    scaled = "" if share == 1 else f", their tokens divided by {figure(1 / share)} to fit"
    fast = "" if wanted.speed == 1 else f", {figure(wanted.speed)} times as fast"
    told = f"the first {count(len(rows), 'request')} of {printable(value)}{fast}{scaled}"
    return Workload("azure", told, requests)


_KINDS: dict[str, Callable[[str, Wanted], Workload]] = {
    "practice": _practice,
    "sweep": _sweep,
    "poisson": _poisson,
    "bursts": _bursts,
    "azure": _azure,
}


def _in_lots(name: str, what: str, sizes: Sequence[int], wanted: Wanted) -> Workload:
    """Return lots of ``sizes``, each with its prefill in front, in an order drawn at random.

    Every stretch of :data:`BLOCK` lots has the shares of all, so that a stretch of time does too.
    """
    blocks = max(len(sizes) // BLOCK, 1)
    seeded = random.Random(wanted.seed)
    order: list[int] = []
    for first in seeded.sample(range(blocks), blocks):
        block = sizes[first::blocks]  # sizes ascend: each block has its share of every range
        order += seeded.sample(block, len(block))
    requests: list[Request] = []
    step = 0
    for size in order:
        prompt = max(min(LOT_PROMPT, wanted.size.token_budget // size), 1)  # one step of prefill
        requests += [Request(0.0, prompt, LOT_STEPS + 1, step)] * size
        step += 1 + LOT_STEPS
    told = (
        f"{what}: {count(len(order), 'lot')} of {LOT_STEPS} decode steps, "
        f"{count(len(order) * LOT_STEPS, 'decode step')} in an order drawn at random"
    )
    return Workload(name, told, tuple(requests))


def _spread_out(ranges: Iterable[tuple[int, int, float]], number: int) -> list[int]:
    """Return ``number`` sizes in the ranges' shares, as near as whole numbers come to them."""
    weights: dict[int, float] = {}
    for first, last, share in ranges:
        for size in range(first, last + 1):
            weights[size] = share / (last - first + 1)
    total = sum(weights.values())
    found, owed = [], 0.0
    for size, weight in weights.items():
        owed += number * weight / total
        times = round(owed)
        owed -= times
        found += [size] * times
    return found


def _arriving(
    name: str, told: str, times: Sequence[float], seeded: random.Random, size: EngineSize
) -> Workload:
    first = times[0]
    requests = tuple(
        _fitted(
            at - first,
            seeded.lognormvariate(0, _SPREAD) * _PROMPT,
            seeded.lognormvariate(0, _SPREAD) * _OUTPUT,
            size,
        )
        for at in times
    )
    return Workload(name, f"{told}, {count(len(requests), 'request')}", requests)


def _fitted(at: float, prompt: float, output: float, size: EngineSize) -> Request:
    """Return a request that the engine's context holds; the prompt gives way."""
    made = min(max(round(output), 1), size.max_context - 1)
    return Request(at, min(max(round(prompt), 1), size.max_context - made), made)


def _poisson_times(seeded: random.Random, rate: float, number: int) -> list[float]:
    times, now = [], 0.0
    for _ in range(number):
        times.append(now)
        now += seeded.expovariate(rate)
    return times


def _rate(value: str, name: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not isfinite(rate) or rate <= 0:
        raise GraphdiagError(
            f"--workload {name}:{printable(value)}: is no number of requests a second; give one "
            f"above 0, as {name}:40."
        )
    return rate


def _whole(value: str, option: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise GraphdiagError(
            f"{option}:{printable(value)}: is no batch size; give a whole number of 1 or more."
        )
    return int(value)
