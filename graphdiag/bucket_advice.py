"""From a trace to a bucket plan: the setting, and what the audit knows about its traffic."""

from __future__ import annotations

from collections.abc import Sequence

from graphdiag.audit.trap import fallback_trap, size_out_of_trap
from graphdiag.buckets.histogram import Part, histogram
from graphdiag.buckets.setting import Setting, of_summary
from graphdiag.costs import measure_costs
from graphdiag.evidence import Evidence
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
    evidence = Evidence(summary, config, histogram(summary, config), measure_costs(summary))
    return size_out_of_trap(fallback_trap(evidence))
