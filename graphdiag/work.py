"""Compile and capture time that fell into the measured window: start-up's, and what came later."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from graphdiag.metrics import is_real, is_target, slowest_rank_seconds
from graphdiag.periods import COLD
from graphdiag.summary import Summary


@dataclass(frozen=True)
class Work:
    """Compile and capture time in ns that fell into the measured window, and what it touched."""

    in_start_up: float
    in_steady: float
    steady_count: int
    steps_touched: int


def work_in_window(summary: Summary) -> Work:
    """Measure the compile and capture time between the first and the last real step."""
    steps = summary.groups.filter(is_real() & is_target())
    first, last = steps["t_min"].min(), steps["t_max"].max()
    made = summary.events.filter(pl.col("event").is_in(["capture", "compile"]))
    if isinstance(first, int) and isinstance(last, int):
        end = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)
        made = made.filter((end > first) & (pl.col("t_ns") < last)).with_columns(
            pl.min_horizontal("dur_ns", end - first)
        )
    else:
        made = made.clear()
    cold = summary.periods.is_start_up()
    again = (pl.col("event") == "compile") & pl.col("reason").is_not_null()
    start_up, later = made.filter(cold & ~again), made.filter(~cold | again)
    in_steps = steps.filter((pl.col("outcome") == "capture") | (pl.col("compile_ns") > 0))
    step_cold, step_later = (
        in_steps.filter(pl.col("period") == COLD),
        in_steps.filter(pl.col("period") != COLD),
    )
    return Work(
        in_start_up=max(slowest_rank_seconds(start_up) * 1e9, _spent(step_cold)),
        in_steady=max(slowest_rank_seconds(later) * 1e9, _spent(step_later)),
        steady_count=max(int(later["weight"].fill_null(1).sum()), int(step_later["weight"].sum())),
        steps_touched=int(step_later["weight"].sum()),
    )


def _spent(steps: pl.DataFrame) -> float:
    """Ns of compiling inside steps; a step that captured and does not say how long counts whole."""
    whole = pl.when((pl.col("outcome") == "capture") & (pl.col("compile_ns") == 0))
    return float(steps.select(whole.then("dur_ns").otherwise("compile_ns").sum()).item() or 0)
