"""One mode's row of the experiment's table: its costs and its rates, over all its runs."""

from __future__ import annotations

from graphdiag.experiment.answer import Against, Mode, Rate
from graphdiag.experiment.seen import SeenMode, first_step, mean
from graphdiag.experiment.setting import Ran, Setting
from graphdiag.findings import Metrics, Report
from graphdiag.metrics import graph_bytes

_STAND_IN = "a static compilation for each bucket, which on a CPU stands in for CUDA graphs"
_WHAT = {
    ("bundled", "eager"): "as it is",
    ("bundled", "compiled"): "torch.compile, dynamic shapes",
    ("bundled", "graphs"): "a CUDA graph for each bucket",
    ("vllm", "eager"): "enforce_eager",
    ("vllm", "compiled"): "torch.compile, cudagraph_mode NONE",
    ("vllm", "graphs"): "torch.compile and CUDA graphs, as vLLM starts by itself",
}


def table_row(
    setting: Setting, mode: SeenMode, base: SeenMode, rate: Rate, held: Against | None
) -> Mode:
    """Return the row of ``mode``; ``rate`` is what it served, ``held`` how it compares."""
    report = mode.report
    steady = _steady(report)
    prepared = (None if run.ran.result is None else run.ran.result.prepare_ms for run in mode.runs)
    return Mode(
        mode=mode.mode,
        what=_what(setting, mode.mode),
        rounds=len(mode.runs),
        cold_start_s=mode.told(_ready, cold=True),
        first_step_s=mode.told(first_step, cold=True),
        warm_start_s=mode.told(_ready, cold=False),
        warm_first_step_s=mode.told(first_step, cold=False),
        prepare_ms=mean(prepared),
        gpu_gap_ms=_gap(report) if setting.has_gpu else None,
        exact_hit_rate=steady.exact_hit_rate,
        padding_ratio=steady.padding_ratio,
        fallback_rate=steady.fallback_rate,
        graph_bytes=_graph_bytes(mode),
        compile_count=report.metrics.compile_count,
        compile_seconds=report.metrics.compile_seconds,
        capture_count=report.metrics.capture_count,
        capture_seconds=report.metrics.capture_seconds,
        step_ms=mode.step_ms,
        decode_step_ms=mode.decode_step_ms,
        rate=rate,
        same_tokens=_same_tokens(mode, base),
        diagnosis=report.verdict,
        audit=[finding for finding in report.audit if finding.severity != "info"],
        against=held,
    )


def _what(setting: Setting, mode: str) -> str:
    if (setting.engine, mode, setting.has_gpu) == ("bundled", "graphs", False):
        return _STAND_IN
    return _WHAT[setting.engine, mode]


def _ready(ran: Ran) -> float | None:
    return None if ran.result is None else ran.result.ready_s


def _steady(report: Report) -> Metrics:
    """Return the steady period, or all where no steady step was one for graphs to serve."""
    steady = report.periods["steady"]
    return steady if steady.eligible_steps else report.metrics


def _gap(report: Report) -> float | None:
    """Return the mean idle time of the GPU within a profiled step, in ms."""
    known = [(one.steps, one.gpu_gap_ms) for one in report.step_costs.values() if one.gpu_gap_ms]
    steps = sum(number for number, _ in known)
    return sum(number * gap for number, gap in known) / steps if steps else None


def _graph_bytes(mode: SeenMode) -> int | None:
    """Return the most that a run's graphs held: by the engine's own word, else by its trace."""
    told = [run.ran.result.graph_bytes for run in mode.runs if run.ran.result is not None]
    known = [each for each in told if each is not None]
    recorded = graph_bytes(mode.runs[-1].summary.events)
    return max(known) if known else recorded


def _same_tokens(mode: SeenMode, base: SeenMode) -> bool | None:
    """Say whether the mode sampled the tokens that the base did; None for the base itself."""
    if mode is base:
        return None
    digests = [
        {run.ran.result.tokens_digest for run in one.runs if run.ran.result is not None}
        for one in (base, mode)
    ]
    return digests[0] == digests[1] if all(digests) else None
