"""Trace format 1: one table, one row an event. The one place that defines it.

Anything that reads or writes a trace takes the columns, their types, their units and
the legal words from here; ``graphdiag schema`` and ``docs/schema.md`` are printed from
the same table.

Two rules hold for every event:

* a column an event does not have is null, and costs nothing;
* rows add up. A row stands for ``weight`` things (steps, captured graphs, compiled
  regions), and its times are totals over them, so that counts are ``sum(weight)`` and
  times are ``sum(dur_ns)`` whatever the source aggregated. Weight 0 is time or memory
  that belongs to no single thing, such as a log's "capturing finished in 14 s".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from graphdiag_collectors.marks import *  # noqa: F403  (handed on)

FORMAT = 1
FORMAT_KEY = b"graphdiag.format"

EVENTS = ("step", "capture", "compile", "run", "memory", "request", "mark")
RUNNERS = ("target", "draft", "encoder")
PHASES = ("decode", "prefill", "mixed", "verify")
AXES = ("tokens", "requests")
MODES = ("full", "piecewise", "breakable", "compiled", "eager")
OUTCOMES = ("exact", "padded", "fallback", "capture", "eager")
REASONS = (
    "over_max",
    "no_key",
    "mode_excluded",
    "dp_sync",
    "lora",
    "not_captured",
    "dynamic",
    "unknown",
)
CACHES = ("hit", "miss", "none")
SYNTHETIC_STEPS = ("dummy", "warmup", "profile", "capture", "filler")

_ALL = EVENTS
_STEP = ("step",)
_ARTIFACT = ("capture", "compile")


@dataclass(frozen=True)
class Column:
    """One column of the trace.

    Attributes
    ----------
    name, type
        As in the Parquet file.
    unit
        ``"ns"``, ``"bytes"``, ``"rows"`` (rows on the step's axis), ``"count"``, or ``""``.
    events
        The events that may carry it.
    meaning
        One sentence for a person.
    words
        The legal values of a text column with a closed vocabulary, else empty.
    """

    name: str
    type: pa.DataType
    unit: str
    events: tuple[str, ...]
    meaning: str
    words: tuple[str, ...] = ()


_text, _i32, _i64, _f64, _bool = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()

COLUMNS: tuple[Column, ...] = (
    Column("event", _text, "", _ALL, "What the row is about.", EVENTS),
    Column("t_ns", _i64, "ns", _ALL, "Start of the event, wall clock, since 1970-01-01 UTC."),
    Column("dur_ns", _i64, "ns", _ALL, "How long it took; for a step, from schedule to result."),
    Column("run", _text, "", _ALL, "Identifier of the engine start the row belongs to."),
    Column("rank", _i32, "", _ALL, "Global rank of the recording process."),
    Column("pid", _i32, "", _ALL, "Process that recorded the row."),
    Column("step", _i64, "", _ALL, "Index of the step in its process and runner, from 0."),
    Column(
        "kind",
        _text,
        "",
        _ALL,
        "What sort of the event: null for a real step, else "
        + ", ".join(SYNTHETIC_STEPS)
        + "; for a capture or compile, the artifact's sort; for a mark, its name.",
    ),
    Column(
        "weight",
        _i64,
        "count",
        _ALL,
        "How many steps, graphs or regions this row stands for; its times are totals over them.",
    ),
    Column("runner", _text, "", ("step", *_ARTIFACT), "Whose forward it was or serves.", RUNNERS),
    Column("phase", _text, "", ("step", *_ARTIFACT), "What the batch was doing.", PHASES),
    Column(
        "axis", _text, "", ("step", *_ARTIFACT), "What buckets count: tokens or requests.", AXES
    ),
    Column("requested", _i32, "rows", _STEP, "Rows the batch needed on the axis."),
    Column("bucket", _i32, "rows", _STEP, "Captured size that was replayed; null when eager."),
    Column("num_reqs", _i32, "count", _STEP, "Requests in the batch."),
    Column("num_tokens", _i32, "count", _STEP, "Tokens in the batch, without padding."),
    Column("padding_ratio", _f64, "", _STEP, "(bucket - requested) / requested; null when eager."),
    Column("fallback", _bool, "", _STEP, "True when graphs were on and the step ran eager."),
    Column("query_len", _i32, "count", _STEP, "Tokens a request in a uniform batch (stride)."),
    Column("loras", _i32, "count", _STEP, "Active LoRA adapters in the batch."),
    Column("loras_replayed", _i32, "count", _STEP, "Adapter count of the artifact replayed."),
    Column("mode", _text, "", ("step", "capture"), "How the step ran.", MODES),
    Column("outcome", _text, "", _STEP, "What the dispatcher made of it.", OUTCOMES),
    Column(
        "reason",
        _text,
        "",
        ("step", "request", *_ARTIFACT),
        "Step: why it fell back or missed, one of "
        + ", ".join(REASONS)
        + ". Compile: why it was compiled again, in the compiler's words. Request: why it ended, "
        "in the engine's words.",
    ),
    Column(
        "artifact",
        _text,
        "",
        ("step", *_ARTIFACT),
        "Name of the artifact captured, compiled or replayed; the same in all three.",
    ),
    Column("replays", _i32, "count", _STEP, "Graph launches in the step."),
    Column("kv_tokens", _i64, "count", _STEP, "Tokens of context the step attended to."),
    Column("dispatch_ns", _i64, "ns", _STEP, "Host time spent choosing the artifact."),
    Column("host_ns", _i64, "ns", _STEP, "Host time of the step, blocking copies left out."),
    Column("blocked_ns", _i64, "ns", _STEP, "Host time waiting in blocking copies and syncs."),
    Column("graph_launch_ns", _i64, "ns", _STEP, "Host time inside graph-launch calls."),
    Column("gpu_ns", _i64, "ns", ("step", "mark"), "Time the GPU was busy (union over streams)."),
    Column("gap_ns", _i64, "ns", ("step", "mark"), "Time the GPU idled within the event's span."),
    Column(
        "gpu_span_ns",
        _i64,
        "ns",
        _STEP,
        "Time from the step's start to its end on its GPU stream, idle time included; of sampled "
        "steps, by event pairs.",
    ),
    Column("launches", _i32, "count", ("step", "mark"), "Host calls that launched GPU work."),
    Column("kernels", _i32, "count", ("step", "mark"), "GPU kernels run, in graphs or not."),
    Column("graph_kernels", _i32, "count", ("step", "mark"), "GPU kernels run inside graphs."),
    Column("compile_ns", _i64, "ns", _STEP, "Time spent compiling or capturing in the step."),
    Column("tokens_out", _i32, "count", ("step", "request"), "Tokens produced."),
    Column("preempted", _i32, "count", _STEP, "Requests preempted or retracted in the step."),
    Column(
        "recomputed",
        _i32,
        "count",
        _STEP,
        "Tokens computed again in the step, of requests that had been preempted.",
    ),
    Column("queued", _i32, "count", _STEP, "Requests waiting when the step was scheduled."),
    Column("tokens_in", _i32, "count", ("request",), "Tokens of the prompt."),
    Column("queued_ns", _i64, "ns", ("request",), "Time from arrival until it was scheduled."),
    Column(
        "ttft_ns",
        _i64,
        "ns",
        ("request",),
        "Time from arrival to the first token; null where there was none.",
    ),
    Column("key", _text, "", _ARTIFACT, "JSON: what the engine looks the artifact up by."),
    Column("identity", _text, "", _ARTIFACT, "JSON: all that influenced the artifact."),
    Column("size", _i32, "rows", _ARTIFACT, "Bucket the artifact serves."),
    Column("mem_before", _i64, "bytes", ("capture", "memory"), "Free device memory before."),
    Column("mem_after", _i64, "bytes", ("capture", "memory"), "Free device memory after."),
    Column("pool_bytes", _i64, "bytes", ("capture", "memory"), "Growth of the graph pool."),
    Column("signature", _text, "", _ARTIFACT, "Structural signature of the graph."),
    Column("exec_group", _text, "", _ARTIFACT, "Executable shared by graphs of one signature."),
    Column("cache", _text, "", _ARTIFACT, "Whether a cache served it.", CACHES),
    Column("config", _text, "", ("run", "mark"), "JSON: the run's configuration, or details."),
)

RUN_CONFIG: dict[str, str] = {
    "engine": "engine name: vllm, sglang, torch, or your own",
    "engine_version": "its version",
    "mode": "the graph mode in force, in the engine's words",
    "axis": "what capture_sizes count: tokens or requests",
    "capture_sizes": "captured sizes, ascending",
    "max_num_seqs": "most requests the scheduler may run at once",
    "token_budget": "most tokens the scheduler may put in one step",
    "speculative_tokens": "draft tokens a request; the stride is one more",
    "padding": "false when only an exact size may replay",
    "graphs_off": "phases whose graphs are off by configuration",
    "lora": "most LoRA adapters active at once",
    "tensor_parallel": "tensor-parallel size",
    "data_parallel": "data-parallel size",
    "device": "device name",
    "driver": "driver version",
    "torch": "torch version",
    "kv_tokens": "tokens the KV cache holds",
    "graph_bytes": "device memory the graphs hold",
    "sampled": "true when the source shows only some steps",
    "sample_every": "one step in how many, where sampled",
    "simulated": "how the trace was simulated; absent when it was recorded",
    "importer": "importer that read the source",
    "notes": "list of sentences a reader must know: assumptions, dropped or unlinked things",
    "damage": "list of sentences: what of the source was not read whole, or was lost",
}
"""Keys of a run event's ``config`` that the analyzer reads; others are kept and shown."""


def column_names() -> list[str]:
    """Return the names of all columns, in file order."""
    return [column.name for column in COLUMNS]


def columns_of(event: str) -> Iterator[Column]:
    """Columns that ``event`` may carry, in file order."""
    return (column for column in COLUMNS if event in column.events)


def arrow_schema() -> pa.Schema:
    """Return the Arrow schema of a trace, with the format number in its metadata."""
    fields = [pa.field(column.name, column.type) for column in COLUMNS]
    return pa.schema(fields, metadata={FORMAT_KEY: str(FORMAT).encode()})
