"""What a stretch of a trace's time leaves of the rows that are no steps."""

from __future__ import annotations

import polars as pl

from graphdiag.timerange import TimeRange
from graphdiag_collectors.schema import DROPPED, HOOK_OFF


def events_within(events: pl.DataFrame, window: TimeRange) -> pl.DataFrame:
    """Return the events that bear on the steps of ``window``, in their order.

    Those that began in it; the configuration of what had started before its end, or the first where
    the steps' clock is another's and none had; what was lost or switched off, which no step can
    tell. A capture or compilation before it still serves steps, and holds memory: it stays on
    record with weight 0 and without its time.
    """
    time, event = pl.col("t_ns"), pl.col("event")
    began = (time < window.end_ns).fill_null(True)
    is_run = event == "run"
    off = (event == "mark") & (pl.col("kind") == HOOK_OFF).fill_null(False)
    started = events.filter(is_run)
    if len(started) and started.filter(began).is_empty():
        first = started.sort("t_ns", maintain_order=True)["run"][0]
        began = began | (is_run & pl.col("run").eq_missing(pl.lit(first)))
    lost = (event == "mark") & (pl.col("kind") == DROPPED).fill_null(False)
    made = event.is_in(["capture", "compile"]) & (time < window.start_ns).fill_null(True)
    return events.filter(((is_run | off) & began) | lost | made | window.holds()).with_columns(
        pl.when(~made).then("dur_ns").alias("dur_ns"),
        pl.when(made).then(pl.lit(0, pl.Int64)).otherwise("weight").alias("weight"),
    )
