"""Rows of a lane and single events as Arrow record batches of the schema; vectorised."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphdiag_collectors.blocks import NULL, WIDE, Fields
from graphdiag_collectors.labels import Words
from graphdiag_collectors.schema import COLUMNS, OUTCOMES, arrow_schema

SCHEMA = arrow_schema()
# Said by hand: what pyarrow offers for it imports pandas, where that is installed.
_DTYPES = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}
_NUMPY = {column.name: _DTYPES[column.type] for column in COLUMNS if column.type in _DTYPES}
_UNKNOWN = len(OUTCOMES)
_CODES: dict[str | None, int] = {
    None: _UNKNOWN,
    **{word: code for code, word in enumerate(OUTCOMES)},
}
IMPOSSIBLE = "requested is below 1, bucket is below 1, or a replay's bucket is below requested"
"""Why a row with impossible sizes is dropped."""
_REPLAYED = (None, "exact", "padded")
_NS = 1e9
_CLOCK_JUMP_NS = 1_000_000


class Process(NamedTuple):
    """What is the same for every row of a process."""

    run: str
    rank: int | None
    pid: int


class Clock:
    """From ``perf_counter`` to wall clock.

    Both clocks are slewed alike, so one distance serves until somebody sets the wall clock;
    durations come from ``perf_counter`` alone and cannot turn negative.
    """

    def __init__(self) -> None:
        self._distance = self._read()

    def distance_ns(self) -> int:
        """Wall-clock ns at ``perf_counter() == 0``."""
        now = self._read()
        if abs(now - self._distance) > _CLOCK_JUMP_NS:
            self._distance = now
        return self._distance

    @staticmethod
    def _read() -> int:
        """Return the distance from the tightest of a few readings."""
        readings = []
        for _ in range(5):
            before, wall, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
            readings.append((after - before, wall - (before + after) // 2))
        return min(readings)[1]


def step_batch(
    fields: Fields,
    first: int,
    words: Sequence[Words],
    process: Process,
    distance_ns: int,
    graphs_off: frozenset[str] | bool,
) -> pa.RecordBatch:
    """Return the rows of one lane as steps.

    Parameters
    ----------
    fields
        From :meth:`Channel.take`.
    first
        Index of the first of them among the channel's steps.
    words
        Label to words, from the lane's channel.
    distance_ns
        From :meth:`Clock.distance_ns`.
    graphs_off
        Phases whose graphs are off by configuration, or True for all of them.
    """
    rows = len(fields["label"])
    columns: dict[str, pa.Array] = {}
    for name in WIDE:
        if name in fields:
            values = fields[name].astype(_NUMPY[name], copy=False)
            columns[name] = _array(values, values == NULL)
    for name, default in (("step", first + np.arange(rows)), ("weight", np.ones(rows, np.int64))):
        values = fields.get(name, default)
        columns[name] = pa.array(np.where(values == NULL, default, values))
    _fill_times(columns, fields, distance_ns)
    labels = fields["label"]
    used = np.flatnonzero(np.bincount(labels)).tolist()
    place = np.zeros(used[-1] + 1, np.int32)
    place[used] = np.arange(len(used))
    which = place[labels]  # labels are many over a run and few in a batch
    seen = [words[label] for label in used]
    for column in Words._fields:
        columns[column] = _text([getattr(one, column) for one in seen], which)
    told = np.array([_CODES[one.outcome] for one in seen], np.int8)[which]
    off = np.array([_is_off(one, graphs_off) for one in seen])[which]
    _fill_outcome(columns, fields, told, off)
    return _batch(columns, rows, "step", process)


def impossible(fields: Fields, words: Sequence[Words]) -> NDArray[np.bool_]:
    """Say which rows of one lane have sizes that no step has.

    Those are sizes below 1 (a filler, warm-up or the like may be of 0), and a bucket smaller than
    what was requested where a replay follows from it or is told.
    """
    requested, bucket = fields["requested"], fields["bucket"]
    eager = bucket == NULL
    bad: NDArray[np.bool_] = (requested < 0) | ((bucket < 1) & ~eager)
    doubtful = np.flatnonzero(~bad & ((requested == 0) | ((bucket < requested) & ~eager)))
    if len(doubtful):
        seen, which = np.unique(fields["label"][doubtful], return_inverse=True)
        real = np.array([words[label].kind is None for label in seen])[which]
        replay = np.array([words[label].outcome in _REPLAYED for label in seen])[which]
        bad[doubtful] = np.where(requested[doubtful] == 0, real, replay)
    return bad


def keep(fields: Fields, which: NDArray[np.bool_], first: int) -> Fields:
    """Return the rows ``which`` of one lane; each keeps its index, ``first`` being the first's."""
    index = first + np.arange(len(which))
    told = fields.get("step")
    if told is not None:
        index = np.where(told == NULL, index, told)
    return {name: column[which] for name, column in {**fields, "step": index}.items()}


