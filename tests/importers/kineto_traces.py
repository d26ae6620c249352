"""Small traces as Kineto writes them, and what they hold, worked out the slow and simple way."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from graphdiag.importers import kineto
from graphdiag.importers.source import Source

BASE_NS = 1_767_189_312_000_000_000
Event = dict[str, Any]
Row = dict[str, Any]

# Names with all that a careless reader trips over: braces, brackets, quotes, backslashes, commas.
NASTY = (
    "void at::{lambda()#1}::operator()() const",
    '}, {"ph": "X", "cat": "kernel", "name": "',
    'ends in a brace {"',
    "ends in a backslash \\",
    'quote \\" and \\\\" and {{{',
    "Kernel é ✓ 日本 ]}",
    "",
)

HEADER: Event = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg": [{"a": 1}, {"b": 2}]},
    "cuda_driver_version": 12080,
    "trace_id": "ABCD",
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": BASE_NS,
}


def us(ns: int) -> float:
    """Return µs with three decimals."""
    return ns / 1000


def event(cat: str, name: str, start: int, duration: int, **more: Any) -> Event:
    """Return a complete event; times in ns."""
    pid = more.pop("pid", 100)
    tid = more.pop("tid", 100)
    head = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    return {**head, "ts": us(start), "dur": us(duration), "args": more}


def step(name: str, start: int, duration: int, tid: int = 100) -> Event:
    """Return the annotation of a step."""
    return event("user_annotation", name, start, duration, tid=tid)


def call(name: str, start: int, duration: int, correlation: int, tid: int = 100) -> Event:
    """Return a runtime call."""
    return event("cuda_runtime", name, start, duration, tid=tid, correlation=correlation)


def kernel(start: int, duration: int, correlation: int, name: str = "k", stream: int = 7) -> Event:
    """Return a kernel."""
    return event(
        "kernel", name, start, duration, pid=0, tid=stream, stream=stream, correlation=correlation
    )


def copy(start: int, duration: int, correlation: int) -> Event:
    """Return a copy on the GPU."""
    return event(
        "gpu_memcpy", "Memcpy HtoD", start, duration, pid=0, tid=7, correlation=correlation
    )


def replayed_step(name: str, start: int, correlation: int, kernels: int = 5) -> list[Event]:
    """Return a step of 2 ms that copies, launches one graph and waits; the GPU runs behind."""
    behind = start + 3_000_000
    return [
        step(name, start, 2_000_000),
        call("cudaMemcpyAsync", start + 100_000, 10_000, correlation),
        call("cudaGraphLaunch", start + 300_000, 500_000, correlation + 1),
        call("cudaStreamSynchronize", start + 900_000, 1_000_000, correlation + 2),
        copy(behind, 5_000, correlation),
        *(kernel(behind + 10_000 + 3_000 * i, 2_500, correlation + 1) for i in range(kernels)),
    ]


def eager_step(name: str, start: int, correlation: int, kernels: int = 3) -> list[Event]:
    """Return a step of 4 ms that launches its kernels one by one."""
    events = [step(name, start, 4_000_000)]
    for i in range(kernels):
        at = start + 100_000 * (i + 1)
        events.append(call("cudaLaunchKernel", at, 6_000, correlation + i))
        events.append(kernel(at + 50_000, 20_000, correlation + i))
    return events


def random_events(seed: int, size: int = 60) -> list[Event]:
    """Return steps and noise in some order, with names that a careless reader trips over."""
    rng = random.Random(seed)
    events: list[Event] = []
    at, correlation = 1_000_000 + rng.randrange(1000), 1
    labels = (
        "execute_context_0(0)_generation_4(4)",
        "execute_context_1(512)_generation_3(3)",
        "step[DECODE bs=8]",
        "step[EXTEND bs=2 toks=100]",
        "step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]",
    )
    while len(events) < size:
        make = rng.choice((replayed_step, eager_step))
        events += make(rng.choice(labels), at, correlation, rng.randrange(1, 6))
        name = rng.choice(NASTY)
        events.append(event("python_function", name, at, 10, **{"Python id": 3}))
        events.append(event("cpu_op", "aten::mm", at, 10, **{"Input Dims": [[[1, 2]], []]}))
        events.append(event("gpu_user_annotation", events[-5]["name"], at, 10))
        events.append(event("cpu_op", name, at, 10, nested=[{"cat": "kernel"}, {"b": '"}'}]))
        flow = {"ph": "s", "id": correlation, "pid": 100, "tid": 100, "ts": us(at), "cat": "ac2g"}
        events.append({**flow, "name": "ac2g"})
        events.append(kernel(at, rng.randrange(1, 5000), 10**6 + correlation, name=name))
        meta = {"name": "process_name", "ph": "M", "ts": 0, "pid": "Spans", "tid": "PyTorch"}
        events.append({**meta, "args": {"name": name}})
        at += rng.randrange(4_000_000, 9_000_000)
        correlation += 10
    rng.shuffle(events)
    return events


# Layouts -------------------------------------------------------------------------------------


def one_line(events: list[Event], header: Event = HEADER) -> str:
    return json.dumps({**header, "traceEvents": events, "traceName": "t.json"})


def compact(events: list[Event], header: Event = HEADER) -> str:
    return json.dumps({**header, "traceEvents": events}, separators=(",", ":"), ensure_ascii=False)


def indented(events: list[Event], header: Event = HEADER) -> str:
    return json.dumps({**header, "traceEvents": events}, indent=1)


def events_first(events: list[Event], header: Event = HEADER) -> str:
    return json.dumps({"traceEvents": events, **header}, indent=4)


def sorted_keys(events: list[Event], header: Event = HEADER) -> str:
    return json.dumps({**header, "traceEvents": events}, sort_keys=True)


def shuffled_keys(events: list[Event], header: Event = HEADER) -> str:
    rng = random.Random(5)
    mixed = [dict(rng.sample(list(event.items()), len(event))) for event in events]
    return json.dumps({**header, "traceEvents": mixed})


def kineto_layout(events: list[Event], header: Event = HEADER) -> str:
    """Return the layout of Kineto's own writer: an event on several lines, its times on one."""
    parts = []
    for each in events:
        rest = {k: v for k, v in each.items() if k not in ("ts", "dur", "args")}
        times = {k: each[k] for k in ("ts", "dur") if k in each}
        lines = [json.dumps(rest)[1:-1], json.dumps(times)[1:-1]]
        if "args" in each:
            lines.append('"args": {\n      ' + json.dumps(each["args"])[1:-1] + "\n    }")
        parts.append("  {\n    " + ",\n    ".join(lines) + "\n  }")
    head = json.dumps(header, indent=2)[:-2]
    return head + ',\n  "traceEvents": [\n' + ",\n".join(parts) + "\n  ],\n" + '  "x": "y"\n}\n'


