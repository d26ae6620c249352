"""From a trace to a report: metrics, the four cases, the audit, the recommendation."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec
import polars as pl

from graphdiag.audit import audit
from graphdiag.buckets.histogram import histogram
from graphdiag.buckets.recommend import recommend
from graphdiag.cases import all_cases, verdict
from graphdiag.costs import measure_costs
from graphdiag.evidence import Evidence, step_count
from graphdiag.findings import (
    ArtifactRow,
    AuditFinding,
    Gpu,
    Metrics,
    Recommendation,
    Report,
    SizeRow,
    Window,
)
from graphdiag.metrics import (
    by_period,
    by_phase,
    by_runner,
    is_real,
    is_replayed,
    is_target,
    measure,
)
from graphdiag.runconfig import last_config, run_configs
from graphdiag.stepcosts import step_costs
from graphdiag.summary import Summary, summarize
from graphdiag.trace import Trace
from graphdiag.wording import count
from graphdiag.work import work_in_window
from graphdiag_collectors.schema import DROPPED, GPU_WINDOW, HOOK_OFF


def diagnose(trace: Trace, source_name: str | None = None) -> Report:
    """Diagnose ``trace``; ``source_name`` is what the report calls it (its own name by default)."""
    return report_of(summarize(trace), source_name or trace.source)


def report_of(summary: Summary, source: str) -> Report:
    """Compute the report from a summary alone; the trace is not needed again."""
    config = last_config(summary.events)
    traffic = histogram(summary, config)
    costs = measure_costs(summary)
    evidence = Evidence(summary, config, traffic, costs)
    findings = audit(evidence)
    overall = measure(summary, is_target())
    periods = by_period(summary)
    advice = (
        None
        if _lookup_fails(findings)
        else recommend(
            traffic,
            config,
            trapped_up_to=_trapped_up_to(findings),
            leave_large_eager=costs.prices.fallback is not None and costs.prices.fallback < 0,
        )
    )
    judged = periods["steady"] if periods["steady"].eligible_steps else overall
    cases = all_cases(evidence, overall, judged, findings, advice)
    return Report(
        format=1,
        source=source,
        engine=_engine(config),
        steps=overall.steps,
        sampled=bool(config.get("sampled", False)),
        window=_window(summary),
        verdict=verdict(cases, costs.mean_step_ns, overall, judged),
        metrics=overall,
        phases=by_phase(summary),
        runners=by_runner(summary),
        periods=periods,
        cases=cases,
        audit=findings,
        sizes=_sizes(summary),
        artifacts=_artifacts(summary),
        recommendation=advice,
        gpu=_gpu(summary.events),
        step_costs=step_costs(summary),
        not_identifiable=_not_identifiable(evidence, overall, advice),
        notes=_notes(summary, config),
    )


def _lookup_fails(findings: list[AuditFinding]) -> bool:
    return any(f.kind == "unused_artifacts" and f.severity == "error" for f in findings)


def _trapped_up_to(findings: list[AuditFinding]) -> int | None:
    sizes = [int(f.data["size_needed"]) for f in findings if f.kind == "fallback_trap"]
    return max(sizes, default=None)


def _engine(config: dict[str, Any]) -> dict[str, Any]:
    apart = ("engine", "engine_version", "notes")
    rest = {key: value for key, value in config.items() if key not in apart}
    return {"name": config.get("engine"), "version": config.get("engine_version"), **rest}


def _window(summary: Summary) -> Window | None:
    """Return the time the steps cover; None where the source gives one time or none."""
    steps = summary.groups.filter(is_real() & is_target())
    first, last = steps["t_min"].min(), steps["t_max"].max()
    if not isinstance(first, int) or not isinstance(last, int) or last <= first:
        return None
    start, end = (datetime.fromtimestamp(ns / 1e9, tz=timezone.utc) for ns in (first, last))
    return Window(start=start.isoformat(), end=end.isoformat(), seconds=(last - first) / 1e9)


def _sizes(summary: Summary) -> list[SizeRow]:
    table = (
        summary.groups.filter(is_real() & is_target() & pl.col("requested").is_not_null())
        .group_by("requested", "bucket", "outcome", "phase")
        .agg(pl.col("weight", "dur_ns", "dur_ns_weight").sum())
        .sort("requested", "bucket", "outcome", "phase", nulls_last=True)
    )
    return [
        SizeRow(
            requested=row["requested"],
            steps=row["weight"],
            bucket=row["bucket"],
            outcome=row["outcome"],
            step_ms=row["dur_ns"] / 1e6 / row["dur_ns_weight"] if row["dur_ns_weight"] else None,
            phase=row["phase"],
        )
        for row in table.iter_rows(named=True)
    ]


def _artifacts(summary: Summary) -> list[ArtifactRow]:
    """Every artifact that was made or that served, by how often it served."""
    served = (
        summary.groups.filter(is_real() & pl.col("artifact").is_not_null())
        .filter(is_replayed() | (pl.col("mode") == "compiled"))
        .group_by("artifact")
        .agg(pl.col("weight").sum().alias("served"), pl.col("bucket").max().alias("bucket"))
    )
    captured, compiled = pl.col("event") == "capture", pl.col("event") == "compile"
    made = (
        summary.events.filter((captured | compiled) & pl.col("artifact").is_not_null())
        .group_by("artifact")
        .agg(
            pl.coalesce("kind", "event").filter(captured).first().alias("captured_as"),
            pl.coalesce("kind", "event").first().alias("kind"),
            pl.col("size").drop_nulls().first(),
            pl.col("dur_ns").filter(captured).mean().alias("capture_ns"),
            pl.col("dur_ns").filter(compiled).mean().alias("compile_ns"),
            pl.col("pool_bytes").drop_nulls().last(),
        )
        .with_columns(pl.coalesce("captured_as", "kind").alias("kind"))
    )
    table = made.join(served, on="artifact", how="full", coalesce=True).sort(
        ["served", "size", "artifact"], descending=[True, False, False], nulls_last=True
    )
    return [
        ArtifactRow(
            artifact=row["artifact"],
            kind=row["kind"],
            served=row["served"] or 0,
            size=row["size"] if row["size"] is not None else row["bucket"],
            captured=row["kind"] is not None,
            capture_ms=None if row["capture_ns"] is None else row["capture_ns"] / 1e6,
            compile_ms=None if row["compile_ns"] is None else row["compile_ns"] / 1e6,
            pool_bytes=row["pool_bytes"],
        )
        for row in table.iter_rows(named=True)
    ]


def _gpu(events: pl.DataFrame) -> Gpu | None:
    windows = events.filter((pl.col("event") == "mark") & (pl.col("kind") == GPU_WINDOW))
    if windows.is_empty():
        return None
    details = [msgspec.json.decode(text or "{}") for text in windows["config"]]

    def total(key: str) -> int:
        return sum(int(detail.get(key) or 0) for detail in details)

    kernels, inside = (int(windows[name].sum()) for name in ("kernels", "graph_kernels"))
    return Gpu(
        busy_ms=int(windows["gpu_ns"].sum()) / 1e6,
        idle_ms=int(windows["gap_ns"].sum()) / 1e6,
        span_ms=int(windows["dur_ns"].sum()) / 1e6,
        graph_launches=total("graph_launches"),
        launches=int(windows["launches"].sum()),
        kernels_in_graphs=inside,
        kernels_outside_graphs=kernels - inside,
        unlinked_events=total("unlinked_events"),
    )


def _not_identifiable(
    evidence: Evidence, overall: Metrics, advice: Recommendation | None
) -> list[str]:
    told = []
    costs, steps = evidence.costs, evidence.steps
    replays = steps.filter(is_replayed() & pl.col("outcome").is_null())
    if not replays.is_empty():
        told.append(
            f"Exact hits and padding of {count(step_count(replays), 'replayed step')}: the source "
            "does not tell their buckets; record the engine, or see its server log beside it."
        )
    if overall.eligible_steps and not overall.timed_steps:
        told.append(
            "Milliseconds a step: the source carries no step times; record the engine to get them."
        )
    prices = costs.prices
    if overall.timed_steps and prices.unpriced_padded:
        told.append(
            f"The price of {prices.unpriced_padded:,} padded steps: fewer than two buckets were "
            "replayed and timed in their phase; record traffic that reaches another bucket."
        )
    if overall.timed_steps and prices.unpriced_fallback:
        told.append(
            f"The price of {prices.unpriced_fallback:,} fallback steps: no replay curve in their "
            "phase to hold them against; record a run in which graphs replay."
        )
    if evidence.config.get("sampled") and work_in_window(evidence.summary).in_start_up:
        told.append(
            "What compilation in the measurement costs a step: the source shows only some steps."
        )
    if overall.eligible_steps and not len(evidence.traffic.captured):
        told.append("Which sizes are captured: neither configuration nor replays show any.")
    return told


def _notes(summary: Summary, config: dict[str, Any]) -> list[str]:
    notes = [*summary.notes, *map(str, config.get("notes", []))]
    configs = list(run_configs(summary.events).values())
    runs = max(len(configs), summary.groups.filter(is_real())["run"].n_unique())
    if runs > 1:
        told = [{k: v for k, v in each.items() if k != "notes"} for each in configs]
        differ = any(each != told[0] for each in told)
        same = "their configurations differ, and " if differ else ""
        notes.append(
            f"{runs} engine starts are in here: {same}the last one's configuration is shown and "
            "audited; report on one alone to judge it."
        )
    marks = summary.events.filter(pl.col("event") == "mark")
    dropped = int(marks.filter(pl.col("kind") == DROPPED)["weight"].sum())
    if dropped:
        notes.append(f"{dropped:,} rows were dropped while recording and are missing here.")
    off = marks.filter(pl.col("kind") == HOOK_OFF)
    notes += [f"A hook switched itself off: {text or 'no details'}" for text in off["config"]]
    return notes
