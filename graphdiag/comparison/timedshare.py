"""Whether the steps that carry a time speak for those that carry none."""

from __future__ import annotations

import polars as pl

from graphdiag.metrics import is_real, is_target
from graphdiag.summary import Summary
from graphdiag.wording import count, percent

_FEW = 0.02
"""Share of the steps without a time up to which they cannot matter."""
_FAR = 0.05
"""Share of the steps that would have to be others for the timed ones to be like all."""
_CHANCE = 3.0
"""How many times further apart than a fair sample of them would be."""


def unlike_others(name: str, summary: Summary) -> str | None:
    """Return why the mean time of the timed steps is not that of all; None where it may be.

    Steps are held against each other by phase, bucket and what they did.
    """
    table = _by_kind(summary)
    steps, timed = int(table["steps"].sum()), int(table["timed"].sum())
    if not timed or timed >= (1 - _FEW) * steps:
        return None
    shares = (table["steps"] / steps).to_numpy()
    apart = abs(table["timed"].to_numpy() / timed - shares).sum() / 2
    chance = (shares * (1 - shares) / timed) ** 0.5
    if apart <= max(_FAR, _CHANCE * chance.sum() / 2):
        return None
    return (
        f"{count(steps - timed, 'step')} of the {name}'s {count(steps)} carry no time and are not "
        "like the others"
    )


def untimed(name: str, summary: Summary) -> str | None:
    """Return a remark on steps without a time, where there are any beside timed ones."""
    table = _by_kind(summary)
    steps, timed = int(table["steps"].sum()), int(table["timed"].sum())
    if not timed or timed == steps:
        return None
    return (
        f"{count(steps - timed, 'step')} of the {name} ({percent((steps - timed) / steps)}) carry "
        "no time: its times are means over the others."
    )


def _by_kind(summary: Summary) -> pl.DataFrame:
    return (
        summary.groups.filter(is_real() & is_target())
        .group_by("phase", "bucket", "outcome")
        .agg(pl.col("weight").sum().alias("steps"), pl.col("dur_ns_weight").sum().alias("timed"))
    )