def event_batch(events: Sequence[Mapping[str, Any]], process: Process) -> pa.RecordBatch:
    """Return single events, as :func:`clean_event` returns them, as one batch."""
    columns = {
        column.name: pa.array([event.get(column.name) for event in events], column.type)
        for column in COLUMNS
    }
    return _batch(columns, len(events), None, process)


def _batch(
    columns: dict[str, pa.Array], rows: int, event: str | None, process: Process
) -> pa.RecordBatch:
    if event is not None:
        columns["event"] = pa.repeat(event, rows)
    columns["run"] = pa.repeat(process.run, rows)
    columns["pid"] = pa.repeat(pa.scalar(process.pid, pa.int32()), rows)
    columns["rank"] = pa.repeat(pa.scalar(process.rank, pa.int32()), rows)
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(values: NDArray[Any], empty: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=empty) if empty.any() else pa.array(values)


def _fill_times(columns: dict[str, pa.Array], fields: Fields, distance_ns: int) -> None:
    """Fill t_ns and dur_ns where the engine did not give them."""
    start, end = fields["start"], fields["end"]
    untimed = np.isnan(end)
    begin = np.rint(start * _NS).astype(np.int64) + distance_ns
    lasted = np.rint(np.where(untimed, 0, end - start) * _NS).astype(np.int64)
    dur = fields.get("dur_ns")
    if dur is not None:
        given = dur != NULL
        lasted = np.where(given, dur, lasted)
        begin -= np.where(untimed & given, dur, 0)  # a row measured elsewhere ended when recorded
        untimed &= ~given
    columns["dur_ns"] = _array(lasted, untimed)
    t_ns = fields.get("t_ns")
    if t_ns is not None:
        begin = np.where(t_ns != NULL, t_ns, begin)
    columns["t_ns"] = pa.array(begin)


def _text(values: list[str | None], which: NDArray[np.int32]) -> pa.Array:
    """Return ``values[which]`` as text."""
    if len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], pa.string()), len(which))
    return pa.array(values, pa.string()).take(pa.array(which))


def _is_off(words: Words, graphs_off: frozenset[str] | bool) -> bool:
    return graphs_off if isinstance(graphs_off, bool) else words.phase in graphs_off


def _fill_outcome(
    columns: dict[str, pa.Array],
    fields: Fields,
    told: NDArray[np.int8],
    off: NDArray[np.bool_],
) -> None:
    """Fill the sizes and what follows from them, unless the step told its outcome."""
    requested, bucket = fields["requested"], fields["bucket"]
    eager = bucket == NULL
    fits = ~eager & (bucket >= requested)
    columns["requested"] = pa.array(requested)
    columns["bucket"] = _array(bucket, eager)
    by_size = np.where(bucket > requested, _CODES["padded"], _CODES["exact"])
    derived = np.where(fits, by_size, np.where(eager & off, _CODES["eager"], _UNKNOWN))
    code = np.where(told == _UNKNOWN, derived, told)
    columns["outcome"] = _text([*OUTCOMES, None], code)
    columns["fallback"] = _array(code == _CODES["fallback"], code == _UNKNOWN)
    divisible = fits & (requested > 0)
    if divisible.any():
        rows = np.where(divisible, requested, 1).astype(np.float64)
        columns["padding_ratio"] = _array((bucket - rows) / rows, ~divisible)
