"""Counts and rates over a part of a summary: exact hits, fallback, padding, compile, capture."""

from __future__ import annotations

import numpy as np
import polars as pl

from graphdiag.findings import Metrics
from graphdiag.periods import COLD, PERIODS, STEADY
from graphdiag.requesttimes import middle_of_bin
from graphdiag.runconfig import positive_int, run_configs
from graphdiag.summary import Summary
from graphdiag_collectors.schema import DROPPED

REPLAYED = ("exact", "padded")
ELIGIBLE = ("exact", "padded", "fallback")
_GRAPH_MODES = ("full", "piecewise", "breakable")
"""Outcomes of the steps that graphs should have served."""


def is_real() -> pl.Expr:
    """Expression: a step the scheduler asked for, not a dummy, warm-up, profile or filler."""
    return pl.col("kind").is_null()


def is_target() -> pl.Expr:
    """Expression: a step of the model itself, not of its drafter or encoder."""
    return pl.col("runner").is_null() | (pl.col("runner") == "target")


def is_replayed() -> pl.Expr:
    """Expression: a step that replayed a graph, whether or not its bucket is known."""
    unknown_bucket = pl.col("outcome").is_null() & pl.col("mode").is_in(_GRAPH_MODES)
    return (pl.col("outcome").is_in(REPLAYED) | unknown_bucket).fill_null(False)


def has_sizes() -> pl.Expr:
    """Expression: a replay whose two sizes are known; the summary leaves out impossible ones."""
    return pl.col("requested").is_not_null() & pl.col("bucket").is_not_null()


def measure(summary: Summary, steps: pl.Expr, events: pl.Expr | None = None) -> Metrics:
    """Return the metrics of the real steps that ``steps`` selects.

    Parameters
    ----------
    summary
        Where the numbers come from.
    steps
        Expression over :attr:`Summary.groups` and :attr:`Summary.durations`: their shared keys
        ``run``, ``runner``, ``phase``, ``outcome``, ``bucket``, ``period``.
    events
        Expression over :attr:`Summary.events` for the compile and capture figures; all by default.
    """
    chosen = summary.groups.filter(is_real() & steps)
    work = summary.events.filter(
        pl.col("event").is_in(["compile", "capture"]) & (pl.lit(True) if events is None else events)
    )
    weight, outcome = pl.col("weight"), pl.col("outcome")
    of_known_sizes = outcome.is_in(REPLAYED) & has_sizes()
    total = _sums(
        chosen,
        steps=weight,
        unknown=weight.filter(is_replayed() & outcome.is_null()),
        **{one: weight.filter(outcome == one) for one in ELIGIBLE},
        requested=(pl.col("requested") * weight).filter(of_known_sizes),
        executed=(pl.col("bucket") * weight).filter(of_known_sizes),
        timed=pl.col("dur_ns_weight"),
        dur_ns=pl.col("dur_ns"),
    )
    known, unknown = sum(total[one] for one in ELIGIBLE), total["unknown"]
    requested, executed = total["requested"], total["executed"]
    compiles = work.filter(pl.col("event") == "compile")
    captures = work.filter(pl.col("event") == "capture")
    artifacts = pl.concat([work["artifact"], chosen["artifact"]])
    quantiles = step_quantiles(summary.durations.filter(is_real() & steps), (0.5, 0.99))
    return Metrics(
        steps=total["steps"],
        eligible_steps=known + unknown,
        exact_hit_rate=None if unknown else _ratio(total["exact"], known),
        padded_share=None if unknown else _ratio(total["padded"], known),
        fallback_rate=_ratio(total["fallback"], known + unknown),
        padding_ratio=_ratio(executed - requested, requested),
        waste=_ratio(executed - requested, executed),
        compile_count=_sum(
            compiles.filter(pl.col("cache").is_null() | (pl.col("cache") != "hit")),
            pl.col("weight").fill_null(1),
        ),
        compile_seconds=slowest_rank_seconds(compiles),
        capture_count=_sum(captures, pl.col("weight").fill_null(1)),
        capture_seconds=slowest_rank_seconds(captures),
        graph_bytes=graph_bytes(summary.events),
        unique_artifacts=max(artifacts.drop_nulls().n_unique(), most_made(work)),
        dropped_rows=_sum(
            summary.events.filter((pl.col("event") == "mark") & (pl.col("kind") == DROPPED)),
            pl.col("weight").fill_null(1),
        ),
        step_ms_mean=_ratio(total["dur_ns"] / 1e6, total["timed"]),
        step_ms_p50=quantiles[0],
        step_ms_p99=quantiles[1],
        timed_steps=total["timed"],
    )


