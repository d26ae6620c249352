"""Counts and rates over a part of a summary: exact hits, fallback, padding, compile, capture."""

from __future__ import annotations

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
    work = summary.events if events is None else summary.events.filter(events)
    count: dict[str | None, int] = dict(
        chosen.group_by("outcome").agg(pl.col("weight").sum()).iter_rows()
    )
    unknown = _sum(chosen.filter(is_replayed() & pl.col("outcome").is_null()), pl.col("weight"))
    known = sum(count.get(outcome, 0) for outcome in ELIGIBLE)
    eligible = known + unknown
    replayed = chosen.filter(pl.col("outcome").is_in(REPLAYED) & has_sizes())
    requested = _sum(replayed, pl.col("requested") * pl.col("weight"))
    executed = _sum(replayed, pl.col("bucket") * pl.col("weight"))
    compiles = work.filter(pl.col("event") == "compile")
    captures = work.filter(pl.col("event") == "capture")
    artifacts = pl.concat(
        [work.filter(pl.col("event").is_in(["compile", "capture"]))["artifact"], chosen["artifact"]]
    )
    timed = _sum(chosen, pl.col("dur_ns_weight"))
    quantiles = step_quantiles(summary.durations.filter(is_real() & steps), (0.5, 0.99))
    return Metrics(
        steps=_sum(chosen, pl.col("weight")),
        eligible_steps=eligible,
        exact_hit_rate=None if unknown else _ratio(count.get("exact", 0), known),
        padded_share=None if unknown else _ratio(count.get("padded", 0), known),
        fallback_rate=_ratio(count.get("fallback", 0), eligible),
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
        step_ms_mean=_ratio(_sum(chosen, pl.col("dur_ns")) / 1e6, timed),
        step_ms_p50=quantiles[0],
        step_ms_p99=quantiles[1],
        timed_steps=timed,
    )


def most_made(work: pl.DataFrame) -> int:
    """Return the captures and compilations of the run and process with most, named or not."""
    made = (
        work.filter(pl.col("event").is_in(["compile", "capture"]))
        .group_by("run", "rank", "pid")
        .agg(pl.col("weight").fill_null(1).sum())
    )
    most = made["weight"].max()
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
        durations.group_by("duration_bin")
        .agg(pl.col("weight").sum())
        .sort("duration_bin")
        .with_columns(middle_of_bin(pl.col("duration_bin")).alias("ns"))
    )
    total = _sum(bins, pl.col("weight"))
    if not total:
        return [None] * len(quantiles)
    below = bins["weight"].cum_sum()
    return [float(bins["ns"][int((below < q * total).sum())]) / 1e6 for q in quantiles]


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


def _sum(table: pl.DataFrame, what: pl.Expr) -> int:
    return int(table.select(what.cast(pl.Int64).sum()).item() or 0)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
