"""The exact optimizer beside a plain NumPy quadratic dynamic programme, and the command itself.

Both solve the same problem, taking turns, and must agree before any figure counts. The whole
frontier is asked for: the best set of every count. The quadratic programme holds no table of pairs,
so that it needs no more memory than the optimizer; at 16,384 sizes it is measured on its first
layers, whose costs are all alike, and said for all. Memory is of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from graphdiag.buckets.optimum import optimal_sets
from graphdiag.buckets.problem import Problem, serve

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row, child_usage

Floats = NDArray[np.float64]

LARGE, SMALL = (16_384, 256), (1_024, 64)
"""Sizes and buckets."""
_LAYERS = 4
"""Layers of the quadratic programme that are measured at 16,384 sizes."""
_REPEATS = 5


class _Rows:
    """A row costs one, an eager row two."""

    def replay(self, buckets: Floats) -> Floats:
        return buckets

    def eager(self, sizes: Floats) -> Floats:
        return 2.0 * sizes


def rows() -> list[Row]:
    """Measure time and memory of the optimizer, and the CPU time of the command."""
    return [_row(*SMALL, _REPEATS, "< 30 ms"), _row(*LARGE, 3, "< 1 s"), _memory(), _command()]


def main() -> None:
    """Print the rows; with ``--solve``, be the process whose memory is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solve", action="store_true", help="solve the larger problem and print")
    if parser.parse_args().solve:
        before = _peak_mib()
        _frontier(_problem(LARGE[0]), LARGE[1])
        print(json.dumps({"before": before, "peak": _peak_mib()}))
        return
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit}, to reach {row.reach}; {row.yardstick}")


def _problem(sizes: int) -> Problem:
    """Return traffic over 1 … ``sizes`` with two humps and a long tail; all must replay."""
    random = np.random.default_rng(20_240_607)
    every = np.arange(1, sizes + 1)
    place = every / sizes
    humps = np.exp(-(((place - 0.1) / 0.05) ** 2)) + 0.3 * np.exp(-(((place - 0.6) / 0.1) ** 2))
    weights = random.poisson(200 * humps + 1).astype(np.float64) + 1
    return Problem(every, weights, every, _Rows(), keep=(sizes,))


def _frontier(problem: Problem, most: int) -> Floats:
    """Return the least price of each count, from sets that were traced back and served."""
    sets = optimal_sets(problem, most)
    found = [sets.best(count) for count in range(1, most + 1)]
    return np.array([serve(problem, buckets).price for buckets in found if buckets is not None])


def _quadratic(problem: Problem, most: int) -> Floats:
    """Return the least price of each count by the textbook recurrence, every pair looked at."""
    steps = np.concatenate([[0.0], np.cumsum(problem.weights)])
    replay = problem.prices.replay(problem.candidates.astype(np.float64))
    last = np.full(len(steps), np.inf)
    last[0] = 0.0
    least = []
    for _ in range(most):
        best = np.full(len(steps), np.inf)
        best[0] = 0.0
        for end in range(1, len(steps)):
            best[end] = (last[:end] + replay[end - 1] * (steps[end] - steps[:end])).min()
        last = best
        least.append(last[-1])
    return np.array(least)


def _row(sizes: int, most: int, repeats: int, reach: str) -> Row:
    problem = _problem(sizes)
    layers = most if sizes <= SMALL[0] else _LAYERS
    ours, theirs = [], []
    for _ in range(repeats):
        found = _timed(lambda: _frontier(problem, most), ours)
        plain = _timed(lambda: _quadratic(problem, layers), theirs)
        if not np.allclose(found[:layers], plain, rtol=1e-12):
            raise SystemExit(f"the least prices differ: {found[:layers]} and {plain}")
    mine, yardstick = median(ours), median(theirs) * most / layers
    part = "" if layers == most else f", from {layers} of its {most} layers"
    scale, unit = (1e3, "ms") if reach.endswith("ms") else (1.0, "s")
    return Row(
        f"whole frontier, {sizes:,} sizes and {most} buckets, CPU time",
        mine * scale,
        unit,
        reach,
        f"quadratic in NumPy{part}: {yardstick * scale:,.3g} {unit} ({yardstick / mine:,.0f} ×)",
    )


def _timed(task: Callable[[], Floats], seconds: list[float]) -> Floats:
    begin = time.process_time()
    found = task()
    seconds.append(time.process_time() - begin)
    return found


def _memory() -> Row:
    command = [sys.executable, __file__, "--solve"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    return Row(
        f"the same, {LARGE[0]:,} sizes, peak memory of the process",
        told["peak"],
        "MiB",
        "< 190 (200 MB)",
        f"before it solves: {told['before']:.0f} MiB",
    )


def _peak_mib() -> float:
    """Return the peak of this process alone; what getrusage tells may be that of its parent."""
    told = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = re.search(r"VmHWM:\s*(\d+) kB", told)
    assert peak is not None
    return int(peak[1]) / 1024


def _command() -> Row:
    """Measure ``graphdiag buckets`` beside ``graphdiag report`` on 10⁷ steps, each its process."""
    from summary import STEPS, trace_file  # which needs more memory than is measured here

    trace = str(trace_file(STEPS))
    spent = {}
    for command in ("buckets", "report"):
        before, _ = child_usage()
        words = [sys.executable, "-m", "graphdiag", command, trace, "--json"]
        subprocess.run(words, check=True, capture_output=True)
        spent[command] = child_usage()[0] - before
    return Row(
        "graphdiag buckets on 10⁷ steps, CPU time of the process",
        spent["buckets"],
        "s",
        "< 1.5 × report",
        f"graphdiag report: {spent['report']:.2f} s",
    )


if __name__ == "__main__":
    main()