def most_made(work: pl.DataFrame) -> int:
    """Return the captures and compilations (``work``) of the run and process with most."""
    most = (
        work.group_by("run", "rank", "pid").agg(pl.col("weight").fill_null(1).sum())["weight"].max()
    )
    return most if isinstance(most, int) else 0


def by_phase(summary: Summary) -> dict[str, Metrics]:
    """Return metrics of the target's steps by phase; steps without one are ``unknown``."""
    return _by_word(summary, "phase", is_target())


def by_runner(summary: Summary) -> dict[str, Metrics]:
    """Return metrics by runner; steps without one are the ``target``'s."""
    named = pl.col("runner").fill_null("target")
    runners = summary.groups.filter(is_real()).select(named)["runner"].unique().sort()
    return {runner: measure(summary, named == runner, named == runner) for runner in runners}


def by_period(summary: Summary) -> dict[str, Metrics]:
    """Return metrics of the target's steps by period; compiles and captures by when they began.

    Compiles and captures whose time the source does not tell are in no period.
    """
    cold = summary.periods.is_start_up()
    started = {PERIODS[COLD]: cold, PERIODS[STEADY]: ~cold & pl.col("t_ns").is_not_null()}
    return {
        name: measure(
            summary, is_target() & (pl.col("period") == code), started.get(name, pl.lit(False))
        )
        for code, name in enumerate(PERIODS)
    }


def step_quantiles(durations: pl.DataFrame, quantiles: tuple[float, ...]) -> list[float | None]:
    """Return step-time quantiles in ms from the histogram, to within its bin (4.4 %)."""
    bins = (
        durations.lazy()
        .group_by("duration_bin")
        .agg(pl.col("weight").sum())
        .sort("duration_bin")
        .select(middle_of_bin(pl.col("duration_bin")).alias("ns"), pl.col("weight").cum_sum())
        .collect()
    )
    below = bins["weight"].to_numpy()
    if not below.any():
        return [None] * len(quantiles)
    return [float(bins["ns"][int(np.searchsorted(below, q * below[-1]))]) / 1e6 for q in quantiles]


def slowest_rank_seconds(events: pl.DataFrame) -> float:
    """Return wall seconds of ``events``: summed in each process, the slowest rank of each run.

    Ranks compile and capture at the same time, so their times do not add.
    """
    if events.is_empty():
        return 0.0
    per_rank = events.group_by("run", "rank", "pid").agg(pl.col("dur_ns").sum())
    per_run = per_rank.group_by("run").agg(pl.col("dur_ns").max())
    return int(per_run["dur_ns"].sum()) / 1e9


def graph_bytes(events: pl.DataFrame) -> int | None:
    """Return device bytes the graphs hold on the rank that holds most, or None if not recorded."""
    grown = events.filter((pl.col("event") == "capture") & pl.col("pool_bytes").is_not_null())
    if not grown.is_empty():
        per_rank = grown.group_by("run", "rank", "pid").agg(pl.col("pool_bytes").sum())
        most = per_rank["pool_bytes"].max()
        return most if isinstance(most, int) else None
    told = [positive_int(config, "graph_bytes") for config in run_configs(events).values()]
    return max((value for value in told if value is not None), default=None)


def _by_word(summary: Summary, key: str, which: pl.Expr) -> dict[str, Metrics]:
    found = summary.groups.filter(is_real() & which)[key].unique().sort(nulls_last=True)
    result = {}
    for word in found:
        same = pl.col(key).is_null() if word is None else pl.col(key) == word
        result["unknown" if word is None else str(word)] = measure(
            summary, which & same, which & same
        )
    return result


def _sums(table: pl.DataFrame, **what: pl.Expr) -> dict[str, int]:
    return table.select(**{name: one.cast(pl.Int64).sum() for name, one in what.items()}).row(
        0, named=True
    )


def _sum(table: pl.DataFrame, what: pl.Expr) -> int:
    return int(table.select(what.cast(pl.Int64).sum()).item())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
