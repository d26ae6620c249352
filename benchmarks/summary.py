"""Summary of 10⁷ steps beside the same group-bys written by hand in DuckDB.

Both read one file that is written as the recorder seals it, each measurement in a process of its
own, taking turns; the answers must agree before any figure counts. The second size shows whether
memory grows with the trace.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import arrow_schema

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

STEPS = 10_000_000
MORE_STEPS = 30_000_000
REPEATS = 3
CACHE = Path(tempfile.gettempdir()) / "graphdiag-benchmarks"
"""Where the traces are kept between runs."""

_CHUNK = 1 << 17
_START_NS = 1_700_000_000_000_000_000
_SIZES = np.array([1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)])
_SCHEMA = arrow_schema()
_PHASES = ("decode", "mixed", "prefill")
_MODES = ("full", "piecewise", "eager")
_OUTCOMES = ("exact", "padded", "fallback")

_KEYS = (
    "run, rank, runner, phase, axis, requested, bucket, mode, outcome, reason, artifact, loras, "
    "query_len, kind, period"
)
_SUMMED = (
    *("dur_ns", "host_ns", "gpu_ns", "gap_ns", "gpu_span_ns", "blocked_ns", "graph_launch_ns"),
    "compile_ns",
    *("replays", "launches", "kernels", "graph_kernels", "tokens_out", "kv_tokens", "preempted"),
)

Answer = dict[str, list[float]]
"""Per table: its rows, the steps in it, and their time."""


def rows() -> list[Row]:
    """Measure CPU, wall clock and memory of both at 10⁷ steps, and memory at three times that."""
    trace = trace_file(STEPS)
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(_in_a_process("graphdiag", trace))
        theirs.append(_in_a_process("duckdb", trace))
    if ours[0]["answer"] != theirs[0]["answer"]:
        raise SystemExit(f"the answers differ: {ours[0]['answer']} and {theirs[0]['answer']}")
    larger = _in_a_process("graphdiag", trace_file(MORE_STEPS))

    def middle(runs: list[dict[str, float]], figure: str) -> float:
        return median(run[figure] for run in runs)

    told = []
    for figure, what in (("cpu", "CPU time"), ("wall", "wall clock")):
        mine, yardstick = middle(ours, figure), middle(theirs, figure)
        told.append(
            Row(
                f"summary of 10⁷ steps, {what}",
                mine,
                "s",
                "< 1.5 × DuckDB",
                f"DuckDB, by hand: {yardstick:.2f} s ({mine / yardstick:.2f} ×)",
            )
        )
    for steps, mib in (("10⁷", middle(ours, "mib")), ("3 × 10⁷", larger["mib"])):
        yardstick = f"DuckDB at 10⁷: {middle(theirs, 'mib'):.0f} MiB"
        told.append(Row(f"summary of {steps} steps, peak memory", mib, "MiB", "< 1024", yardstick))
    return told


def main() -> None:
    """Print the rows; with arguments, be the process that measures one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=list(_MEASURED), help="print one measurement as JSON")
    parser.add_argument("trace", nargs="?")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure, arguments.trace)))
        return
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit}, to reach {row.reach}; {row.yardstick}")


