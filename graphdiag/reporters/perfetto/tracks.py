"""Which process and thread of the file a row goes to; rows that overlap go to lanes.

A thread's slices must nest or be apart, and steps overlap where an engine schedules the next one
before the last has its result. The file's ids are its own and large, so that they meet no process
and no device of a profiler's trace beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

_FIRST_PID = 10_000_000
_PIDS_APART = 1000
MOST_LANES = 16
"""Lanes of a track; a row that fits in none is an instant."""

PROCESS = ("run", "rank", "pid")
TRACKS = ("steps", "draft steps", "encoder steps", "other steps", "capture", "compile", "marks")
"""Kinds of threads of a process, from top to bottom."""
STEPS, DRAFT, ENCODER, OTHER, CAPTURE, COMPILE, MARKS = range(len(TRACKS))

_Key = tuple[str | None, int | None, int | None]


def track() -> pl.Expr:
    """Expression: the index into :data:`TRACKS` of a row."""
    event, runner = pl.col("event"), pl.col("runner").fill_null("target")
    return (
        pl.when(event == "capture")
        .then(CAPTURE)
        .when(event == "compile")
        .then(COMPILE)
        .when(event != "step")
        .then(MARKS)
        .when(runner == "target")
        .then(STEPS)
        .when(runner == "draft")
        .then(DRAFT)
        .when(runner == "encoder")
        .then(ENCODER)
        .otherwise(OTHER)
        .cast(pl.Int64)
    )


class Tracks:
    """Gives rows their ``file_pid``, ``track`` and ``lane``, batch by batch in order of time."""

    def __init__(self) -> None:
        self._processes: dict[_Key, int] = {}
        self._ends: dict[tuple[int, int], list[int]] = {}
        self._told: set[tuple[int, int]] = set()

    def place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return ``rows`` (by time, with :data:`PROCESS`, ``t_ns``, ``dur_ns``) with their places.

        ``lane`` is -1 for a row that is drawn as an instant: it has no time, stands for several,
        or overlaps as many others as there are lanes.
        """
        found = rows.select(PROCESS).unique(maintain_order=True)
        ids = [self._process(key) for key in found.iter_rows()]
        rows = rows.join(
            found.with_columns(pl.Series("file_pid", ids, pl.Int64)),
            on=PROCESS,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        ).with_columns(track().alias("track"), pl.lit(-1, pl.Int64).alias("lane"))
        lanes = np.full(len(rows), -1, np.int64)
        rows = rows.with_row_index("row")
        is_slice = (pl.col("dur_ns") >= 0) & (pl.col("weight").fill_null(1) <= 1)
        drawn = rows.filter(is_slice.fill_null(False) & (pl.col("track") != MARKS))
        for key, mine in drawn.group_by("file_pid", "track"):
            starts = mine["t_ns"].to_numpy()
            ends = starts + mine["dur_ns"].to_numpy()
            lanes[mine["row"].to_numpy()] = self._lanes(_pair(key), starts, ends)
        return rows.drop("row").with_columns(pl.Series("lane", lanes))

    def named(self, rows: pl.DataFrame) -> Iterator[str]:
        """Yield the metadata events of the threads that ``rows`` are the first to use."""
        shown = rows.select("file_pid", "track", pl.col("lane").clip(0)).unique()
        for pid, kind, lane in sorted(shown.rows()):
            if (pid, -1) not in self._told:
                self._told.add((pid, -1))
                yield _metadata("process_name", pid, 0, name=self._name(pid))
                yield _metadata("process_sort_index", pid, 0, sort_index=pid - 2 * _FIRST_PID)
            thread = thread_id(pid, kind, lane)
            if (pid, thread) not in self._told:
                self._told.add((pid, thread))
                name = TRACKS[kind] + (f", overlapping ({lane})" if lane else "")
                yield _metadata("thread_name", pid, thread, name=name)
                yield _metadata("thread_sort_index", pid, thread, sort_index=thread - pid)

    def _process(self, key: _Key) -> int:
        return self._processes.setdefault(
            key, _FIRST_PID + _PIDS_APART * (1 + len(self._processes))
        )

    def _name(self, file_pid: int) -> str:
        key = next(key for key, pid in self._processes.items() if pid == file_pid)
        run, rank, pid = key
        told = ["graphdiag", "" if rank is None else f"rank {rank}"]
        told.append("" if pid is None else f"(pid {pid})")
        several = len({known[0] for known in self._processes}) > 1
        return " ".join(filter(None, [*told, str(run)[:60] if several and run else ""]))

    def _lanes(self, key: tuple[int, int], starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the first lane that is free when each row starts, -1 where none is."""
        busy = self._ends.setdefault(key, [])
        last = max(busy, default=int(starts[0]))
        before = np.maximum.accumulate(np.concatenate([[last], ends[:-1]]))
        if (starts >= before).all():  # the usual case: one after the other
            self._ends[key] = [int(ends[-1])]
            return np.zeros(len(starts), np.int64)
        lanes = np.full(len(starts), -1, np.int64)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            for lane, until in enumerate(busy):
                if until <= start:
                    busy[lane] = end
                    lanes[row] = lane
                    break
            else:
                if len(busy) < MOST_LANES:
                    busy.append(end)
                    lanes[row] = len(busy) - 1
        return lanes


def thread_id(file_pid: Any, kind: Any, lane: Any) -> Any:
    """Return the file's thread id, of numbers or of expressions."""
    return file_pid + 1 + kind * MOST_LANES + lane


def _pair(key: tuple[Any, ...]) -> tuple[int, int]:
    return int(key[0]), int(key[1])


def _metadata(what: str, pid: int, tid: int, **args: Any) -> str:
    event = {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}
    return msgspec.json.encode(event).decode()
