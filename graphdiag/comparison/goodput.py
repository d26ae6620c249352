"""Goodput: tokens a second that met the objective, start-up included and left out.

A token meets the inter-token objective when the step that produced it took no longer. A trace says
when steps began, not when requests arrived, so that it cannot tell the time to a first token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from graphdiag.bootstrap import LEAST_STRETCHES, RESAMPLES, block_draws, half_width
from graphdiag.comparison.answer import Goodput, Interval, Objectives, StartUp
from graphdiag.metrics import is_real, is_target
from graphdiag.runconfig import last_config, positive_int
from graphdiag.steptable import Floats
from graphdiag.summary import Summary
from graphdiag.trace import Trace
from graphdiag.wording import duration, measure

_NS_PER_MS = 1e6
_SLICE_BITS = 4
"""Slices of time are as long as those of :attr:`graphdiag.summary.Summary.slices`."""


@dataclass(frozen=True)
class Served:
    """Tokens that the steps of a trace produced, and when.

    Attributes
    ----------
    tokens, met
        Produced in all, and in steps within the objective.
    seconds
        From the first step to the end of the last.
    steady_tokens, steady_met, steady_seconds
        The same by slice of time, arrays of one length, start-up left out.
    """

    tokens: float
    met: float
    seconds: float
    steady_tokens: Floats
    steady_met: Floats
    steady_seconds: Floats

    def goodput(self) -> Goodput:
        """Return the rates; null where no step tells its tokens or its time."""
        steady = [
            float(part.sum()) for part in (self.steady_tokens, self.steady_met, self.steady_seconds)
        ]
        whole = _rate(self.met, self.tokens, self.seconds)
        later = _rate(steady[1], steady[0], steady[2])
        return Goodput(
            tokens_per_s=whole[0],
            share=whole[1],
            steady_tokens_per_s=later[0],
            steady_share=later[1],
        )

    def resampled(self, seed: int) -> Floats | None:
        """Return tokens/s within the objective in each resample; None with too few slices.

        Start-up happens once: its tokens and its time are the same in all.
        """
        slices = len(self.steady_seconds)
        if slices < LEAST_STRETCHES or self.seconds <= 0:
            return None
        draws = block_draws(slices, RESAMPLES, seed)
        once = self.met - self.steady_met.sum(), self.seconds - self.steady_seconds.sum()
        rates: Floats = (once[0] + draws @ self.steady_met) / (
            once[1] + draws @ self.steady_seconds
        )
        return rates


def measure_served(trace: Trace, summary: Summary, slo_itl_ms: float) -> Served:
    """Measure what ``trace`` served within the objective, reading its steps once.

    Raises
    ------
    SourceError
        When a part of the trace turns out to be damaged or gone.
    """
    weight = pl.col("weight").fill_null(1)
    end = pl.col("t_ns") + pl.col("dur_ns")
    met = pl.col("dur_ns") <= slo_itl_ms * _NS_PER_MS * weight
    width = summary.shift + _SLICE_BITS
    steps = trace.steps().filter(
        is_real(),
        is_target(),
        pl.col("dur_ns").is_not_null() & pl.col("tokens_out").is_not_null(),
        pl.col("t_ns").is_not_null(),
    )
    tokens = pl.col("tokens_out").cast(pl.Int64)
    table = trace.collect(
        steps.with_columns(
            summary.periods.is_cold().alias("cold"), (pl.col("t_ns") // (1 << width)).alias("slice")
        )
        .group_by("cold", "slice")
        .agg(
            tokens.sum().alias("tokens"),
            tokens.filter(met).sum().alias("met"),
            pl.col("t_ns").min().alias("first"),
            end.max().alias("last"),
        )
    ).sort("slice")
    steady = table.filter(~pl.col("cold"))
    copies = _copies(summary)
    produced, within = (steady[name].to_numpy() / copies for name in ("tokens", "met"))
    return Served(
        tokens=float(table["tokens"].sum()) / copies,
        met=float(table["met"].sum()) / copies,
        seconds=_span(table),
        steady_tokens=produced,
        steady_met=within,
        steady_seconds=_lengths(steady),
    )


def judge(
    served: tuple[Served | None, Served | None],
    starts: tuple[StartUp, StartUp],
    slo_itl_ms: float | None,
    slo_ttft_ms: float | None,
    *,
    same_traffic: bool = True,
) -> Objectives:
    """Say whether the candidate improves the service after its full cost, start-up included.

    ``served`` and ``starts`` are the base's and the candidate's; nothing was served where no
    inter-token objective was given. On other traffic the answer says that it is.
    """
    base, candidate = (_NOTHING if one is None else one.goodput() for one in served)
    gain, ci95 = _gain(served)
    succeeded = None if gain is None else (ci95[0] if ci95 else gain) > 0
    repaid = _repaid(base, gain, starts) if succeeded else None
    return Objectives(
        slo_itl_ms=slo_itl_ms,
        slo_ttft_ms=slo_ttft_ms,
        base=base,
        candidate=candidate,
        gain_tokens_per_s=gain,
        gain_ci95=ci95,
        repaid_after_s=repaid,
        succeeded=succeeded,
        sentence=_sentence(base, candidate, gain, succeeded, repaid, slo_itl_ms, same_traffic),
    )


_NOTHING = Goodput(tokens_per_s=None, share=None, steady_tokens_per_s=None, steady_share=None)


def _gain(served: tuple[Served | None, Served | None]) -> tuple[float | None, Interval]:
    base, candidate = served
    if base is None or candidate is None:
        return None, None
    before, after = (one.goodput().tokens_per_s for one in (base, candidate))
    if before is None or after is None:
        return None, None
    gain = after - before
    first, second = base.resampled(0), candidate.resampled(1)
    if first is None or second is None:
        return gain, None
    slices = min(len(base.steady_seconds), len(candidate.steady_seconds))
    half = half_width(second - first, slices)
    return gain, (gain - half, gain + half)


def _repaid(base: Goodput, gain: float | None, starts: tuple[StartUp, StartUp]) -> float | None:
    """Return after how many seconds of service a longer start is made up for."""
    first, second = (start.first_step_s for start in starts)
    if first is None or second is None or base.tokens_per_s is None or not gain:
        return None
    return max(second - first, 0.0) * base.tokens_per_s / gain


def _sentence(
    base: Goodput,
    candidate: Goodput,
    gain: float | None,
    succeeded: bool | None,
    repaid: float | None,
    slo_itl_ms: float | None,
    same_traffic: bool,
) -> str:
    rule = (
        "A graph mode has succeeded only if it improves the service after its full cost is included"
    )
    if gain is None:
        why = (
            "no objective between tokens was given (--slo-itl-ms)"
            if slo_itl_ms is None
            else "the steps of one of the two do not tell the tokens they produced"
        )
        return f"{rule}: not identifiable, because {why}."
    answer = "yes" if succeeded else "no" if gain <= 0 else "no, the gain is within noise"
    answer += "" if same_traffic else ", but the two served different traffic"
    told = (
        f"{rule}: {answer}. Within the objective the candidate produces "
        f"{measure(candidate.tokens_per_s, 'tokens/s')} against "
        f"{measure(base.tokens_per_s, 'tokens/s')} with start-up included"
    )
    if base.steady_tokens_per_s is not None and candidate.steady_tokens_per_s is not None:
        told += (
            f", {measure(candidate.steady_tokens_per_s, 'tokens/s')} against "
            f"{measure(base.steady_tokens_per_s, 'tokens/s')} without"
        )
    told += "."
    if repaid:
        told += (
            " Its first step came later than the base's, which the gain makes up for in "
            f"{duration(repaid)} of service."
        )
    return told


def _copies(summary: Summary) -> int:
    """Return how many ranks record each step: those of one engine produce the same tokens."""
    steps = summary.groups.filter(is_real() & is_target() & (pl.col("tokens_out") > 0))
    ranks = steps.group_by("run").agg(pl.col("rank").n_unique())["rank"].max()
    engines = positive_int(last_config(summary.events), "data_parallel") or 1
    return max(ranks // engines, 1) if isinstance(ranks, int) else 1


def _rate(met: float, tokens: float, seconds: float) -> tuple[float | None, float | None]:
    if not tokens or seconds <= 0:
        return None, None
    return met / seconds, met / tokens


def _span(table: pl.DataFrame) -> float:
    first, last = table["first"].min(), table["last"].max()
    return (last - first) / 1e9 if isinstance(first, int) and isinstance(last, int) else 0.0


def _lengths(steady: pl.DataFrame) -> Floats:
    """Return how long each slice is in s: from its first step to that of the next."""
    if steady.is_empty():
        return np.empty(0)
    starts = steady["first"].to_numpy().astype(np.float64)
    ends = np.append(starts[1:], steady["last"].to_numpy().max())
    lengths: Floats = np.maximum(ends - starts, 0.0) / 1e9
    return lengths