LAYOUTS: dict[str, Callable[..., str]] = {
    layout.__name__: layout
    for layout in (
        one_line,
        compact,
        indented,
        events_first,
        sorted_keys,
        shuffled_keys,
        kineto_layout,
    )
}


# Reading -------------------------------------------------------------------------------------


def write(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(*paths: Path) -> list[Row]:
    """Return the rows of the files as the importer reads them."""
    batches = list(kineto.read([Source(str(path)) for path in paths]))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches).to_pylist()


def of(found: list[Row], what: str) -> list[Row]:
    return [row for row in found if row["event"] == what]


def config(found: list[Row]) -> dict[str, Any]:
    return json.loads(of(found, "run")[0]["config"])


# The oracle ----------------------------------------------------------------------------------

_OUTER = re.compile(r"execute_|step\[")
_LAUNCH = re.compile(r"cuda\w*Launch\w*Kernel|cudaGraphLaunch")


def union(intervals: list[tuple[int, int]]) -> int:
    """Return the length of the union of intervals."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def expected(events: list[Event]) -> dict[str, Any]:
    """Return what the figures must be, by the definitions, one event at a time."""
    times = {id(e): (round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events if "dur" in e}

    def span(chosen: list[Event]) -> list[tuple[int, int]]:
        return [(times[id(e)][0], sum(times[id(e)])) for e in chosen]

    calls = [e for e in events if e.get("cat") == "cuda_runtime"]
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    graphs = {e["args"]["correlation"] for e in calls if "GraphLaunch" in e["name"]}
    steps = []
    for note in events:
        if note.get("cat") != "user_annotation" or not _OUTER.match(note["name"]):
            continue
        start, duration = times[id(note)]
        mine = [
            e
            for e in calls
            if e["tid"] == note["tid"] and start <= times[id(e)][0] < start + duration
        ]
        ids = {e["args"]["correlation"] for e in mine}
        ran = span([e for e in gpu if e["args"]["correlation"] in ids])
        kernels = [e for e in gpu if e["cat"] == "kernel" and e["args"]["correlation"] in ids]
        blocked = sum(times[id(e)][1] for e in mine if "Synchronize" in e["name"])
        busy = union(ran)
        steps.append(
            {
                "t_ns": BASE_NS + start,
                "dur_ns": duration,
                "replays": sum("GraphLaunch" in e["name"] for e in mine),
                "launches": sum(bool(_LAUNCH.match(e["name"])) for e in mine),
                "kernels": len(kernels),
                "graph_kernels": sum(e["args"]["correlation"] in graphs for e in kernels),
                "gpu_ns": busy if ran else None,
                "gap_ns": max(b for _, b in ran) - min(a for a, _ in ran) - busy if ran else None,
                "blocked_ns": blocked,
                "host_ns": duration - blocked,
                "graph_launch_ns": sum(times[id(e)][1] for e in mine if "Graph" in e["name"]),
            }
        )
    ran = span(gpu)
    ids = {e["args"]["correlation"] for e in calls}
    first, last = min(a for a, _ in ran), max(b for _, b in ran)
    return {
        "steps": sorted(steps, key=lambda row: row["t_ns"]),
        "window": {
            "t_ns": BASE_NS + first,
            "dur_ns": last - first,
            "gpu_ns": union(ran),
            "gap_ns": last - first - union(ran),
            "launches": sum(bool(_LAUNCH.match(e["name"])) for e in calls),
            "kernels": sum(e["cat"] == "kernel" for e in gpu),
        },
        "details": {
            "graph_launches": len(graphs),
            "gpu_events": len(gpu),
            "gpu_events_in_graphs": sum(e["args"]["correlation"] in graphs for e in gpu),
            "graph_gpu_busy_ns": union(
                span([e for e in gpu if e["args"]["correlation"] in graphs])
            ),
            "unlinked_events": sum(e["args"]["correlation"] not in ids for e in gpu),
        },
    }
