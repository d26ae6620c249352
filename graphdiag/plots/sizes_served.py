"""What steps asked for and what served them, as it happened."""

from __future__ import annotations

from graphdiag.findings import Report, SizeCost, SizeRow
from graphdiag.metrics import ELIGIBLE
from graphdiag.plots.bucket_sizes import Asked, histogram
from graphdiag.plots.picture import Picture, Words

NO_SIZES = (
    "What a step asked for was not recorded: record the engine with graphdiag record, or read a "
    "server log that tells the sizes."
)
GRAPHS_OFF = (
    "No step is known to be one that graphs should have served: graphs are off, or the source does "
    "not tell the bucket; graphdiag record does."
)


def sizes_served(report: Report) -> Picture | Words:
    """Return the histogram of the sizes that graphs should have served, as they were served.

    As :func:`graphdiag.plots.requested_sizes`, but of all steps on record: also of those that a
    fallback trap made, which say nothing of the traffic and are in no plan.
    """
    rows = [row for row in report.sizes if row.outcome in ELIGIBLE]
    if not rows:
        return Words(GRAPHS_OFF if report.sizes else NO_SIZES)
    plan, captured = report.recommendation, report.engine.get("capture_sizes")
    told = captured if isinstance(captured, list) else []
    known = [size for size in told if isinstance(size, int) and size > 0]
    replayed = {row.bucket for row in rows if row.bucket is not None}
    axis = report.engine.get("axis")
    return histogram(
        Asked(
            sizes=[_size(row) for row in rows],
            shares=False,
            axis=axis if axis in ("tokens", "requests") else None,
            captured=sorted(known or replayed),
            recommended=[] if plan is None else plan.buckets,
        )
    )


def _size(row: SizeRow) -> SizeCost:
    """Return a row as what is drawn; the bucket of a fallback is what it would have needed."""
    bucket = None if row.outcome == "fallback" else row.bucket
    return SizeCost(
        requested=row.requested,
        steps=row.steps,
        bucket=bucket,
        padded_rows=None if bucket is None else bucket - row.requested,
        replay_ms=row.step_ms if bucket else None,
        eager_ms=None if bucket else row.step_ms,
        padded_ms=None,
        launch_saving_ms=None,
        net_ms=None,
    )
