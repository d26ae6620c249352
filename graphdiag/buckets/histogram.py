"""How often each size was requested, on the axis the engine's buckets count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from graphdiag.buckets.problem import Floats, Ints
from graphdiag.metrics import ELIGIBLE, is_real, is_target
from graphdiag.runconfig import capture_sizes
from graphdiag.summary import Summary

BUCKET_REASONS = ("over_max", "no_key", "not_captured")
"""Fallback reasons that a bucket could cure; for others the sizes are not the problem."""

PHASES: dict[str, tuple[str, ...]] = {
    "decode": ("decode", "verify"),
    "prefill": ("prefill", "mixed"),
}
"""Lists of buckets that an engine may keep apart, and the phases of steps each serves."""

Part = Literal["decode", "prefill"]

_READ = ("kind", "runner", "phase", "axis", "outcome", "reason", "requested", "bucket", "weight")


@dataclass(frozen=True)
class Histogram:
    """Steps by requested size that buckets decide about.

    Attributes
    ----------
    sizes, counts
        Requested sizes, ascending, and their steps, or shares where only those are known.
    axis
        What the sizes count, where the trace says it.
    captured
        Sizes the engine has now, ascending: configured, else captured, else seen replayed.
    over_time
        Steps by slice of time (rows, in order) and size (columns); None where steps have no times.
    is_share
        Whether ``counts`` are shares.
    """

    sizes: Ints
    counts: Floats
    axis: str | None
    captured: Ints
    over_time: Floats | None = None
    is_share: bool = False

    def up_to(self, size: int) -> Histogram:
        """Return the histogram without the steps that requested more than ``size``."""
        kept, over_time = self.sizes <= size, self.over_time
        return replace(
            self,
            sizes=self.sizes[kept],
            counts=self.counts[kept],
            over_time=None if over_time is None else over_time[:, kept],
        )


def histogram(
    summary: Summary, config: dict[str, Any], part: Part | None = None, *, graphs_off: bool = False
) -> Histogram:
    """Return the histogram of the target's real steps that a bucket serves or could serve.

    ``part`` leaves one of :data:`PHASES`; by default all phases on the axis of most steps.
    ``graphs_off`` takes the steps that were eager because graphs were off: what a bucket would
    serve once they are on.
    """
    served = _served(("eager",) if graphs_off else ELIGIBLE)
    groups = summary.groups.select(_READ).filter(served & in_part(part))
    axis = _axis(groups, config, part)
    on_axis = pl.lit(True) if axis is None else pl.col("axis").is_null() | (pl.col("axis") == axis)
    captured = np.empty(0, np.int64)
    if not graphs_off:
        captured = captured_sizes(summary, config, groups.filter(on_axis), part)
    top = int(captured[-1]) if len(captured) else 0
    curable = (
        (pl.col("outcome") != "fallback")
        | pl.col("reason").is_in(BUCKET_REASONS)
        | (pl.col("requested") > top)
    )
    wanted = on_axis & curable.fill_null(False)
    table = (
        groups.filter(wanted).group_by("requested").agg(pl.col("weight").sum()).sort("requested")
    )
    sizes = table["requested"].cast(pl.Int64).to_numpy()
    slices = summary.slices.lazy().filter(served & in_part(part) & wanted)
    return Histogram(
        sizes=sizes,
        counts=table["weight"].cast(pl.Float64).to_numpy(),
        axis=axis,
        captured=captured,
        over_time=_over_time(slices.select("slice", "requested", "weight").collect(), sizes),
    )


def in_part(part: Part | None) -> pl.Expr:
    """Expression: a step of ``part``'s phases; every step where ``part`` is None."""
    return pl.lit(True) if part is None else pl.col("phase").is_in(PHASES[part]).fill_null(False)


def captured_sizes(
    summary: Summary, config: dict[str, Any], rows: pl.DataFrame, part: Part | None = None
) -> Ints:
    """Return the sizes the engine has: configured, else captured, else replayed in ``rows``.

    The configured list is that of the axis it names; another part's is seen only from captures.
    """
    told = capture_sizes(config)
    if told and (part is None or _configured_part(config) in (None, part)):
        return np.array(told, dtype=np.int64)
    captured = (pl.col("event") == "capture") & is_target() & (in_part(part) | _no_phase(part))
    sizes = summary.events.filter(captured)["size"].drop_nulls()
    if sizes.is_empty():
        sizes = rows["bucket"].drop_nulls()
    return sizes.cast(pl.Int64).unique().sort().to_numpy()


def _served(outcomes: Sequence[str]) -> pl.Expr:
    return is_real() & is_target() & pl.col("outcome").is_in(outcomes) & (pl.col("requested") > 0)


def _no_phase(part: Part | None) -> pl.Expr:
    """Expression: an event of the part that an engine does not name: decode."""
    return pl.col("phase").is_null() if part == "decode" else pl.lit(False)


def _configured_part(config: dict[str, Any]) -> str | None:
    """Return whose list ``capture_sizes`` is: SGLang's counts requests, and is decode's."""
    return "decode" if config.get("engine") == "sglang" else None


def _over_time(slices: pl.DataFrame, sizes: Ints) -> Floats | None:
    times, at = np.unique(slices["slice"].to_numpy(), return_inverse=True)
    if len(times) < 2:
        return None
    cell = at * len(sizes) + np.searchsorted(sizes, slices["requested"].to_numpy())
    steps = np.bincount(cell, slices["weight"].to_numpy(), len(times) * len(sizes))
    return steps.astype(np.float64).reshape(len(times), len(sizes))


def _axis(rows: pl.DataFrame, config: dict[str, Any], part: Part | None) -> str | None:
    told = config.get("axis")
    if isinstance(told, str) and (part is None or _configured_part(config) in (None, part)):
        return told
    most = (
        rows.filter(pl.col("axis").is_not_null())
        .group_by("axis")
        .agg(pl.col("weight").sum())
        .sort("weight", "axis", descending=True)
    )
    return str(most["axis"][0]) if len(most) else None
