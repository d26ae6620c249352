"""Check the torch collector, profile windows and sampled event pairs on a real GPU.

    python benchmarks/gpu_check.py [-o gpu_check.parquet]

A small decoder decodes with CUDA graphs, eagerly above the largest, and records itself. Then what
the trace says is held against counts, clocks and CUDA events of the script's own. Needs torch and
pyarrow and nothing else, takes about a minute, and leaves a trace of less than 300 KB. The exit
code is 0 when every check holds, 1 when one does not, 3 where there is no GPU to check on.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "collectors"))

BUCKETS = (1, 2, 4, 8, 16)
MOST = 20
DEVICE = "cuda"
LAYERS, HIDDEN, HEADS, CONTEXT = 12, 4096, 32, 512
STEPS, PROFILED, EVERY = 400, 20, 10
MOST_BYTES = 300_000
NOTHING_CHECKED = 3
HEAVY = ("graphdiag", "polars", "prometheus_client")
"""What must not be needed here."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One claim about the trace, whether it holds, and the figures it was judged by."""

    what: str
    holds: bool
    figures: str


@dataclass(frozen=True)
class Measured:
    """What the script measured itself.

    Attributes
    ----------
    replays
        Graph replays.
    spans_ms
        Time between two events around the work of each step, by the step's index.
    capture_ns
        Wall time of each capture, in order.
    pool_bytes
        What torch's allocator holds after the captures more than before.
    """

    replays: int
    spans_ms: Sequence[float]
    capture_ns: Sequence[int]
    pool_bytes: int


def check(rows: Sequence[Row], measured: Measured) -> Iterator[Check]:
    """Hold a trace's rows against what was measured."""
    steps = [row for row in rows if row["event"] == "step"]
    marks = {row["kind"]: row for row in rows if row["event"] == "mark"}
    index = [row["step"] for row in steps]
    yield Check(
        "each step has one row, in order",
        index == list(range(len(measured.spans_ms))),
        f"{len(index)} rows of {len(measured.spans_ms)} steps",
    )
    replays = sum(row["replays"] or 0 for row in steps)
    yield Check(
        "every replay is in its step's row",
        replays == measured.replays and "graph_replays" not in marks,
        f"{replays} of {measured.replays}",
    )
    yield from _captures([row for row in rows if row["event"] == "capture"], measured)
    yield from _profiled([row for row in steps if row["launches"] is not None], measured, marks)
    yield from _sampled([row for row in steps if row["gpu_span_ns"] is not None], measured)


def _captures(captures: Sequence[Row], measured: Measured) -> Iterator[Check]:
    told = [row["dur_ns"] for row in captures]
    own = measured.capture_ns
    close = len(told) == len(own) and all(
        0.8 * one - 2e6 <= row <= one for row, one in zip(told, own, strict=True)
    )
    yield Check("captures take the time they took", close, f"{_ms(told)} of {_ms(own)} ms")
    grown = sum(row["pool_bytes"] or 0 for row in captures)
    yield Check(
        "the pool grew by what the allocator took",
        grown > 0 and abs(grown - measured.pool_bytes) <= 0.1 * measured.pool_bytes + 2**21,
        f"{grown:,} of {measured.pool_bytes:,} bytes",
    )


def _profiled(
    steps: Sequence[Row], measured: Measured, marks: Mapping[str, Row]
) -> Iterator[Check]:
    yield Check(
        "a window profiled every step asked for",
        len(steps) == PROFILED and all(row["gpu_ns"] for row in steps),
        f"{len(steps)} of {PROFILED}",
    )
    graphed = [row for row in steps if row["bucket"] is not None]
    right = all(
        row["replays"] == 1 and 0 < row["graph_kernels"] <= row["kernels"] and row["blocked_ns"] > 0
        for row in graphed
    )
    kernels = sorted({row["graph_kernels"] for row in graphed})
    yield Check("a replay's kernels are its graph's", bool(graphed) and right, f"{kernels} kernels")
    spans = [(row["gpu_ns"] or 0) + (row["gap_ns"] or 0) for row in steps]
    yield _agree("GPU span by the profiler", steps, spans, measured)
    yield Check("the window has its mark", "gpu_window" in marks, "")


def _sampled(steps: Sequence[Row], measured: Measured) -> Iterator[Check]:
    wanted = STEPS // EVERY
    yield Check(
        "every Nth step has its time by event pair",
        wanted - 2 <= len(steps) <= wanted,
        f"{len(steps)} of {wanted}",
    )
    yield _agree("GPU span by event pair", steps, [row["gpu_span_ns"] for row in steps], measured)


def _agree(what: str, steps: Sequence[Row], spans_ns: Sequence[int], measured: Measured) -> Check:
    """Compare with the script's own events, which lie a launch or so further in or out."""
    own = [measured.spans_ms[row["step"]] for row in steps]
    if not own:
        return Check(f"{what} agrees with CUDA events", False, "no step has one")
    apart = median(span / 1e6 - one for span, one in zip(spans_ns, own, strict=True))
    return Check(
        f"{what} agrees with CUDA events",
        abs(apart) <= 0.2 * median(own) + 0.1,
        f"median {median(spans_ns) / 1e6:.3f} ms against {median(own):.3f} ms",
    )


def _ms(values: Sequence[int]) -> str:
    return "/".join(f"{value / 1e6:.1f}" for value in values) or "none"


