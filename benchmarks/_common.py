"""What the benchmarks share: one measured row, and how it is printed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns, sleep


@dataclass(frozen=True)
class Row:
    """One figure, the figure to reach, and the yardstick measured in the same run."""

    what: str
    figure: float
    unit: str
    reach: str
    yardstick: str = ""


def cpu_median(task: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds (user + system, all threads) of ``task``: the median of ``repeats`` runs."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        task()
        seconds.append(time.process_time() - start)
    return median(seconds)


def child_usage() -> tuple[float, float]:
    """CPU seconds and peak resident MB of the children waited for so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def interleaved(
    tasks: Sequence[Callable[[], object]],
    bursts: int = 60,
    burst: int = 2000,
    pause_s: float = 0.003,
) -> list[float]:
    """Median ns of a call of each task; they take turns in bursts, with a pause after each."""
    spent: list[list[int]] = [[] for _ in tasks]
    for _ in range(bursts):
        for task, times in zip(tasks, spent, strict=True):
            for _ in range(burst):
                start = perf_counter_ns()
                task()
                times.append(perf_counter_ns() - start)
            sleep(pause_s)
    return [median(times) for times in spent]
