"""A service made by hand with everything on record that a page draws."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from graphdiag.bucket_advice import plan_beside
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.comparison.answer import Comparison
from graphdiag.comparison.compare import compare, run_of
from graphdiag.diagnosis import report_of
from graphdiag.findings import Report
from graphdiag.summary import Summary, summarize
from tests.build import MS, event, step, trace

Rows = list[dict[str, Any]]

BUCKETS = (8, 16, 32)
SIZES = (3, 8, 11, 16, 27, 40)
"""Of six steps two replay their size, three pad five rows, and one is over the largest bucket."""
STEPS = 600


def service(
    number: int = STEPS, reasons: tuple[str, ...] = ("over_max",), late: bool = True
) -> Rows:
    """Start-up, then ``number`` steps; halfway, where ``late``, one compiles again for 2 s."""
    config = {
        "engine": "vllm",
        "engine_version": "0.11.0",
        "axis": "requests",
        "mode": "FULL",
        "capture_sizes": list(BUCKETS),
        "max_num_seqs": 48,
    }
    rows = [event("run", -4000.0, config=config)]
    rows.append(event("compile", -3900.0, dur_ns=2000 * MS, artifact="region", cache="miss"))
    for place, bucket in enumerate(reversed(BUCKETS)):
        made = {"artifact": f"decode/{bucket}", "size": bucket, "kind": "cuda_graph"}
        at = -1500.0 + 100 * place
        rows.append(event("capture", at, dur_ns=90 * MS, pool_bytes=bucket << 20, **made))
    rows.append(
        event(
            "capture", -1000.0, dur_ns=90 * MS, pool_bytes=64 << 20, artifact="decode/64", size=64
        )
    )
    return [*rows, *_steps(number, reasons, late=late)]


def _steps(number: int, reasons: tuple[str, ...], *, late: bool) -> Iterator[dict[str, Any]]:
    now, reason = 0.0, cycle(reasons)
    for place, size in enumerate(islice(cycle(SIZES), number)):
        if late and place == number // 2:
            again = {"artifact": "region", "reason": "the size changed"}
            yield event("compile", now, dur_ns=2000 * MS, **again)
            now += 2000.0
        bucket = next((one for one in BUCKETS if one >= size), None)
        ms = 4.0 + 0.1 * (bucket or size) + (0.0 if bucket else 3.0)
        told = {
            "dur_ns": round(ms * MS),
            "tokens_out": size,
            "host_ns": MS if bucket else 4 * MS,
            "graph_launch_ns": MS // 10 if bucket else 0,
            "blocked_ns": MS // 2,
            "gpu_ns": 3 * MS,
            "gap_ns": 0 if bucket else MS,
            "launches": 5 if bucket else 400,
            "replays": 1 if bucket else 0,
            "kernels": 420,
        }
        if bucket is None:
            told["reason"] = next(reason)
        yield step(size, bucket, now, **told)
        now += ms


def summary(rows: Rows | None = None) -> Summary:
    """The summary of ``rows``, by default of the service."""
    return summarize(trace(service() if rows is None else rows, "service"))


def all_of(rows: Rows | None = None) -> tuple[Report, Summary, BucketAnswer | None]:
    """What the page of a report is drawn from."""
    told = summary(rows)
    report = report_of(told, "service")
    return report, told, plan_beside(report, told)


def both(base: Rows, candidate: Rows) -> tuple[Comparison, Summary, Summary]:
    """What the page of a comparison is drawn from."""
    runs = [
        run_of(trace(rows, name), name, None)
        for name, rows in (("base", base), ("candidate", candidate))
    ]
    return compare(*runs), runs[0].summary, runs[1].summary


def without(rows: Rows, *columns: str) -> Rows:
    """The rows as a source that does not record ``columns``."""
    return [{name: row[name] for name in row if name not in columns} for row in rows]
