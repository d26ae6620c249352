"""Make the sample traces: ``python sample_traces/make.py --arrivals CSV [--out FOLDER]``.

CSV is the conversation trace of the Azure Public Dataset's LLM inference traces of 2023
(``AzureLLMInferenceTrace_conv.csv``, CC-BY 4.0), which two of the traces take their arrivals from.
Everything else is seeded: the same CSV gives the same steps.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphdiag_collectors import Recorder
from graphdiag_collectors.pack import pack
from simulate import Engine, Request, StepTimes, azure, poisson, practice_sizes

MIB = 1 << 20
_NO_DEVICE = "Step times are formulas on a simulated clock; no device was measured."
_LLM = StepTimes(replay_base=5.0, replay_row=0.024, eager_base=5.9, eager_row=0.024)
_LADDER_8 = [1, 2, 4, *range(8, 513, 8)]
_LADDER_DOUBLING = [1, 2, 4, *range(8, 129, 8), 256, 512, 1024, 2048]


def healthy(recorder: Recorder, arrivals: Path) -> None:
    """Azure arrivals three times as fast, a dense ladder, warmed up."""
    engine = Engine(recorder, _LADDER_8, _LLM, max_running=512)
    engine.capture_all(ms_each=180.0, pool_bytes=900 * MIB, graph_bytes=9 * MIB)
    engine.serve(azure(arrivals, 3.0), until_s=90.0, most_steps=12_000)


def doubling_ladder(recorder: Recorder, arrivals: Path) -> None:
    """Azure arrivals nine times as fast, and a ladder that doubles above 128."""
    engine = Engine(recorder, _LADDER_DOUBLING, _LLM, max_running=2048)
    engine.capture_all(ms_each=240.0, pool_bytes=2048 * MIB, graph_bytes=10 * MIB)
    engine.serve(azure(arrivals, 9.0), until_s=150.0, most_steps=12_000)


def fallback_trap(recorder: Recorder, arrivals: Path) -> None:
    """Let a burst of 70 requests at 40 s spring a trap: a ceiling of 32 that eager steps keep."""
    times = StepTimes(replay_base=6.4, replay_row=0.01, eager_base=30.0, eager_row=0.05)
    engine = Engine(recorder, [1, 2, 4, 8, 12, 16, 24, 32], times, max_running=4096, seed=3)
    engine.capture_all(ms_each=120.0, pool_bytes=150 * MIB, graph_bytes=6 * MIB)
    burst = [Request(40.0, 400, 100) for _ in range(70)]
    traffic = [*poisson(19.0, 180.0, output=100, seed=11), *burst]
    traffic.sort(key=lambda request: request.arrives_s)
    engine.serve(traffic, until_s=180.0, most_steps=12_000)


_PRACTICE = StepTimes(replay_base=2.43, replay_row=0.24, eager_base=3.18, eager_row=0.24)


def practice(recorder: Recorder, arrivals: Path) -> None:
    """Draw the practice distribution on buckets 1, 4, 8, 16, 32: batch nine replays sixteen."""
    engine = Engine(recorder, [1, 4, 8, 16, 32], _PRACTICE, max_running=32, seed=5)
    engine.capture_all(ms_each=700.0, pool_bytes=2048 * MIB, graph_bytes=10 * MIB)
    for size in practice_sizes(8_000, seed=9):
        engine.decode(size, kv_tokens=size * 700)


def practice_eager(recorder: Recorder, arrivals: Path) -> None:
    """Run the same batches with graphs off: launches cost 0.75 ms a step more, and nothing pads."""
    engine = Engine(recorder, [], _PRACTICE, max_running=32, seed=6)
    for size in practice_sizes(8_000, seed=9):
        engine.decode(size, kv_tokens=size * 700)


def cold_start(recorder: Recorder, arrivals: Path) -> None:
    """32 requests at once, then Poisson; every bucket compiled and captured on its first use."""
    engine = Engine(
        recorder, [1, 2, 4, 8, 16, 24, 32], _LLM, max_running=32, seed=1, lazy_ms=(2100.0, 350.0)
    )
    first = [Request(0.0, 300, 20 + 8 * i) for i in range(32)]
    later = (r for r in poisson(18.0, 90.0, output=120, seed=2) if r.arrives_s > 30.0)
    engine.serve([*first, *later], until_s=75.0, most_steps=12_000)


@dataclass(frozen=True)
class Sample:
    """One sample: who records it, what its traffic is, and how the engine is configured."""

    record: Callable[[Recorder, Path], None]
    traffic: str
    buckets: list[int]
    max_running: int


SAMPLES = {
    "healthy": Sample(
        healthy,
        "Azure arrivals three times as fast, a dense ladder, warmed up.",
        _LADDER_8,
        512,
    ),
    "doubling_ladder": Sample(
        doubling_ladder,
        "Azure arrivals nine times as fast, and a ladder that doubles above 128.",
        _LADDER_DOUBLING,
        2048,
    ),
    "fallback_trap": Sample(
        fallback_trap,
        "A ceiling of 32, and at 40 s a burst of 70 requests that eager steps never let pass.",
        [1, 2, 4, 8, 12, 16, 24, 32],
        4096,
    ),
    "practice": Sample(
        practice,
        "The practice distribution on buckets 1, 4, 8, 16, 32: batch nine replays sixteen.",
        [1, 4, 8, 16, 32],
        32,
    ),
    "practice_eager": Sample(
        practice_eager,
        "The same batches as practice with graphs off: 0.75 ms more of launches, and no padding.",
        [],
        32,
    ),
    "cold_start": Sample(
        cold_start,
        "32 requests at once, then Poisson; every bucket compiled and captured on its first use.",
        [1, 2, 4, 8, 16, 24, 32],
        32,
    ),
}


def make(name: str, arrivals: Path, out: Path) -> Path:
    """Record the sample ``name`` and return its file."""
    sample = SAMPLES[name]
    target = out / f"{name}.parquet"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "trace.parquet"
        config = {
            "engine": "simulated",
            "mode": "FULL" if sample.buckets else "NONE",
            "axis": "requests",
            "capture_sizes": sample.buckets,
            "max_num_seqs": sample.max_running,
            "graphs_off": ["prefill"] if sample.buckets else ["decode", "prefill"],
            "simulated": f"{sample.traffic} {_NO_DEVICE}",
        }
        with Recorder(folder, config=config, axis="requests", phase="decode") as recorder:
            sample.record(recorder, arrivals)
        target.unlink(missing_ok=True)
        pack(folder, target)
    return target


def main() -> None:
    """Make all samples, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=Path, required=True, help="the Azure CSV")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("names", nargs="*", default=list(SAMPLES))
    options = parser.parse_args()
    for name in options.names:
        made = make(name, options.arrivals, options.out)
        print(f"{made.name}: {made.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
