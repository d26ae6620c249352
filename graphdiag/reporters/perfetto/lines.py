"""Rows of a trace as the lines of a trace-event file: text, made column by column."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import polars as pl

from graphdiag.reporters.format import clean
from graphdiag.reporters.perfetto.clock import microseconds
from graphdiag.reporters.perfetto.tracks import MARKS, PROCESS, STEPS, thread_id

_WORDS = ("phase", "axis", "mode", "outcome", "reason", "artifact", "kind", "runner", "cache")
_DETAILS = ("key", "identity", "signature", "exec_group", "config")
_COUNTS = (
    *("step", "requested", "bucket", "num_reqs", "num_tokens", "query_len", "loras", "replays"),
    *("kv_tokens", "tokens_out", "queued", "preempted", "launches", "kernels", "graph_kernels"),
    *("size", "mem_before", "mem_after", "pool_bytes"),
)
_TIMES = (
    *("dispatch_ns", "host_ns", "blocked_ns", "graph_launch_ns", "gpu_ns", "gap_ns"),
    *("gpu_span_ns", "compile_ns"),
)
COLUMNS = ("event", "t_ns", "dur_ns", "weight", *PROCESS, *_WORDS, *_DETAILS, *_COUNTS, *_TIMES)
"""What of a row is shown."""

MOST_TEXT = 2000
"""Characters of a text that are kept."""

_KNOWN = pl.when(pl.col("outcome").is_not_null())
COUNTERS = {
    "requested": pl.col("requested"),
    "bucket": _KNOWN.then(pl.col("bucket").fill_null(0)),
    "padding": _KNOWN.then((pl.col("bucket") - pl.col("requested")).fill_null(0)),
    "fallback": _KNOWN.then((pl.col("outcome") == "fallback").cast(pl.Int64)),
}
"""Counters of the target's real steps, by what sizes count, and their values.

A step that ran eager has bucket 0, and one of which is not told how it ran has no value.
"""


def lines(rows: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    """Return the file's lines of ``rows``, by time: columns ``t_ns`` and ``line``.

    ``rows`` have :data:`COLUMNS` and the places that :class:`.tracks.Tracks` gives.
    """
    escaped = rows.with_columns(
        *(_escaped(rows[name]) for name in (*_WORDS, *_DETAILS)), pl.col("event").cast(pl.String)
    )
    found = [_counted(escaped, name, value, base_ns) for name, value in COUNTERS.items()]
    found.append(_drawn(escaped, base_ns))
    found.append(_memory(escaped, base_ns))
    return pl.concat(found).sort("t_ns", maintain_order=True)


def _drawn(rows: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    """Return a slice or an instant for each row that is no measurement of memory."""
    rows = rows.filter(pl.col("event") != "memory")
    is_slice = pl.col("lane") >= 0
    length = pl.concat_str(pl.lit('"X","dur":'), microseconds(pl.col("dur_ns")))
    instant = pl.lit('"i","s":"t"')
    thread = thread_id(pl.col("file_pid"), pl.col("track"), pl.col("lane").clip(0))
    return rows.select(
        "t_ns",
        pl.concat_str(
            pl.lit('{"ph":'),
            pl.when(is_slice).then(length).otherwise(instant),
            pl.lit(',"ts":'),
            microseconds(pl.col("t_ns") - base_ns),
            pl.lit(',"pid":'),
            pl.col("file_pid"),
            pl.lit(',"tid":'),
            thread,
            pl.lit(',"cat":"'),
            pl.col("event"),
            pl.lit('","name":"'),
            _name(),
            pl.lit('","args":{'),
            _args(rows),
            pl.lit("}}"),
        ).alias("line"),
    )


def _name() -> pl.Expr:
    """Expression: what stands on a row's slice, escaped."""
    requested, bucket = pl.col("requested"), pl.col("bucket")
    phase = pl.coalesce(pl.col("kind"), pl.col("phase"), pl.lit("step"))
    size = pl.when(requested.is_not_null()).then(pl.format(" {}", requested)).otherwise(pl.lit(""))
    became = (
        pl.when(bucket.is_not_null())
        .then(pl.format("→{}", bucket))
        .when(pl.col("outcome").is_not_null())
        .then(pl.format(" {}", pl.col("outcome")))
        .otherwise(pl.lit(""))
    )
    why = pl.when(pl.col("reason").is_not_null()).then(pl.format(" ({})", pl.col("reason")))
    made = pl.coalesce(pl.col("artifact"), pl.col("kind"), pl.col("event"))
    return (
        pl.when(pl.col("event") == "step")
        .then(pl.concat_str(phase, size, became, why.otherwise(pl.lit(""))))
        .when(pl.col("track") == MARKS)
        .then(pl.coalesce(pl.col("kind"), pl.col("event")))
        .otherwise(pl.format("{} {}", pl.col("event"), made))
    )