def _in_a_process(name: str, trace: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, str(trace)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _measure(name: str, trace: str) -> dict[str, object]:
    """Return CPU and wall seconds of one answer, imports left out, and the peak memory."""
    task = _MEASURED[name]()
    begin, cpu = time.perf_counter(), time.process_time()
    answer = task(trace)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": cpu, "wall": wall, "mib": mib, "answer": answer}


def _graphdiag() -> Callable[[str], Answer]:
    from graphdiag.summary import summarize
    from graphdiag.trace import open_trace

    def answer(trace: str) -> Answer:
        summary = summarize(open_trace(trace))
        return {
            "events": [len(summary.events)],
            "groups": [
                len(summary.groups),
                *(int(summary.groups[name].sum()) for name in ("weight", "dur_ns", "kv_tokens")),
            ],
            "warm": [int(summary.groups.filter(summary.groups["period"] == 1)["weight"].sum())],
            "timeline": [
                len(summary.timeline),
                *(int(summary.timeline[name].sum()) for name in ("weight", "requested_rows")),
            ],
            "slices": [
                len(summary.slices),
                *(int(summary.slices[name].sum()) for name in ("weight", "dur_ns")),
            ],
            "durations": [len(summary.durations), int(summary.durations["weight"].sum())],
        }

    return answer


def _duckdb() -> Callable[[str], Answer]:
    import duckdb

    def answer(trace: str) -> Answer:
        database = duckdb.connect()

        def ask(query: str) -> duckdb.DuckDBPyRelation:
            return database.sql(query)

        file = f"'{trace}'"
        events = ask(
            f"select * from {file} where event not in ('step', 'request') order by t_ns"
        ).to_arrow_table()
        cold = ask(
            f"select max(t_ns + coalesce(dur_ns, 0)) from {file} "
            "where event = 'capture' or (event = 'compile' and reason is null)"
        ).fetchall()[0][0]
        database.execute(
            f"create temp table firsts as select min(t_ns) as t_ns from {file} "
            f"where event = 'step' and kind is null and bucket is not null and t_ns >= {cold} "
            "group by run, rank, runner, phase, mode, bucket, artifact"
        )
        steps = (
            f"(select *, coalesce(weight, 1) as steps, case when t_ns < {cold} then 0 when bucket "
            "is not null and t_ns in (select t_ns from firsts) then 1 else 2 end as period "
            f"from {file} where event = 'step')"
        )
        sums = ", ".join(f"sum({name}) as {name}" for name in _SUMMED)
        groups = ask(
            f"select {_KEYS}, sum(steps) as weight, count(*) as n, {sums}, "
            "sum(steps) filter (dur_ns is not null) as dur_ns_weight, "
            "sum(steps) filter (host_ns is not null) as host_ns_weight, "
            "sum(steps) filter (gpu_ns is not null) as gpu_ns_weight, "
            "sum(steps) filter (gpu_span_ns is not null) as gpu_span_ns_weight, "
            "sum(case when steps > 0 then dur_ns::double * dur_ns / steps end) as dur_sq, "
            "min(t_ns) as t_min, max(t_ns + coalesce(dur_ns, 0)) as t_max "
            f"from {steps} group by {_KEYS}"
        ).to_arrow_table()
        first, last = (groups[name].to_numpy() for name in ("t_min", "t_max"))
        shift = int((last.max() - first.min()) // 511).bit_length()
        timeline = ask(
            f"select t_ns >> {shift} as bin, run, runner, phase, kind, outcome, bucket, period, "
            "sum(steps) as weight, sum(requested * steps) as requested_rows, "
            "sum(dur_ns) as dur_ns, sum(steps) filter (dur_ns is not null) as dur_ns_weight, "
            "sum(tokens_out) as tokens_out, sum(queued * steps) as queued, "
            "sum(steps) filter (queued is not null) as queued_weight "
            f"from {steps} where t_ns is not null group by all"
        ).to_arrow_table()
        slices = ask(
            f"select t_ns >> {shift + 4} as slice, run, runner, phase, axis, kind, requested, "
            "outcome, bucket, reason, period, "
            "case when dur_ns > 0 and steps > 0 then floor(log2(dur_ns / steps))::int end "
            "as octave, "
            "sum(steps) as weight, sum(dur_ns) as dur_ns, "
            "sum(steps) filter (dur_ns is not null) as dur_ns_weight, "
            "sum(case when steps > 0 then dur_ns::double * dur_ns / steps end) as dur_sq, "
            f"sum(tokens_out) as tokens_out from {steps} where t_ns is not null group by all"
        ).to_arrow_table()
        durations = ask(
            "select run, runner, phase, kind, outcome, bucket, period, "
            "floor(16 * log2(dur_ns / steps))::smallint as duration_bin, sum(steps) as weight "
            f"from {steps} where dur_ns > 0 and steps > 0 group by all"
        ).to_arrow_table()

        def total(table: pa.Table, name: str) -> int:
            return sum(int(value) for value in table[name].to_pylist())

        warm = groups.filter(pa.compute.equal(groups["period"], 1))
        return {
            "events": [events.num_rows],
            "groups": [
                groups.num_rows,
                *(total(groups, name) for name in ("weight", "dur_ns", "kv_tokens")),
            ],
            "warm": [total(warm, "weight")],
            "timeline": [
                timeline.num_rows,
                *(total(timeline, name) for name in ("weight", "requested_rows")),
            ],
            "slices": [slices.num_rows, *(total(slices, name) for name in ("weight", "dur_ns"))],
            "durations": [durations.num_rows, total(durations, "weight")],
        }

    return answer


_MEASURED = {"graphdiag": _graphdiag, "duckdb": _duckdb}


def trace_file(steps: int) -> Path:
    """Return a trace of ``steps`` steps; made once, and then kept."""
    path = CACHE / f"summary-{steps}.parquet"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        write_part(path, _batches(steps))
    return path


def _batches(steps: int) -> Iterator[pa.RecordBatch]:
    """Yield one rank of an engine: its start-up, then steps whose load wanders over hours."""
    random = np.random.default_rng(20_240_607)
    yield _start_up()
    now = _START_NS + 60 * 10**9
    load = 0.0
    for first in range(0, steps, _CHUNK):
        count = min(_CHUNK, steps - first)
        load = 0.9 * load + random.normal(0, 0.3)
        yield _steps(random, load, first, count, now)
        now += count * 9_000_000


def _start_up() -> pa.RecordBatch:
    """Return the run event and one capture for each size and mode, largest first."""
    count = 2 * len(_SIZES)
    modes = np.repeat(["piecewise", "full"], len(_SIZES))
    sizes = np.tile(_SIZES[::-1], 2)
    rows: list[dict[str, object]] = [
        {"event": "run", "t_ns": _START_NS, "config": '{"engine":"vllm","max_num_seqs":600}'}
    ]
    rows += [
        {
            "event": "capture",
            "t_ns": _START_NS + i * 200_000_000,
            "dur_ns": 180_000_000,
            "mode": str(modes[i]),
            "size": int(sizes[i]),
            "artifact": f"{modes[i]}/{sizes[i]}",
            "weight": 1,
        }
        for i in range(count)
    ]
    same = {"run": "run-1", "rank": 0, "pid": 7}
    return pa.RecordBatch.from_pylist([row | same for row in rows], schema=_SCHEMA)


def _steps(
    random: np.random.Generator, load: float, first: int, count: int, start_ns: int
) -> pa.RecordBatch:
    phase = np.searchsorted([0.85, 0.95], random.random(count))
    wave = load + np.cumsum(random.normal(0, 0.004, count))
    requests = np.clip(np.exp(3.5 + 0.5 * wave + random.normal(0, 0.5, count)), 1, 600)
    requests = requests.astype(np.int32)
    tokens = np.where(phase == 0, requests, requests + random.integers(1, 2048, count))
    tokens = tokens.astype(np.int32)
    slot = np.searchsorted(_SIZES, tokens)
    eager = slot == len(_SIZES)
    bucket = _SIZES[np.minimum(slot, len(_SIZES) - 1)].astype(np.int32)
    executed = np.where(eager, tokens, bucket)
    duration = 5e6 + 12_000 * executed + eager * 3e6
    duration = (duration * random.lognormal(0, 0.08, count)).astype(np.int64)
    outcome = np.where(eager, 2, (bucket != tokens).astype(int))
    mode = np.where(eager, 2, (phase > 0).astype(int))
    names = [f"{_MODES[m]}/{size}" for m in range(2) for size in _SIZES]
    context = requests * random.integers(200, 2000, count)
    columns = {
        "event": _same("step", count),
        "t_ns": start_ns + np.cumsum(duration) - duration,
        "dur_ns": duration,
        "run": _same("run-1", count),
        "rank": np.zeros(count, np.int32),
        "pid": np.full(count, 7, np.int32),
        "step": np.arange(first, first + count),
        "weight": np.ones(count, np.int64),
        "runner": _same("target", count),
        "phase": _words(_PHASES, phase),
        "axis": _same("tokens", count),
        "requested": tokens,
        "bucket": pa.array(bucket, mask=eager),
        "num_reqs": requests,
        "num_tokens": tokens,
        "padding_ratio": pa.array((bucket - tokens) / tokens, mask=eager),
        "fallback": eager,
        "query_len": pa.array(np.ones(count, np.int32), mask=phase != 0),
        "mode": _words(_MODES, mode),
        "outcome": _words(_OUTCOMES, outcome),
        "reason": _words(("over_max",), np.zeros(count, int), ~eager),
        "artifact": _words(names, np.minimum(mode, 1) * len(_SIZES) + slot % len(_SIZES), eager),
        "kv_tokens": context.astype(np.int64),
        "dispatch_ns": random.integers(3_000, 9_000, count),
        "host_ns": (duration * 0.2).astype(np.int64),
        "tokens_out": requests,
        "queued": np.maximum(requests - 500, 0),
    }
    arrays = [
        pa.nulls(count, field.type)
        if field.name not in columns
        else pa.array(columns[field.name]).cast(field.type)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _same(word: str, count: int) -> pa.Array:
    return pa.repeat(word, count)


def _words(
    words: tuple[str, ...] | list[str],
    codes: NDArray[np.int64],
    empty: NDArray[np.bool_] | None = None,
) -> pa.Array:
    return pa.array(words).take(pa.array(codes, mask=empty))


if __name__ == "__main__":
    main()
