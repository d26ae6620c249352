"""From a trace to a bucket plan: the setting, and what the audit knows about its traffic."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from graphdiag.audit.trap import fallback_trap, size_out_of_trap
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.buckets.histogram import Part, histogram
from graphdiag.buckets.planner import plan_buckets
from graphdiag.buckets.setting import Setting, of_summary
from graphdiag.buckets.wishes import Wishes
from graphdiag.costs import measure_costs
from graphdiag.evidence import Evidence
from graphdiag.findings import Report
from graphdiag.runconfig import last_config
from graphdiag.summary import Summary


def setting_of(
    summary: Summary,
    source: str,
    *,
    engine: str | None = None,
    phase: Part | None = None,
    current: Sequence[int] = (),
    baseline: Summary | None = None,
) -> Setting:
    """Return the setting of a trace; see :func:`graphdiag.buckets.setting.of_summary`."""
    return of_summary(
        summary,
        source,
        engine=engine,
        phase=phase,
        current=current,
        baseline=baseline,
        trapped_up_to=trapped_up_to(summary),
        graphs_off=True,
    )


def trapped_up_to(summary: Summary) -> int | None:
    """Return the size that would have kept the engine out of a fallback trap; None outside one."""
    config = last_config(summary.events)
    evidence = Evidence(
        summary, config, histogram(summary, config), measure_costs(summary, resample=False)
    )
    return size_out_of_trap(fallback_trap(evidence))


def setting_beside(report: Report, summary: Summary, setting: Setting | None = None) -> Setting:
    """Return the setting to show beside a report; ``setting`` is the report's, where at hand.

    Where graphs were off, and so the report has no traffic to plan for, the eager steps are.
    """
    if setting is not None and len(setting.traffic.sizes):
        return setting
    return of_summary(
        summary,
        report.source,
        trapped_up_to=size_out_of_trap(report.audit),
        graphs_off=True,
        resample=False,
    )


def plan_beside(
    report: Report, summary: Summary, setting: Setting | None = None
) -> BucketAnswer | None:
    """Return the plan to show beside a report: what it recommends is what the report recommends.

    None where there is no traffic to plan for. The planner's own choice keeps the number of graphs,
    and the report's may add some: a reader would be told two things. Notes are on the traffic.
    ``setting`` is that of the report, where it is at hand.
    """
    setting = setting_beside(report, summary, setting)
    if not setting.traffic.counts.sum():
        return None
    told = report.recommendation
    answer = plan_buckets(setting, Wishes(what_if=None if told is None else tuple(told.buckets)))
    return structs.replace(
        answer,
        recommended=answer.what_if,
        what_if=None,
        what_if_remarks=[],
        flags={},
        notes=list(setting.notes),
    )
