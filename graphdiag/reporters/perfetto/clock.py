"""The clock of a trace-event file: microseconds after a base, as the torch profiler counts them."""

from __future__ import annotations

import polars as pl

_QUARTER_NS = 7_889_238_000_000_000
"""The profiler's bases are multiples of a quarter of a year."""
_REAL_NS = 10**18
"""Wall clocks are beyond this (2001); what is not counts from where it likes."""


def base_of(first_ns: int) -> int:
    """Return the base, ns, that a profiler counts from whose trace begins with ``first_ns``."""
    return first_ns // _QUARTER_NS * _QUARTER_NS if first_ns >= _REAL_NS else 0


def microseconds(ns: pl.Expr) -> pl.Expr:
    """Expression: ns as microseconds in decimal text, to the nanosecond."""
    size = ns.abs()
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    fraction = (size % 1000).cast(pl.String).str.zfill(3)
    return pl.concat_str(sign, (size // 1000).cast(pl.String), pl.lit("."), fraction)
