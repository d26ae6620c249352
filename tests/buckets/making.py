"""Settings and problems made by hand, for tests that know what must come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphdiag.buckets.problem import Problem
from graphdiag.buckets.setting import Setting, of_table
from graphdiag.buckets.tables import parse_size_table
from graphdiag.summary import Summary, summarize
from tests.build import MS, event, step, trace

PRACTICE = "1,8%\n2-4,17%\n5-8,31%\n9-16,29%\n17-32,15%\n"
"""The practice distribution, each range spread evenly."""
LADDER = (1, 4, 8, 16, 32)
ROW_MS = 0.24
SAVED_MS = 0.75


class Rows:
    """A row costs one; an eager row two."""

    def replay(self, buckets):
        return np.asarray(buckets, float)

    def eager(self, sizes):
        return 2.0 * np.asarray(sizes, float)


def practice(current: Iterable[int] = LADDER, **more: Any) -> Setting:
    """The setting of the practice distribution."""
    return of_table(parse_size_table(PRACTICE, "practice"), "practice", current=[*current], **more)


def rows_problem(counts: dict[int, float], **more: Any) -> Problem:
    """A problem priced in rows, every size a candidate."""
    sizes = np.array(sorted(counts))
    weights = np.array([float(counts[size]) for size in sizes.tolist()])
    return Problem(sizes, weights, more.pop("candidates", sizes), Rows(), **more)


def replay_ms(bucket: float) -> float:
    """Step time of the worked example: 4.35 ms for eight rows, 0.24 ms a row."""
    return 2.43 + ROW_MS * bucket


def engine_rows(
    requested: Iterable[int],
    buckets: Iterable[int] = LADDER,
    *,
    eager_ms: float = SAVED_MS,
    noise_ms: float = 0.0,
    seed: int = 0,
    **columns: Any,
) -> list[dict[str, Any]]:
    """Decode steps one after the other: replayed, or eager and ``eager_ms`` slower."""
    random = np.random.default_rng(seed)
    ladder, rows, clock = sorted(buckets), [], 0.0
    for size in requested:
        bucket = next((b for b in ladder if b >= size), None)
        ms = replay_ms(size) + eager_ms if bucket is None else replay_ms(bucket)
        ms += noise_ms * random.standard_normal()
        reason = None if bucket else "over_max"
        rows.append(
            step(size, bucket, clock, dur_ns=round(ms * MS), reason=reason, **columns),
        )
        clock += ms
    return rows


def graphs_off_rows(requested: Iterable[int], **columns: Any) -> list[dict[str, Any]]:
    """The same steps with graphs off: 0.75 ms slower than replay of their own size."""
    rows, clock = [], 0.0
    for size in requested:
        ms = replay_ms(size) + SAVED_MS
        off = {"outcome": "eager", "mode": "eager", "reason": None, **columns}
        rows.append(step(size, None, clock, dur_ns=round(ms * MS), **off))
        clock += ms
    return rows


def summary(rows: Iterable[dict[str, Any]], **config: Any) -> Summary:
    """The summary of a trace of these rows, after a run event with ``config``."""
    return summarize(trace([event("run", config=config), *rows]))
