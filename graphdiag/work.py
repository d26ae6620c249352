"""Compile and capture time that fell into the measured window: start-up's, and what came later."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from graphdiag.insteps import split_events
from graphdiag.metrics import is_real, is_target, slowest_rank_seconds
from graphdiag.periods import STEADY
from graphdiag.summary import Summary


@dataclass(frozen=True)
class Work:
    """Compile and capture work that fell into the measured window, and what it touched.

    The window of a run is from its first real step to its last: the start-up of a second run, after
    the first one's steps, is in no window.

    Attributes
    ----------
    window_ns
        The windows of all runs together.
    in_start_up, in_steady
        Time in ns that start-up took inside the window, and that came later; None where such work
        is on record but none of it with a time.
    between_start_up, between_later
        The part of both, ns, that fell between steps: it is in no step's time.
    steady_count
        Captures and compilations after start-up.
    steps_touched
        Steps after start-up that captured or compiled.
    later
        Events of the captures and compilations after start-up.
    """

    window_ns: int
    in_start_up: float | None
    in_steady: float | None
    between_start_up: float
    between_later: float
    steady_count: int
    steps_touched: int
    later: pl.DataFrame


def work_in_window(summary: Summary) -> Work:
    """Measure the compile and capture work between each run's first and last real step."""
    steps = summary.groups.filter(is_real() & is_target())
    windows = (
        steps.group_by("run")
        .agg(pl.col("t_min").min().alias("first"), pl.col("t_max").max().alias("last"))
        .drop_nulls(["first", "last"])
    )
    end = pl.col("t_ns") + pl.col("dur_ns").fill_null(0)
    inside = (
        summary.events.filter(pl.col("event").is_in(["capture", "compile"]))
        .join(windows, on="run", nulls_equal=True)
        .filter((end >= pl.col("first")) & (pl.col("t_ns") < pl.col("last")))
        .with_columns(
            pl.when(pl.col("dur_ns").is_not_null()).then(
                pl.min_horizontal("dur_ns", end - pl.col("first"))
            )
        )
    )
    cold = summary.periods.is_start_up()
    again = (pl.col("event") == "compile") & pl.col("reason").is_not_null()
    in_step, between = split_events(inside, summary.periods.in_steps)
    start_up, later = between.filter(cold & ~again), between.filter(~cold | again)
    in_steps = steps.filter((pl.col("outcome") == "capture") | (pl.col("compile_steps") > 0))
    step_cold = in_steps.filter(pl.col("period") != STEADY)
    step_later = in_steps.filter(pl.col("period") == STEADY)
    captured = pl.col("outcome").eq_missing(pl.lit("capture"))
    steps_in_group = pl.when(captured).then("weight").otherwise("compile_steps")
    steadily = in_step.filter(summary.periods.is_steady(pl.col("step_ns"))).drop("step_ns")
    all_later = pl.concat([later, steadily]).sort("t_ns", maintain_order=True)
    touched = int(step_later.select(steps_in_group.sum()).item() or 0)
    return Work(
        window_ns=int((windows["last"] - windows["first"]).sum()),
        in_start_up=_time(start_up, step_cold),
        in_steady=_time(later, step_later),
        between_start_up=slowest_rank_seconds(start_up) * 1e9,
        between_later=slowest_rank_seconds(later) * 1e9,
        steady_count=max(int(all_later["weight"].fill_null(1).sum()), touched),
        steps_touched=touched,
        later=all_later,
    )


def _time(events: pl.DataFrame, steps: pl.DataFrame) -> float | None:
    """Ns of events between steps and of work inside steps; None where neither tells any."""
    told = slowest_rank_seconds(events) * 1e9 + _spent(steps)
    if told == 0 and not events.is_empty() and events["dur_ns"].null_count() == len(events):
        return None
    return told


def _spent(steps: pl.DataFrame) -> float:
    """Ns of compiling inside steps; a step that captured and does not say how long counts whole."""
    whole = pl.when((pl.col("outcome") == "capture") & (pl.col("compile_ns") == 0))
    return float(steps.select(whole.then("dur_ns").otherwise("compile_ns").sum()).item() or 0)
