"""Requests of a trace in sums: how many, their tokens, and a histogram of their first tokens."""

from __future__ import annotations

import polars as pl

from graphdiag.periods import Periods
from graphdiag.sums import sum_by, sum_of, weight_of

REQUEST_KEYS = ("slice", "run", "period", "ttft_bin")
COLUMNS = ("tokens_in", "queued_ns", "ttft_ns")
"""What is read of a request beside what steps have too."""

BINS_PER_OCTAVE = 16
"""Neighbouring bins of a histogram of times differ by a factor 2**(1/16), 4.4 %."""

_SUMMED = ("dur_ns", "queued_ns", "ttft_ns", "tokens_in", "tokens_out")
_TIMED = ("dur_ns", "queued_ns")
_NONE = {
    **{"slice": pl.Int64, "run": pl.Categorical, "period": pl.UInt8, "ttft_bin": pl.Int16},
    **dict.fromkeys(("weight", *_SUMMED, *(f"{name}_weight" for name in _TIMED)), pl.Int64),
}
"""The table of no requests: most batches hold none."""


def time_bin(ns: pl.Expr) -> pl.Expr:
    """Expression: the bin of a time above 0 in ns: floor(16 log2)."""
    return (ns.cast(pl.Float64).log(2) * BINS_PER_OCTAVE).floor().cast(pl.Int16)


def middle_of_bin(bins: pl.Expr) -> pl.Expr:
    """Expression: the geometric middle of a bin of times, in ns."""
    return ((bins + 0.5) / BINS_PER_OCTAVE * pl.lit(2.0).log()).exp()


def request_sums(batch: pl.DataFrame, periods: Periods, shift: int) -> pl.DataFrame:
    """Return the requests of ``batch`` by :data:`REQUEST_KEYS`.

    A slice is ``t_ns >> shift`` of the arrival; ``ttft_bin`` is null where no first token came.
    """
    is_request = (batch["event"] == "request").fill_null(False)
    if not is_request.any():
        return pl.DataFrame(schema=_NONE)
    requests = batch.filter(is_request).with_columns(
        pl.col("weight").fill_null(1),
        (pl.col("t_ns") // (1 << shift)).alias("slice"),
        periods.code().alias("period"),
    )
    each = pl.col("ttft_ns") / pl.col("weight")
    requests = requests.with_columns(time_bin(pl.when(each >= 1).then(each)).alias("ttft_bin"))
    measures = {"weight": pl.col("weight")}
    measures |= {name: sum_of(name) for name in _SUMMED}
    measures |= {f"{name}_weight": weight_of(requests, name) for name in _TIMED}
    return sum_by(requests, REQUEST_KEYS, measures)
