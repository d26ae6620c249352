"""The tables of a report as rows of text; the terminal and Markdown only lay them out.

Cells of identifiers are raw, shortened and without control characters; escaping them for
the output's own syntax is the layout's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from graphdiag import wording
from graphdiag.checks import is_imported, nothing_made
from graphdiag.findings import Charge, Gpu, Metrics, Report, SizeRow, StepLedger
from graphdiag.reporters import format as fmt
from graphdiag.titles import ledger_rows

NA = "n/a"
TOP_SIZES = 12
_NEGLIGIBLE = 1e-4
"""Share of the mean step below which what is unexplained is not shown."""
TOP_ARTIFACTS = 8


@dataclass(frozen=True)
class Sheet:
    """One table.

    Attributes
    ----------
    title, headers, rows
        As shown. Every row has one cell a header.
    left
        How many of the first columns are text, aligned left; the others are numbers.
    notes
        What the columns are over, and what was left out.
    """

    title: str
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: int
    notes: tuple[str, ...]

    @property
    def legend(self) -> str:
        """The notes in one line, with the meaning of n/a where a cell has it."""
        unknown = any(NA in row for row in self.rows)
        return " ".join((*self.notes, f"{NA}: {wording.MISSING}." if unknown else "")).strip()


def sheets(report: Report) -> Iterator[Sheet]:
    """Yield the tables that have something to show, in reading order."""
    if report.steps:
        yield _rates(report)
        if any(metrics.step_ms_mean is not None for _, metrics in _scopes(report)):
            yield _times(report)
    if report.ledger is not None:
        yield _ledger(report.ledger)
    if report.step_costs:
        yield known(_step_costs(report))
    if report.gpu is not None:
        yield _gpu(report.gpu)
    costs = _artifact_costs(report)
    if costs.rows:
        yield costs
    if report.sizes:
        yield known(_sizes(report))
    if report.artifacts:
        yield known(_artifacts(report))


def _ledger(ledger: StepLedger) -> Sheet:
    rows = []
    digits = 4 - floor(log10(ledger.mean_ms)) if ledger.mean_ms > 0 else 6

    def rounded(ms: float) -> str:
        return wording.figure(round(ms, digits) + 0.0)

    for name, title in ledger_rows(ledger.padding).items():
        charge: Charge = getattr(ledger, name)
        amount = charge.ms_per_step
        if amount is None:
            rows.append((title, NA, NA, NA))
            continue
        if name in ("stalls", "residual") and abs(amount) < _NEGLIGIBLE * ledger.mean_ms:
            continue
        interval = NA
        if charge.ci95 is not None:
            interval = f"{rounded(charge.ci95[0])} to {rounded(charge.ci95[1])}"
        share = (round(amount, digits) + 0.0) / ledger.mean_ms if ledger.mean_ms else 0.0
        rows.append((title, rounded(amount), interval, wording.percent(share)))
    rows.append(("mean step", rounded(ledger.mean_ms), "", "100 %"))
    return Sheet(
        "Where a step's time goes",
        ("", "ms/step", "95 % interval", "share"),
        rows,
        1,
        (
            f"Over {wording.count(ledger.steps, 'timed step')} and the compile and capture work "
            "among them, start-up included. Best achievable: exact replay of every batch. The "
            "intervals hold together.",
            *_unpriced(ledger),
            *_stalls(ledger),
        ),
    )


def _unpriced(ledger: StepLedger) -> tuple[str, ...]:
    if ledger.padding.ms_per_step is not None:
        return ()
    return (
        "What padded rows cost is not identifiable from one bucket, and is in the best achievable.",
    )


def _stalls(ledger: StepLedger) -> tuple[str, ...]:
    if not ledger.stalled_steps:
        return ()
    return (
        f"Stalled: {wording.count(ledger.stalled_steps, 'step')} far longer than others of the "
        "same size, a pause of the host or a profiler; what they took beyond those moves no price.",
    )


def known(sheet: Sheet) -> Sheet:
    """Return the sheet without its columns that hold nothing but n/a; the notes name them."""
    columns = list(zip(*sheet.rows, strict=True))
    unknown = [index for index, column in enumerate(columns) if set(column) == {NA}]
    kept = [index for index in range(len(columns)) if index not in unknown]
    missing = ", ".join(sheet.headers[index] for index in unknown)
    return Sheet(
        sheet.title,
        tuple(sheet.headers[index] for index in kept),
        [tuple(row[index] for index in kept) for row in sheet.rows],
        sheet.left - sum(index < sheet.left for index in unknown),
        (*sheet.notes, f"{wording.MISSING.capitalize()}: {missing}.") if unknown else sheet.notes,
    )


def _scopes(report: Report) -> Iterator[tuple[str, Metrics]]:
    """Yield every set of steps the report has metrics for; the whole trace first."""
    yield "whole trace", report.metrics
    yield from ((fmt.name(phase), metrics) for phase, metrics in report.phases.items())
    if len(report.runners) > 1:
        yield from ((f"runner {fmt.name(key)}", metrics) for key, metrics in report.runners.items())
    yield from ((fmt.name(period), metrics) for period, metrics in report.periods.items())


def _points(fraction: float | None) -> str:
    return NA if fraction is None or not isfinite(fraction) else wording.points(fraction)


def _figure(value: float | None) -> str:
    return NA if value is None or not isfinite(value) else wording.figure(value)


def _rates(report: Report) -> Sheet:
    rows = [
        (
            scope,
            wording.count(metrics.steps),
            wording.count(metrics.eligible_steps),
            _points(metrics.exact_hit_rate),
            _points(metrics.padded_share),
            _points(metrics.fallback_rate),
            _points(metrics.padding_ratio),
            _points(metrics.waste),
        )
        for scope, metrics in _scopes(report)
        if metrics.steps
    ]
    return Sheet(
        "Rates in %",
        ("", "steps", "eligible", "exact", "padded", "fallback", "padding", "waste"),
        rows,
        1,
        (
            "eligible: steps that graphs should have served. exact, padded, fallback: share of "
            "eligible steps. padding: padded rows / requested rows, waste: padded rows / bucket "
            "rows, both over replayed steps.",
        ),
    )


def _times(report: Report) -> Sheet:
    rows = [
        (
            scope,
            wording.count(metrics.timed_steps),
            _figure(metrics.step_ms_mean),
            _figure(metrics.step_ms_p50),
            _figure(metrics.step_ms_p99),
        )
        for scope, metrics in _scopes(report)
        if metrics.steps
    ]
    note = ("timed: steps that have a time. p50, p99: read off a histogram, to within 5 %.",)
    return Sheet("Step time in ms", ("", "timed", "mean", "p50", "p99"), rows, 1, note)


def _artifact_costs(report: Report) -> Sheet:
    scopes = [("whole trace", report.metrics), *report.periods.items()]
    rows = [
        (
            fmt.name(scope),
            *(
                [NA] * 4  # graph memory alone is on record
                if nothing_made(metrics)
                else [
                    wording.count(metrics.compile_count),
                    wording.figure(metrics.compile_seconds),
                    wording.count(metrics.capture_count),
                    wording.figure(metrics.capture_seconds),
                ]
            ),
        )
        for scope, metrics in scopes
        if metrics.compile_count
        or metrics.compile_seconds
        or metrics.capture_count
        or metrics.capture_seconds
        or (metrics is report.metrics and (metrics.graph_bytes or metrics.dropped_rows))
    ]
    metrics = report.metrics
    dropped = f"; {wording.count(metrics.dropped_rows, 'row')} dropped while recording"
    if is_imported(report) and not metrics.dropped_rows:
        dropped = ""  # an import does not tell
    return Sheet(
        "Compile and capture",
        ("", "compiles", "compile s", "captures", "capture s"),
        rows,
        1,
        (
            f"Device memory of the graphs: {wording.size_in_bytes(metrics.graph_bytes)}; "
            f"{wording.count(metrics.unique_artifacts, 'unique artifact')}{dropped}.",
        ),
    )


def _sizes(report: Report) -> Sheet:
    ordered = sorted(report.sizes, key=lambda size: -size.steps)
    net = {one.requested: one.net_ms for one in report.size_costs}
    shown, rest = ordered[:TOP_SIZES], ordered[TOP_SIZES:]
    rows = [
        (
            fmt.name(size.phase or NA),
            fmt.name(size.outcome or NA),
            wording.count(size.requested),
            _bucket(size),
            wording.count(size.steps),
            _padding(size),
            _figure(size.step_ms),
            *([_net(size, net.get(size.requested))] if report.winner is not None else []),
        )
        for size in shown
    ]
    notes = ["bucket: the captured size replayed. padding: padded rows / requested rows."]
    if report.winner is not None:
        notes.append(
            "net: what replay saves against eager at that size, less its padding. "
            f"{fmt.clean(report.winner)}"
        )
    if rest:
        steps = wording.count(sum(size.steps for size in rest), "step")
        notes.append(f"Left out: {wording.count(len(rest), 'row')} with {steps}.")
    return Sheet(
        "Requested sizes with the most steps",
        (
            *("phase", "outcome", "requested", "bucket", "steps", "padding %", "mean ms"),
            *(["net ms"] if report.winner is not None else []),
        ),
        rows,
        2,
        tuple(notes),
    )


def _bucket(size: SizeRow) -> str:
    """Return the bucket; "none" only where the step is known to have replayed none."""
    if size.bucket is not None:
        return wording.count(size.bucket)
    return "none" if size.outcome in ("fallback", "eager", "capture") else NA


def _net(size: SizeRow, net_ms: float | None) -> str:
    return "" if _bucket(size) == "none" else _figure(net_ms)


def _padding(size: SizeRow) -> str:
    if _bucket(size) == "none":
        return ""
    if size.bucket is None or not size.requested:
        return NA
    return wording.points((size.bucket - size.requested) / size.requested)


def _artifacts(report: Report) -> Sheet:
    ordered = sorted(
        report.artifacts, key=lambda artifact: (-artifact.served, -(artifact.replays or 0))
    )
    shown, rest = ordered[:TOP_ARTIFACTS], ordered[TOP_ARTIFACTS:]
    counted = any(artifact.replays for artifact in ordered)
    rows = [
        (
            fmt.name(artifact.artifact),
            fmt.name(artifact.kind or NA),
            NA if artifact.size is None else wording.count(artifact.size),
            wording.count(artifact.served),
            _figure(artifact.capture_ms),
            _figure(artifact.compile_ms),
            wording.size_in_bytes(artifact.pool_bytes, NA),
            *([wording.count(artifact.replays or 0)] if counted else []),
        )
        for artifact in shown
    ]
    notes = ["served: steps that replayed it."]
    if counted:
        notes.append("replays: in steps or not, in the seconds that had some outside of steps.")
    if rest:
        notes.append(f"Left out: {wording.count(len(rest), 'artifact')} that served fewer.")
    unused = sum(artifact.is_idle for artifact in ordered) if report.steps or counted else 0
    if unused:
        notes.append(f"Captured and never replayed: {unused:,}.")
    return Sheet(
        "Artifacts that served the most steps",
        (
            *("artifact", "kind", "size", "served", "capture ms", "compile ms", "pool"),
            *(("replays",) if counted else ()),
        ),
        rows,
        2,
        tuple(notes),
    )


def _step_costs(report: Report) -> Sheet:
    sampled = any(costs.gpu_span_ms is not None for costs in report.step_costs.values())
    rows = [
        (
            fmt.name(phase),
            wording.count(costs.steps),
            _figure(costs.host_ms),
            _figure(costs.blocked_ms),
            _figure(costs.graph_launch_ms),
            _figure(costs.gpu_busy_ms),
            _figure(costs.gpu_gap_ms),
            *([_figure(costs.gpu_span_ms)] if sampled else []),
            _figure(costs.launches),
            _figure(costs.kernels),
        )
        for phase, costs in report.step_costs.items()
    ]
    span = " span: start to end of sampled steps on their GPU stream, idle time included."
    return Sheet(
        "Host and GPU time of a step in ms",
        (
            *("phase", "steps", "host", "blocked", "replay", "busy", "gap"),
            *(["span"] if sampled else []),
            *("launches", "kernels"),
        ),
        rows,
        1,
        (
            "Means over the steps profiled. host: without blocked, the wait in copies and syncs; "
            "replay: host time in graph launches; busy, gap: the GPU work that the step launched, "
            f"whenever it ran.{span if sampled else ''}",
        ),
    )


def _gpu(gpu: Gpu) -> Sheet:
    rows = [
        ("busy", f"{gpu.busy_ms:,.3f} ms"),
        ("idle", f"{gpu.idle_ms:,.3f} ms"),
        ("span", f"{gpu.span_ms:,.3f} ms"),
        ("launches", wording.count(gpu.launches)),
        ("graph launches", wording.count(gpu.graph_launches)),
        ("kernels in graphs", wording.count(gpu.kernels_in_graphs)),
        ("kernels outside graphs", wording.count(gpu.kernels_outside_graphs)),
        ("events without a launch", wording.count(gpu.unlinked_events)),
    ]
    return Sheet(
        "GPU over the profiled windows",
        ("", "sum"),
        rows,
        1,
        ("busy: union over streams; idle: span - busy.",),
    )
