"""What the traces of an experiment show: a summary of each run, a report of each mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

import polars as pl

from graphdiag.comparison.compare import Run as Compared
from graphdiag.comparison.compare import Slo, run_of
from graphdiag.diagnosis import report_of
from graphdiag.experiment.setting import Ran
from graphdiag.findings import Report
from graphdiag.metrics import is_real, is_target
from graphdiag.periods import STEADY
from graphdiag.sources import open_source
from graphdiag.summary import Summary, summarize

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class SeenRun:
    """A run whose trace has steps."""

    ran: Ran
    source: str
    summary: Summary

    @cached_property
    def steady(self) -> pl.DataFrame:
        """The groups of its real steps in steady state."""
        steps = self.summary.groups.filter(is_real() & is_target())
        return steps.filter(pl.col("period") == STEADY)

    def compared(self, slo_itl_ms: float | None) -> Compared:
        """Return the run as a comparison takes it, with what it served within the objective."""
        with open_source([self.source]) as trace:
            return run_of(trace, self.source, Slo(slo_itl_ms))


@dataclass(frozen=True)
class SeenMode:
    """A mode and those of its runs that count: all that ended whole, else the one that did not."""

    mode: str
    runs: tuple[SeenRun, ...]

    @cached_property
    def summary(self) -> Summary:
        """All its runs together."""
        return reduce(lambda one, other: one.merge(other), (run.summary for run in self.runs))

    @cached_property
    def report(self) -> Report:
        """The report on all its runs together."""
        return report_of(self.summary, ", ".join(run.source for run in self.runs))

    def of_round(self, number: int) -> SeenRun | None:
        """Return its run of a round."""
        return next((run for run in self.runs if run.ran.round == number), None)

    @property
    def step_ms(self) -> float | None:
        """The mean of its steady steps, in ms."""
        return self._mean_ms(pl.lit(True))

    @property
    def decode_step_ms(self) -> float | None:
        """The mean of its steady decode steps, in ms."""
        return self._mean_ms(pl.col("phase") == "decode")

    def _mean_ms(self, steps: pl.Expr) -> float | None:
        chosen = [run.steady.filter(steps) for run in self.runs]
        timed = sum(int(rows["dur_ns_weight"].sum()) for rows in chosen)
        total = sum(int(rows["dur_ns"].sum()) for rows in chosen)
        return total / timed / _NS_PER_MS if timed else None

    def told(self, figure: Callable[[Ran], float | None], *, cold: bool) -> float | None:
        """Return the mean of what its cold or its other runs tell of themselves."""
        return mean(figure(run.ran) for run in self.runs if run.ran.is_cold == cold)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values there are; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def first_step(ran: Ran) -> float | None:
    """Return when the run's first real step had ended, in s since its process started."""
    return None if ran.result is None else ran.result.first_step_s


def see(ran: Iterable[Ran]) -> list[SeenMode]:
    """Read the traces of an experiment; modes none of whose runs has a step are left out.

    Raises
    ------
    SourceError
        When a trace is damaged or gone.
    """
    found: dict[str, list[SeenRun]] = {}
    for one in ran:
        if one.trace is None or one.ended == "failed":
            continue
        source = str(one.trace)
        with open_source([source]) as trace:
            seen = SeenRun(one, source, summarize(trace))
        if not seen.summary.groups.filter(is_real() & is_target()).is_empty():
            found.setdefault(one.mode, []).append(seen)
    modes = []
    for mode, runs in found.items():
        whole = tuple(run for run in runs if run.ran.ended == "whole")
        modes.append(SeenMode(mode, whole or tuple(runs)))
    return modes
