"""Why a trace is in too few stretches of time for an interval."""

from __future__ import annotations

import polars as pl

from graphdiag.bootstrap import LEAST_STRETCHES
from graphdiag.comparison.equaltraffic import SIDES
from graphdiag.metrics import is_real, is_target
from graphdiag.summary import Summary
from graphdiag.wording import count


def too_few(pair: tuple[Summary, Summary]) -> str | None:
    """Return why no interval can be drawn of base and candidate; None where one can be."""
    told = (_few(name, one) for name, one in zip(SIDES, pair, strict=True))
    return "; ".join(filter(None, told)) or None


def _few(name: str, summary: Summary) -> str | None:
    timed = is_real() & is_target() & (pl.col("dur_ns_weight") > 0)
    number = int(summary.groups.filter(timed)["dur_ns_weight"].sum())
    held = summary.slices.filter(timed)["slice"].n_unique()
    if held >= LEAST_STRETCHES or not number:
        return None
    if not held:
        return f"the steps of the {name} do not say when they began; record their times"
    told = count(number, "timed step")
    if number < LEAST_STRETCHES:
        return f"the {name} is too short ({told}) to be cut into stretches of time; record longer"
    return (
        f"the {told} of the {name} began in {count(held)} of the {LEAST_STRETCHES} stretches of "
        "time that it takes; check its clock, or record longer"
    )