def _args(rows: pl.DataFrame) -> pl.Expr:
    """Expression: all that is known of a row, as the inside of a JSON object."""
    members = [_member(name, pl.col(name).cast(pl.String), rows) for name in _COUNTS]
    members += [
        _member(f"{name.removesuffix('_ns')}_us", microseconds(pl.col(name)), rows, name)
        for name in _TIMES
    ]
    members += [
        _member(name, pl.format('"{}"', pl.col(name)), rows) for name in (*_WORDS, *_DETAILS)
    ]
    weight = pl.col("weight")
    members.append(pl.when(weight != 1).then(pl.format(',"stands_for":{}', weight)))
    total = microseconds(pl.col("dur_ns"))
    members.append(pl.when(pl.col("lane") < 0).then(pl.format(',"took_us":{}', total)))
    told = [member for member in members if member is not None]
    return pl.concat_str(*told, ignore_nulls=True).str.strip_prefix(",")


def _member(
    name: str, value: pl.Expr, rows: pl.DataFrame, column: str | None = None
) -> pl.Expr | None:
    """Expression: ``,"name":value``, null where the column is; None where it is null throughout."""
    held = column or name
    if rows[held].null_count() == len(rows):
        return None
    return pl.when(pl.col(held).is_not_null()).then(pl.concat_str(pl.lit(f',"{name}":'), value))


def _counted(rows: pl.DataFrame, name: str, value: pl.Expr, base_ns: int) -> pl.DataFrame:
    """Return a counter's events: the first of each process here, and each change after it."""
    steps = rows.filter(
        (pl.col("event") == "step") & pl.col("kind").is_null() & (pl.col("track") == STEPS)
    ).with_columns(value.alias("value"))
    steps = steps.drop_nulls("value")
    before = pl.col("value").shift().over("file_pid", "axis")
    axis = pl.when(pl.col("axis").is_not_null()).then(pl.format(" ({})", pl.col("axis")))
    named = pl.concat_str(pl.lit(name), axis.otherwise(pl.lit("")))
    return steps.filter(pl.col("value").ne_missing(before)).select(
        "t_ns", _counter(named, pl.col("value"), base_ns)
    )


def _memory(rows: pl.DataFrame, base_ns: int) -> pl.DataFrame:
    free = rows.filter((pl.col("event") == "memory") & pl.col("mem_after").is_not_null())
    name = pl.lit("free device memory in bytes")
    return free.select("t_ns", _counter(name, pl.col("mem_after"), base_ns))


def _counter(name: pl.Expr, value: pl.Expr, base_ns: int) -> pl.Expr:
    return pl.concat_str(
        pl.lit('{"ph":"C","ts":'),
        microseconds(pl.col("t_ns") - base_ns),
        pl.lit(',"pid":'),
        pl.col("file_pid"),
        pl.lit(',"name":"'),
        name,
        pl.lit('","args":{"value":'),
        value,
        pl.lit("}}"),
    ).alias("line")


def _escaped(column: pl.Series) -> pl.Series:
    """Return a text column as the inside of JSON strings; each text is looked at once."""
    texts = column.unique().drop_nulls().cast(pl.String)
    if texts.is_empty():
        return pl.Series(column.name, [None] * len(column), pl.String)
    return column.cast(pl.String).replace_strict(
        texts, list(_inside(texts)), default=None, return_dtype=pl.String
    )


def _inside(texts: Iterable[str]) -> Iterable[str]:
    return (msgspec.json.encode(clean(text, MOST_TEXT)).decode()[1:-1] for text in texts)