def decoder(torch: Any) -> Callable[[Any], Any]:
    """Return a decode step on the GPU: (rows, HIDDEN) to the same, over a static cache."""
    functional = torch.nn.functional
    options = {"device": DEVICE, "dtype": torch.float16}

    def weight(rows: int, columns: int) -> Any:
        return torch.randn(rows, columns, **options) * rows**-0.5

    layers = [
        (
            *(weight(HIDDEN, 3 * HIDDEN), weight(HIDDEN, HIDDEN)),
            *(weight(HIDDEN, 4 * HIDDEN), weight(4 * HIDDEN, HIDDEN)),
            torch.randn(2, MOST, HEADS, CONTEXT, HIDDEN // HEADS, **options),
        )
        for _ in range(LAYERS)
    ]

    def decode(x: Any) -> Any:
        for qkv, out, up, down, cache in layers:
            y = functional.layer_norm(x, (HIDDEN,))
            q, k, v = (y @ qkv).view(len(x), 3, HEADS, 1, -1).unbind(1)
            cache[0, : len(x), :, -1:], cache[1, : len(x), :, -1:] = k, v
            read = functional.scaled_dot_product_attention(q, *cache[:, : len(x)])
            x = x + read.reshape(len(x), HIDDEN) @ out
            x = x + functional.gelu(functional.layer_norm(x, (HIDDEN,)) @ up) @ down
        return x

    return decode


def record(torch: Any, folder: str) -> Measured:
    """Record the decoder into ``folder``: captures, sampled steps, a profile window."""
    from graphdiag_collectors import Recorder, profiler, torch_hooks

    config = {
        "engine": "gpu_check",
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "capture_sizes": list(BUCKETS),
        "max_num_seqs": MOST,
    }
    recorder = Recorder(folder, config, phase="decode")
    torch_hooks.install(recorder)
    profiler.offer(recorder)
    decode = decoder(torch)
    inputs = torch.randn(MOST, HIDDEN, device=DEVICE, dtype=torch.float16)
    with torch.no_grad():
        for bucket in (*BUCKETS, MOST):
            decode(inputs[:bucket])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        held = torch.cuda.memory_reserved()
        graphs: dict[int, Any] = {}
        took: list[int] = []
        for bucket in sorted(BUCKETS, reverse=True):
            graphs[bucket] = torch.cuda.CUDAGraph()
            torch_hooks.name_graph(graphs[bucket], f"decode/{bucket}", size=bucket)
            pool = graphs[BUCKETS[-1]].pool() if took else None
            start = time.perf_counter_ns()
            with torch.cuda.graph(graphs[bucket], pool=pool):
                decode(inputs[:bucket])
            took.append(time.perf_counter_ns() - start)
        grown = torch.cuda.memory_reserved() - held

        events: list[tuple[Any, Any]] = []
        replays = 0

        def step(requested: int) -> None:
            nonlocal replays
            before = torch_hooks.replays()
            pair = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))
            with recorder.step(requested, num_reqs=requested, tokens_out=requested) as row:
                pair[0].record()
                bucket = next((size for size in BUCKETS if size >= requested), None)
                if bucket is None:
                    decode(inputs[:requested])
                    row.fallback("over_max", mode="eager")
                else:
                    graphs[bucket].replay()
                    row.replayed(bucket, f"decode/{bucket}", mode="full")
                    replays += 1
                pair[1].record()
                torch.cuda.synchronize()
                count, launch_ns = torch_hooks.replays_since(before)
                row.set(replays=count, graph_launch_ns=launch_ns)
            events.append((pair[0], pair[1]))

        sizes = random.Random(7)
        timer = profiler.time_steps(recorder, EVERY)
        for _ in range(STEPS):
            step(sizes.randint(1, MOST))
        step(1)  # which asks for the last one's events
        timer.finish()
        window = profiler.open_window(PROFILED)
        deadline = time.monotonic() + 120
        while not window.finished.wait(0.02) and time.monotonic() < deadline:
            if window.state != "starting":  # loading Kineto takes seconds
                step(sizes.randint(1, MOST))
        if window.error:
            print(f"the profile window failed: {window.error}", file=sys.stderr)
        torch_hooks.uninstall()
        recorder.close()
    spans = [first.elapsed_time(last) for first, last in events]
    return Measured(replays, spans, took, grown)


def read(folder: str) -> list[Row]:
    """Return every row of a recording that was closed."""
    import pyarrow.parquet as pq

    parts = sorted(Path(folder).glob("part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-o", "--output", default="gpu_check.parquet", help="the trace")
    output = parser.parse_args(arguments).output
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("no GPU: nothing checked", file=sys.stderr)
        return NOTHING_CHECKED
    from graphdiag_collectors.pack import pack

    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch) / "trace.parquet")
        measured = record(torch, folder)
        checks = list(check(read(folder), measured))
        pack(folder, output)
    needed = [name for name in HEAVY if name in sys.modules]
    checks.append(Check("torch and pyarrow are enough", not needed, ", ".join(needed)))
    size = Path(output).stat().st_size
    checks.append(Check("the trace is small", size < MOST_BYTES, f"{size:,} bytes"))
    for one in checks:
        print(f"{'ok    ' if one.holds else 'FAILED'}  {one.what}: {one.figures}".rstrip(": "))
    return 0 if all(one.holds for one in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
