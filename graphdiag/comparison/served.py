"""What a run served within an objective, and when: tokens by their intervals, requests by TTFT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.bootstrap import LEAST_STRETCHES, RESAMPLES, block_draws
from graphdiag.metrics import is_real, is_replayed, is_target
from graphdiag.runconfig import last_config, positive_int
from graphdiag.steptable import Floats
from graphdiag.summary import Summary
from graphdiag.sums import Total
from graphdiag.trace import Trace

_NS_PER_MS = 1e6
_PROCESS = ("run", "rank", "pid")
_READ = ("event", "kind", "runner", "phase", "t_ns", "dur_ns", "tokens_out", "weight", *_PROCESS)
_KEYS = ("cold", "slice")


@dataclass(frozen=True)
class Served:
    """What a run produced, in all and within an objective.

    Attributes
    ----------
    tokens, met
        Produced in all, and within the objective.
    seconds
        From the first start to the last end.
    steady_tokens, steady_met, steady_seconds
        The same by slice of time, arrays of one length, start-up left out.
    requests, requests_met, steady_requests, steady_requests_met
        The requests behind them, where those are what the objective is about.
    """

    tokens: float
    met: float
    seconds: float
    steady_tokens: Floats
    steady_met: Floats
    steady_seconds: Floats
    requests: float = 0.0
    requests_met: float = 0.0
    steady_requests: float = 0.0
    steady_requests_met: float = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens/s within the objective, start-up included; None where none are on record.

        Requests of which none met it had no token within it, whether they tell their tokens or not.
        """
        if self.requests and not self.requests_met and self.seconds > 0:
            return 0.0
        return rate(self.met, self.tokens, self.seconds)[0]

    @property
    def slices(self) -> int:
        """Slices of time after start-up."""
        return len(self.steady_seconds)

    def resampled(self, seed: int) -> Floats | None:
        """Return tokens/s within the objective in each resample; None with too few slices.

        Start-up happens once: its tokens and its time are the same in all.
        """
        if self.slices < LEAST_STRETCHES or self.seconds <= 0:
            return None
        draws = block_draws(self.slices, RESAMPLES, seed)
        once = self.met - self.steady_met.sum(), self.seconds - self.steady_seconds.sum()
        rates: Floats = (once[0] + draws @ self.steady_met) / (
            once[1] + draws @ self.steady_seconds
        )
        return rates


_NOTHING = Served(0.0, 0.0, 0.0, np.empty(0), np.empty(0), np.empty(0))


def rate(met: float, of_all: float, seconds: float) -> tuple[float | None, float | None]:
    """Return what met the objective a second, and its share of all; None where there is none."""
    if not of_all or seconds <= 0:
        return None, None
    return met / seconds, met / of_all


def uses_graphs(summary: Summary) -> bool:
    """Say whether steps replayed graphs or ran compiled code."""
    ran = is_replayed() | (pl.col("mode") == "compiled")
    return not summary.groups.filter(is_real() & is_target() & ran).is_empty()


