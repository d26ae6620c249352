"""From a trace to a report: metrics, the four cases, the audit, the recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import msgspec
import polars as pl

from graphdiag.audit import audit
from graphdiag.audit.trap import size_out_of_trap
from graphdiag.buckets.histogram import histogram
from graphdiag.buckets.recommend import recommend
from graphdiag.buckets.setting import Setting, of_summary
from graphdiag.buckets.sizecosts import costs_of, winner
from graphdiag.cases import all_cases
from graphdiag.compilation import Replays
from graphdiag.costs import measure_costs
from graphdiag.evidence import Evidence, step_count
from graphdiag.findings import (
    ArtifactRow,
    AuditFinding,
    Gpu,
    Metrics,
    Report,
    SizeCost,
    SizeRow,
    Window,
)
from graphdiag.history import span
from graphdiag.metrics import (
    by_period,
    by_phase,
    by_runner,
    is_real,
    is_replayed,
    is_target,
    measure,
)
from graphdiag.periods import STEADY
from graphdiag.runconfig import SENTENCES, last_config, run_configs
from graphdiag.stepcosts import step_costs
from graphdiag.summary import Summary, summarize
from graphdiag.timerange import TimeRange
from graphdiag.trace import Trace
from graphdiag.verdict import verdict
from graphdiag.wording import count, percent
from graphdiag_collectors.schema import DROPPED, GPU_WINDOW, HOOK_OFF

_STALLED = 0.01
"""Share of all step time that stalls must take to be noted."""
_UNTIMED = 0.02
"""Share of the steps without a time up to which they cannot matter."""


def diagnose(
    trace: Trace, source_name: str | None = None, window: TimeRange | None = None
) -> Report:
    """Diagnose ``trace``, or what began in ``window``.

    ``source_name`` is what the report calls it (its own name by default).
    """
    return report_of(summarize(trace, window=window), source_name or trace.source)


@dataclass(frozen=True)
class Diagnosis:
    """A report, and the setting of bucket sets that its recommendation was chosen by."""

    report: Report
    setting: Setting


def report_of(summary: Summary, source: str) -> Report:
    """Compute the report from a summary alone; the trace is not needed again."""
    return diagnosis_of(summary, source).report


def diagnosis_of(summary: Summary, source: str) -> Diagnosis:
    """Compute the report as :func:`report_of`, and keep what else can be told from its setting."""
    config = last_config(summary.events)
    traffic = histogram(summary, config)
    costs = measure_costs(summary)
    evidence = Evidence(summary, config, traffic, costs)
    findings = audit(evidence)
    overall = measure(summary, is_target())
    periods = by_period(summary)
    setting = of_summary(
        summary,
        source,
        trapped_up_to=size_out_of_trap(findings),
        resample=False,
        table=costs.table,
    )
    advice = None if _lookup_fails(findings) else recommend(setting)
    sizes = costs_of(setting) if len(traffic.captured) else []
    judged = periods["steady"] if periods["steady"].eligible_steps else overall
    cases = all_cases(evidence, overall, judged, findings, advice)
    damage = _damage(summary, config)
    report = Report(
        format=1,
        source=source,
        engine=_engine(config),
        steps=overall.steps,
        sampled=bool(config.get("sampled", False)),
        window=_window(summary),
        verdict=verdict(evidence, cases, overall, judged),
        metrics=overall,
        phases=by_phase(summary),
        runners=by_runner(summary),
        periods=periods,
        cases=cases,
        audit=findings,
        sizes=_sizes(summary),
        artifacts=_artifacts(evidence),
        recommendation=advice,
        ledger=costs.ledger,
        gpu=_gpu(summary.events),
        step_costs=step_costs(summary),
        not_identifiable=_not_identifiable(evidence, overall, sizes),
        notes=[*damage, *_notes(evidence)],
        damage=damage,
        size_costs=sizes,
        winner=winner(sizes),
    )
    return Diagnosis(report, setting)


def _lookup_fails(findings: list[AuditFinding]) -> bool:
    return any(f.kind == "unused_artifacts" and f.severity == "error" for f in findings)


def _engine(config: dict[str, Any]) -> dict[str, Any]:
    apart = ("engine", "engine_version", *SENTENCES)
    rest = {key: value for key, value in config.items() if key not in apart}
    return {"name": config.get("engine"), "version": config.get("engine_version"), **rest}


def _window(summary: Summary) -> Window | None:
    """Return the time the steps cover; None where the source gives one time or none."""
    covered = span(summary)
    if covered is None:
        return None
    start, end = (datetime.fromtimestamp(ns / 1e9, tz=timezone.utc) for ns in covered)
    seconds = (covered[1] - covered[0]) / 1e9
    return Window(start=start.isoformat(), end=end.isoformat(), seconds=seconds)


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


def _artifacts(evidence: Evidence) -> list[ArtifactRow]:
    """Every artifact that was made or that served, by how often it served."""
    summary, replays = evidence.summary, evidence.replays.artifacts
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
    outside = pl.DataFrame({"artifact": list(replays)}, schema={"artifact": pl.String})
    table = made.join(served, on="artifact", how="full", coalesce=True)
    table = table.join(outside, on="artifact", how="full", coalesce=True).sort(
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
            replays=replays.get(row["artifact"]),
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


def _not_identifiable(evidence: Evidence, overall: Metrics, sizes: list[SizeCost]) -> list[str]:
    told = []
    costs, steps = evidence.costs, evidence.steps
    if steps.is_empty() and "importer" not in evidence.config:
        told.append(
            "What it costs a step, and whether graphs serve the steps: the trace holds no step; "
            "record those of the loop (docs/recorder.md)."
        )
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
    untimed = overall.steps - overall.timed_steps
    if overall.timed_steps and untimed > _UNTIMED * overall.steps:
        told.append(
            f"What {count(untimed)} of {count(overall.steps, 'step')} took: they carry no time. "
            "Every ms a step is of the others, which may have been of other sizes; record a time "
            "for each."
        )
    if overall.eligible_steps and steps.filter(pl.col("period") == STEADY).is_empty():
        told.append(
            "What steady state costs: every step fell into start-up or was the first of its "
            "artifact; record for longer."
        )
    prices = costs.prices
    if overall.timed_steps and prices.unpriced_padded:
        told.append(
            f"The price of {count(prices.unpriced_padded, 'padded step')}: fewer than two buckets "
            "were replayed and timed in their phase; record traffic that reaches another bucket."
        )
    if overall.timed_steps and prices.unpriced_fallback:
        told.append(
            f"The price of {count(prices.unpriced_fallback, 'fallback step')}: no replay curve in "
            "their phase to hold them against; record a run in which graphs replay."
        )
    if winner(sizes) is None and any(one.replay_ms is not None for one in sizes):
        told.append(
            "Whether replay is faster than eager, size by size: no eager step was timed in a phase "
            "that also replays; record the engine with its graphs off, and compare the two "
            "(graphdiag compare, graphdiag buckets --baseline)."
        )
    if evidence.config.get("sampled") and evidence.work.in_start_up:
        told.append(
            "What compilation in the measurement costs a step: the source shows only some steps."
        )
    if overall.eligible_steps and not len(evidence.traffic.captured):
        told.append("Which sizes are captured: neither configuration nor replays show any.")
    return told


def _damage(summary: Summary, config: dict[str, Any]) -> list[str]:
    """Return what was not read whole, or lost."""
    told = [*summary.notes, *config.get("damage", [])]
    dropped = summary.events.filter((pl.col("event") == "mark") & (pl.col("kind") == DROPPED))
    rows = int(dropped["weight"].fill_null(1).sum())
    if rows:
        told.append(f"{rows:,} rows were dropped while recording and are missing here.")
    return told


def _notes(evidence: Evidence) -> list[str]:
    summary = evidence.summary
    notes = list(evidence.config.get("notes", []))
    if summary.window is not None:
        notes.append(
            f"Only what began {summary.window.words()} is in here; cold, warm and steady are those "
            "of the whole trace."
        )
    impossible = int(summary.groups["impossible"].sum())
    backwards = int(summary.groups["backwards"].sum())
    if backwards:
        notes.append(
            f"A clock was set back during {count(backwards, 'step')} that ended before they began: "
            "they count without a time."
        )
    ledger = evidence.costs.ledger
    stalls = 0.0 if ledger is None else ledger.stalls.ms_per_step or 0.0
    if ledger is not None and stalls > _STALLED * ledger.mean_ms:
        share = percent(stalls / ledger.mean_ms)
        notes.append(
            f"{count(ledger.stalled_steps, 'step')} took far longer than others of the same size "
            f"(a pause of the host, a profiler): {share} of all step time, charged to no case."
        )
    set_back = int(summary.groups["set_back"].sum())
    if set_back:
        notes.append(
            f"The clock was set back while recording, {count(set_back, 'time')}: step times hold, "
            "and what rests on when steps ran (periods, the window, the intervals) may not."
        )
    if impossible:
        notes.append(
            f"{count(impossible, 'step')} had sizes that no step has (below 1, or a bucket "
            "smaller than what was requested): their times count, their sizes and outcomes do not."
        )
    configs = list(run_configs(summary.events).values())
    runs = max(len(configs), summary.groups.filter(is_real())["run"].n_unique())
    if runs > 1:
        told = [{k: v for k, v in each.items() if k not in SENTENCES} for each in configs]
        differ = any(each != told[0] for each in told)
        same = "their configurations differ, and " if differ else ""
        notes.append(
            f"{runs} engine starts are in here: {same}the last one's configuration is shown and "
            "audited; report on one alone to judge it."
        )
    off = summary.events.filter((pl.col("event") == "mark") & (pl.col("kind") == HOOK_OFF))
    notes += [f"A hook switched itself off: {text or 'no details'}" for text in off["config"]]
    if evidence.replays.outside:
        notes.append(_outside(evidence.replays))
    return notes


def _outside(replays: Replays) -> str:
    most = sorted(replays.artifacts.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{artifact} {times:,}" for artifact, times in most)
    names = f" Most replayed meanwhile, in steps or not: {named}." if most else ""
    return (
        f"{count(replays.outside, 'graph replay')} happened outside of the recorded steps: no rate "
        f"and no price counts them.{names}"
    )
