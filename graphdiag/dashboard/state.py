"""What a reader of the page has chosen, and what was found for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import param

from graphdiag.bucket_advice import setting_beside
from graphdiag.buckets.memory import measure_memory
from graphdiag.buckets.setting import Setting
from graphdiag.buckets.whatif import WhatIf
from graphdiag.cells import Sums
from graphdiag.diagnosis import Diagnosis, diagnosis_of
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
        Groups and timeline of all time; ``chosen`` is the summary of the window.
    report, buckets
        Findings of ``chosen``; ``buckets`` is None where there is no traffic to plan for.
    first_ns, cell_ns
        When the trace's first event began, and how wide the steps of a window's ends are.
    ranks, phases, runners
        What there is to choose from by now.
    """

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
        offered = {
            "rank": [EVERYTHING, *map(str, found.ranks)],
            "phase": [EVERYTHING, *found.phases],
            "runner": found.runners,
        }
        for name, objects in offered.items():
            if self.param[name].objects != objects:
                self.param[name].objects = objects

    def selection(self) -> Selection:
        """Return what is selected."""
        return Selection(
            window=self.window,
            rank=None if self.rank == EVERYTHING else int(self.rank),
            phase=None if self.phase == EVERYTHING else self.phase,
            runner=None if self.runner == "target" else self.runner,
        )


def count(sums: Sums, chosen: Selection) -> Metrics:
    """Return the metrics of a selection, which are there long before its findings are."""
    return metrics_of(sums, chosen)


def find(sums: Sums, source: str, chosen: Selection) -> Found:
    """Return the findings of a selection, as ``graphdiag report --window`` would."""
    summary = summary_of(sums, chosen)
    whole = summary
    if summary.window is not None:
        whole = summary_of(sums, replace(chosen, window=None), ("groups", "timeline"))
    diagnosis = diagnosis_of(summary, source)
    report = diagnosis.report
    setting = _setting(summary, whole, diagnosis)
    return Found(
        whole=whole,
        chosen=summary,
        report=report,
        buckets=WhatIf(setting) if setting.traffic.counts.sum() else None,
        first_ns=_first(sums.events["t_ns"].min(), sums.span),
        cell_ns=1 << sums.grain.cells,
        ranks=ranks(sums),
        phases=phases(sums),
        runners=runners(sums),
    )


def _setting(summary: Summary, whole: Summary, diagnosis: Diagnosis) -> Setting:
    """Return what bucket lists are priced by."""
    setting = setting_beside(diagnosis.report, summary, diagnosis.setting)
    if summary.window is None:
        return setting
    # Graphs captured before the window take as much memory in it.
    made = replace(summary, events=whole.events)
    return replace(setting, memory=measure_memory(made, setting.memory.variants))


def _first(event: Any, span: tuple[int, int] | None) -> int:
    known = [time for time in (event, span and span[0]) if isinstance(time, int)]
    return min(known, default=0)