def measure_served(trace: Trace, summary: Summary, slo_itl_ms: float) -> Served:
    """Measure the tokens of ``trace`` that came within the objective, reading its steps once.

    A token of a step that decodes came as long after the one before it as this step ended after
    the last one that decoded on its rank, whatever ran in between. Requests whose prompts ran in
    between had their last token then. First tokens had none before them, and are left out.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    width = summary.slice_shift
    total = Total(_KEYS)
    before: dict[tuple[object, ...], pl.DataFrame] = {}
    for batch in trace.batches(_READ):
        steps = _steps(batch)
        for process, part in steps.partition_by(_PROCESS, as_dict=True).items():
            rows = part.drop(_PROCESS).sort("t_ns", maintain_order=True)
            if process in before:
                rows = pl.concat([before[process], rows])
            before[process] = _open(rows)
            rows = rows.with_columns(_within(slo_itl_ms).alias("met")).filter(~pl.col("seen"))
            run = pl.lit(process[0], pl.String).alias("run")
            total.add(_sums(rows.with_columns(run), summary, width))
    if not before:
        return _NOTHING
    table = total.table().sort("slice")
    copies = _copies(summary)
    steady = table.filter(~pl.col("cold"))
    produced, within = (steady[name].to_numpy() / copies for name in ("tokens", "met"))
    return Served(
        tokens=float(table["tokens"].sum()) / copies,
        met=float(table["met"].sum()) / copies,
        seconds=_span(table),
        steady_tokens=produced,
        steady_met=within,
        steady_seconds=_lengths(steady),
    )


def measure_requests(trace: Trace, summary: Summary, slo_ttft_ms: float) -> Served:
    """Measure the requests of ``trace`` whose first token came within the objective.

    A request that never had one has missed it.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    weight = pl.col("weight").fill_null(1)
    met = (pl.col("ttft_ns") <= slo_ttft_ms * _NS_PER_MS * weight).fill_null(False)
    tokens = pl.col("tokens_out").fill_null(0).cast(pl.Int64)
    width = summary.slice_shift
    table = trace.collect(
        trace.requests()
        .filter(pl.col("t_ns").is_not_null())
        .group_by(
            summary.periods.is_cold().alias("cold"), (pl.col("t_ns") // (1 << width)).alias("slice")
        )
        .agg(
            tokens.sum().alias("tokens"),
            tokens.filter(met).sum().alias("met"),
            weight.sum().alias("requests"),
            weight.filter(met).sum().alias("requests_met"),
            pl.col("t_ns").min().alias("t_min"),
            (pl.col("t_ns") + pl.col("dur_ns").fill_null(0)).max().alias("t_max"),
            pl.col("rank").n_unique().alias("ranks"),
        )
    ).sort("slice")
    most = table["ranks"].max()
    copies = _copies_of(summary, most if isinstance(most, int) else 1)
    steady = table.filter(~pl.col("cold"))

    def whole(part: pl.DataFrame, name: str) -> float:
        return float(part[name].sum()) / copies

    produced, within = (steady[name].to_numpy() / copies for name in ("tokens", "met"))
    return Served(
        tokens=whole(table, "tokens"),
        met=whole(table, "met"),
        seconds=_span(table),
        steady_tokens=produced,
        steady_met=within,
        steady_seconds=_lengths(steady),
        requests=whole(table, "requests"),
        requests_met=whole(table, "requests_met"),
        steady_requests=whole(steady, "requests"),
        steady_requests_met=whole(steady, "requests_met"),
    )


def _steps(batch: pl.DataFrame) -> pl.DataFrame:
    told = pl.col("dur_ns").is_not_null() & pl.col("tokens_out").is_not_null()
    steps = batch.filter(
        pl.col("event") == "step", is_real(), is_target(), told, pl.col("t_ns").is_not_null()
    )
    return steps.select(
        *_PROCESS,
        "t_ns",
        "dur_ns",
        pl.col("tokens_out").cast(pl.Int64).alias("tokens"),
        pl.col("weight").fill_null(1),
        (pl.col("phase") != "prefill").fill_null(True).alias("decodes"),
        pl.lit(False).alias("seen"),
    )


def _open(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what the next batch needs of a process: its last step that decoded, prompts since."""
    decoded = rows["decodes"].arg_true()
    since = rows[decoded[-1] :] if len(decoded) else rows
    prompts = since.filter(~pl.col("decodes"))
    one = prompts.head(1).with_columns(pl.lit(prompts["tokens"].sum(), pl.Int64).alias("tokens"))
    kept = pl.concat([since.filter("decodes"), one])
    return kept.with_columns(pl.lit(True).alias("seen"))


def _within(slo_itl_ms: float) -> pl.Expr:
    """Expression: the tokens of a step that came within the objective, over those of a process."""
    most, decodes, tokens = slo_itl_ms * _NS_PER_MS, pl.col("decodes"), pl.col("tokens")
    end = pl.col("t_ns") + pl.col("dur_ns")
    own = pl.col("dur_ns") / pl.col("weight")

    def last(what: pl.Expr) -> pl.Expr:
        return pl.when(decodes).then(what).forward_fill().shift(1)

    begun = pl.when(decodes).then(0).otherwise(tokens).cum_sum()
    fresh = pl.min_horizontal(begun - last(begun).fill_null(0), tokens)
    prompts = pl.when(~decodes & decodes.shift(1).fill_null(True)).then(end).forward_fill()
    # A row of several steps has one time for all; a clock that was set back tells no interval.
    since = pl.when((pl.col("weight") == 1) & (last(end) < end)).then(end - last(end))
    after_prompts = pl.when(fresh > 0).then(end - prompts).otherwise(own)
    met = (tokens - fresh) * (since.otherwise(own) <= most) + fresh * (after_prompts <= most)
    return pl.when(decodes).then(met).otherwise(0)


def _sums(steps: pl.DataFrame, summary: Summary, width: int) -> pl.DataFrame:
    tokens = pl.when("decodes").then("tokens").otherwise(0)
    return steps.group_by(
        summary.periods.is_cold().alias("cold"), (pl.col("t_ns") // (1 << width)).alias("slice")
    ).agg(
        tokens.sum().alias("tokens"),
        pl.col("met").sum(),
        pl.col("t_ns").min().alias("t_min"),
        (pl.col("t_ns") + pl.col("dur_ns")).max().alias("t_max"),
    )


def _copies(summary: Summary) -> int:
    """Return how many ranks record each step: those of one engine produce the same tokens."""
    steps = summary.groups.filter(is_real() & is_target() & (pl.col("tokens_out") > 0))
    ranks = steps.group_by("run").agg(pl.col("rank").n_unique())["rank"].max()
    return _copies_of(summary, ranks if isinstance(ranks, int) else 1)


def _copies_of(summary: Summary, ranks: int) -> int:
    engines = positive_int(last_config(summary.events), "data_parallel") or 1
    return max(ranks // engines, 1)


def _span(table: pl.DataFrame) -> float:
    first, last = table["t_min"].min(), table["t_max"].max()
    return (last - first) / 1e9 if isinstance(first, int) and isinstance(last, int) else 0.0


def _lengths(steady: pl.DataFrame) -> Floats:
    """Return how long each slice is in s: from its first start to that of the next."""
    if steady.is_empty():
        return np.empty(0)
    starts = steady["t_min"].to_numpy().astype(np.float64)
    ends = np.append(starts[1:], steady["t_max"].to_numpy().max())
    lengths: Floats = np.maximum(ends - starts, 0.0) / 1e9
    return lengths
