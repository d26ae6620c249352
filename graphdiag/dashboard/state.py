"""What a reader of the page has chosen, and what was found for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import param

from graphdiag.bucket_advice import setting_of
from graphdiag.buckets.memory import measure_memory
from graphdiag.buckets.whatif import WhatIf
from graphdiag.dashboard.watching import Watched
from graphdiag.diagnosis import report_of
from graphdiag.findings import Metrics, Report
from graphdiag.metrics import is_real, is_target
from graphdiag.selection import Selection, metrics_of, phases, ranks, runners, summary_of
from graphdiag.summary import Summary
from graphdiag.timerange import TimeRange

EVERYTHING = "all"


@dataclass(frozen=True)
class Found:
    """What the page shows of one version of a trace and one choice.

    Attributes
    ----------
    whole
        The summary of all time, for the timeline; ``chosen`` is that of the window.
    report, buckets
        Findings of ``chosen``; ``buckets`` is None where there is no traffic to plan for.
    first_ns, cell_ns
        When the trace's first event began, and how wide the steps of a window's ends are.
    ranks, phases, runners
        What there is to choose from by now.
    """

    version: int
    whole: Summary
    chosen: Summary
    report: Report
    buckets: WhatIf | None
    first_ns: int
    cell_ns: int
    ranks: list[int]
    phases: list[str]
    runners: list[str]

    @property
    def steps(self) -> int:
        """Steps of all time that are real and the target's."""
        groups = self.whole.groups.filter(is_real() & is_target())
        return int(groups["weight"].sum())


class Choice(param.Parameterized):  # type: ignore[misc]
    """The selectors of one trace; whoever watches it sees every change."""

    window = param.ClassSelector(class_=TimeRange, default=None, allow_None=True)
    rank = param.Selector(default=EVERYTHING, objects=[EVERYTHING])
    phase = param.Selector(default=EVERYTHING, objects=[EVERYTHING])
    runner = param.Selector(default="target", objects=["target"])
    sizes = param.ClassSelector(class_=tuple, default=None, allow_None=True)

    def offer(self, found: Found) -> None:
        """Offer what the trace has by now."""
        self.param.rank.objects = [EVERYTHING, *map(str, found.ranks)]
        self.param.phase.objects = [EVERYTHING, *found.phases]
        self.param.runner.objects = found.runners

    def selection(self, *, whole: bool = False) -> Selection:
        """Return what is selected; of all time where ``whole``."""
        return Selection(
            window=None if whole else self.window,
            rank=None if self.rank == EVERYTHING else int(self.rank),
            phase=None if self.phase == EVERYTHING else self.phase,
            runner=None if self.runner == "target" else self.runner,
        )


def count(source: Watched, chosen: Selection) -> Metrics:
    """Return the metrics of a selection, which are there long before its findings are."""
    with source.lock:
        return metrics_of(source.live, chosen)


def find(source: Watched, whole: Selection, chosen: Selection) -> Found:
    """Return the findings of a selection, as ``graphdiag report --window`` would.

    ``whole`` is the selection without its window.
    """
    with source.lock:
        live = source.live
        everything = summary_of(live, whole)
        summary = everything if chosen == whole else summary_of(live, chosen)
        version, width = live.version, 1 << live.grain.cells
        first = _first(live.events["t_ns"].min(), live.span)
        offered = ranks(live), phases(live), runners(live)
    report = report_of(summary, source.name)
    setting = setting_of(summary, source.name)
    if summary.window is not None:  # graphs captured before it take as much memory in it
        made = replace(summary, events=everything.events)
        setting = replace(setting, memory=measure_memory(made, setting.memory.variants))
    buckets = WhatIf(setting) if setting.traffic.counts.sum() else None
    return Found(version, everything, summary, report, buckets, first, width, *offered)


def _first(event: Any, span: tuple[int, int] | None) -> int:
    known = [time for time in (event, span and span[0]) if isinstance(time, int)]
    return min(known, default=0)
