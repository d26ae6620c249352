"""What recording a step costs the engine's thread, and what it costs on disk.

The engine of the timed runs does nothing but record, in bursts of 5000 steps with a pause of 3 ms
between them, where a real engine waits for its device: about 700 000 steps a second, a hundred
times what an engine does. Each step is timed by two readings of the clock around it; the median of
the same two readings around nothing is subtracted.

The trace on disk is the decode loop of ``../shared/traffic/README.md``: the arrivals of Azure's
conversation service, nine times as fast. Step times get a spread of 2 % so that their digits are
as hard to compress as measured ones.
"""

from __future__ import annotations

import csv
import resource
import sys
import tempfile
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from graphdiag_collectors import Recorder

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

STEPS = 10_000_000
BURST = 5000
PAUSE_S = 0.003
STRETCHES = 10
ARRIVALS = Path(__file__).parents[2] / "shared" / "traffic" / "AzureLLMInferenceTrace_conv.csv"
LADDER = (1, 2, 4, *range(8, 129, 8), 256, 512, 1024, 2048)
START_NS = 1_700_000_000_000_000_000

Timed = Callable[[], int]


@dataclass(frozen=True)
class _Stat:
    """The yardstick: what an engine's own statistics object of a step looks like."""

    requested: int
    bucket: int
    padding: int
    mode: str


def rows() -> list[Row]:
    return [*time_rows(), *disk_rows()]


def time_rows(steps: int = STEPS) -> list[Row]:
    """Cost of a step, its tail, its drift and the memory, over ``steps`` steps."""
    nothing, yardstick = _times(_nothing, steps // 100), _times(_yardstick(), steps // 10)
    base = float(np.median(nothing))
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "trace.parquet", {"engine": "benchmark"})
        step = _step(recorder)
        _times(step, steps // 10)
        stretches, peaks = [], []
        for _ in range(STRETCHES):
            stretches.append(_times(step, steps // STRETCHES))
            peaks.append(_peak_mb())
        status = recorder.status()
        record = _times(_record(recorder), steps // 10)
        recorder.close()
    spent, first, last = np.concatenate(stretches), stretches[0], stretches[-1]
    other = f"{_us(yardstick, 50, base):.2f} us (dataclass of 4 fields appended to a list)"
    tail = f"{_us(yardstick, 99.9, base):.2f} us (the same)"
    return [
        Row("record a step: median", _us(spent, 50, base), "us", "< 0.6", other),
        Row("record a step: p99.9", _us(spent, 99.9, base), "us", "< 5", tail),
        Row("median, first tenth of the steps", _us(first, 50, base), "us", "flat"),
        Row("median, last tenth of the steps", _us(last, 50, base), "us", "flat"),
        Row("mean, first tenth of the steps", float(first.mean() - base) / 1e3, "us", "flat"),
        Row("mean, last tenth of the steps", float(last.mean() - base) / 1e3, "us", "flat"),
        Row(
            "peak resident memory after half of the steps", peaks[STRETCHES // 2 - 1], "MB", "flat"
        ),
        Row("peak resident memory after all steps", peaks[-1], "MB", "flat"),
        Row("steps dropped", status.dropped, "steps", "0", f"of {steps + steps // 10}"),
        Row("record() of 8 columns: median", _us(record, 50, base), "us", ""),
    ]


def disk_rows() -> list[Row]:
    """Bytes a step on disk of the trace driven by real arrivals."""
    if not ARRIVALS.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        recorder = Recorder(
            path, {"engine": "benchmark", "capture_sizes": list(LADDER)}, phase="decode"
        )
        steps = 0
        for columns in decode_steps():
            recorder.record(**columns)
            steps += 1
        recorder.close()
        size = sum(part.stat().st_size for part in path.glob("part-*.parquet"))
    return [
        Row("bytes a step on disk, Azure arrivals x9", size / steps, "B", "< 16", f"{steps} steps")
    ]


def decode_steps(speed: float = 9.0, most: int = 2048) -> Iterator[dict[str, object]]:
    """Columns of every step of a continuous-batching loop driven by real arrivals."""
    rng = np.random.default_rng(0)
    waiting = deque(_arrivals(speed))
    running: list[list[int]] = []  # [tokens left, tokens of context]
    now_ms = 0.0
    while waiting or running:
        if not running:
            now_ms = max(now_ms, waiting[0][0])
        prompt_tokens = 0
        while waiting and waiting[0][0] <= now_ms and len(running) < most:
            _, context, generated = waiting.popleft()
            running.append([generated, context])
            prompt_tokens += context
        requested = len(running)
        took_ms = 5 + 0.024 * requested + 0.01 * prompt_tokens
        took_ms *= float(rng.lognormal(0, 0.02))
        bucket = LADDER[bisect_left(LADDER, requested)]
        yield {
            "t_ns": START_NS + int(now_ms * 1e6),
            "dur_ns": int(took_ms * 1e6),
            "requested": requested,
            "bucket": bucket,
            "num_reqs": requested,
            "num_tokens": requested + prompt_tokens,
            "kv_tokens": sum(context for _, context in running),
            "tokens_out": requested,
            "artifact": f"decode/{bucket}",
            "mode": "full",
        }
        now_ms += took_ms
        for request in running:
            request[0] -= 1
            request[1] += 1
        running = [request for request in running if request[0] > 0]


def _arrivals(speed: float) -> Iterator[tuple[float, int, int]]:
    """Yield arrival in ms, prompt tokens and tokens to generate."""
    with ARRIVALS.open() as file:
        first = None
        for line in csv.DictReader(file):
            at = datetime.fromisoformat(line["TIMESTAMP"][:26])
            first = first or at
            ms = (at - first).total_seconds() * 1e3 / speed
            yield ms, int(line["ContextTokens"]), int(line["GeneratedTokens"])


def _times(step: Timed, steps: int) -> NDArray[np.int32]:
    """Return the ns of every step, in bursts with a pause between them."""
    spent = np.empty(steps, np.int32)
    for begin in range(0, steps, BURST):
        burst = [step() for _ in range(min(BURST, steps - begin))]
        spent[begin : begin + len(burst)] = burst
        time.sleep(PAUSE_S)
    return spent


def _nothing() -> int:
    start = perf_counter_ns()
    return perf_counter_ns() - start


def _step(recorder: Recorder) -> Timed:
    def timed() -> int:
        start = perf_counter_ns()
        with recorder.step(requested=9) as step:
            step.replayed(bucket=16, artifact="decode/16")
        return perf_counter_ns() - start

    return timed


def _record(recorder: Recorder) -> Timed:
    def timed() -> int:
        start = perf_counter_ns()
        recorder.record(
            requested=9,
            bucket=16,
            artifact="decode/16",
            mode="full",
            t_ns=START_NS,
            dur_ns=5_000_000,
            num_reqs=9,
            num_tokens=9,
        )
        return perf_counter_ns() - start

    return timed


def _yardstick() -> Timed:
    kept: list[_Stat] = []

    def timed() -> int:
        if len(kept) >= 2000:
            kept.clear()
        start = perf_counter_ns()
        kept.append(_Stat(requested=9, bucket=16, padding=7, mode="FULL"))
        return perf_counter_ns() - start

    return timed


def _us(spent: NDArray[np.int32], percentile: float, base: float) -> float:
    return float(np.percentile(spent, percentile) - base) / 1e3


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    for row in rows():
        print(f"{row.what:45} {row.figure:10.3f} {row.unit:6} {row.reach:8} {row.yardstick}")


if __name__ == "__main__":
    main()
