"""Small traces made by hand, and what comparing two of them gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graphdiag.comparison.answer import Comparison
from graphdiag.comparison.compare import Slo, compare, run_of
from tests.build import MS, event, step, trace

Rows = list[dict[str, Any]]
SLOPE_MS = 0.24
SIZES = (3, 11, 27)
"""The base's batch sizes: their mean is 13.67, and each is 5 rows below a bucket."""
BUCKETS = (8, 16, 32)


def compared(base: Iterable[Any], candidate: Iterable[Any], slo: Slo | None = None) -> Comparison:
    """Compare two lists of rows."""
    runs = [
        run_of(trace(list(rows), name), name, slo)
        for name, rows in (("base", base), ("candidate", candidate))
    ]
    return compare(*runs, slo)


def configured(rows: Rows, at_ms: float = -1.0, **config: Any) -> Rows:
    """The rows after a run event with ``config``."""
    return [event("run", at_ms, config=config), *rows]


def steps(
    sizes: Iterable[int],
    number: int,
    of: Callable[[int], dict[str, Any]],
    start_ms: float = 0.0,
) -> Rows:
    """Steps one after the other; ``of`` gives the columns of a size, ``ms`` among them."""
    return list(_steps(sizes, number, of, start_ms))


def _steps(
    sizes: Iterable[int], number: int, of: Callable[[int], dict[str, Any]], now: float
) -> Iterator[dict[str, Any]]:
    for size in itertools.islice(itertools.cycle(sizes), number):
        columns = of(size)
        ms = columns.pop("ms")
        bucket = columns.pop("bucket", None)
        told = {"tokens_out": size, "dur_ns": round(ms * MS), **columns}
        yield step(size, bucket, now, **told)
        now += ms


def eager(size: int) -> dict[str, Any]:
    """An eager step of chapter one: 5.2 ms on average over ``SIZES``, 0.9 of them launch gaps."""
    return {"ms": 5.2 + SLOPE_MS * (size - sum(SIZES) / len(SIZES)), "outcome": "eager"}


def replayed(size: int, buckets: Iterable[int] = BUCKETS, launch_ms: float = 0.2) -> dict[str, Any]:
    """A step that replays the next of ``buckets``, with ``launch_ms`` of launch gaps left."""
    bucket = next(one for one in buckets if one >= size)
    return {"ms": eager(bucket)["ms"] - 0.9 + launch_ms, "bucket": bucket}


def chapter_one(number: int = 600) -> tuple[Rows, Rows]:
    """The service that lost: eager steps, then replays that pad five rows each."""
    base = configured(steps(SIZES, number, eager), engine="mine", mode="NONE", capture_sizes=[])
    captures = [
        event("capture", -300.0 + 100 * i, artifact=f"decode/{b}", size=b, dur_ns=90 * MS, kind="g")
        for i, b in enumerate(reversed(BUCKETS))
    ]
    candidate = configured(
        [*captures, *steps(SIZES, number, replayed)],
        at_ms=-400.0,
        engine="mine",
        mode="FULL",
        capture_sizes=list(BUCKETS),
    )
    return base, candidate
