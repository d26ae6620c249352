"""From the runs of an experiment to its answer: the table, what each mode cost, what to change."""

from __future__ import annotations

from collections.abc import Sequence

from graphdiag.bucket_advice import setting_of
from graphdiag.buckets.memory import MIB
from graphdiag.buckets.planner import plan_buckets
from graphdiag.buckets.wishes import Wishes
from graphdiag.errors import GraphdiagError
from graphdiag.experiment.against import Runs, against
from graphdiag.experiment.answer import (
    BucketChange,
    Experiment,
    Mode,
    Rate,
    Run,
    WorkloadTold,
)
from graphdiag.experiment.seen import SeenMode, see
from graphdiag.experiment.setting import Ran, Setting
from graphdiag.experiment.tablerow import table_row
from graphdiag.experiment.verdict import best_mode
from graphdiag.runconfig import capture_sizes, last_config
from graphdiag.wording import count, figure, size_in_bytes

_SLACK = 1.5
"""How many times the base's mean step the objective is, where none is given."""


def outcome(setting: Setting, ran: Sequence[Ran], *, interrupted: bool) -> Experiment:
    """Read the traces of ``ran`` and say what the modes cost and gained.

    Raises
    ------
    GraphdiagError
        When no run has recorded a step.
    SourceError
        When a trace is damaged or gone.
    """
    modes = see(ran)
    if not modes:
        raise GraphdiagError(_nothing(ran))
    base = next((mode for mode in modes if mode.mode == "eager"), modes[0])
    slo, slo_told = _slo(setting, base)
    runs = {(m.mode, run.ran.round): run.compared(slo) for m in modes for run in m.runs}
    held = {m.mode: against(base, m, runs, slo) for m in modes if m is not base}
    ordered = sorted(modes, key=lambda mode: setting.modes.index(mode.mode))
    rows = [
        table_row(setting, mode, base, _rate(mode, runs), held.get(mode.mode)) for mode in ordered
    ]
    versions: dict[str, str] = {}
    for one in ran:
        versions |= one.result.versions if one.result is not None else {}
    change, change_unknown = _bucket_change(setting, modes, base)
    return Experiment(
        format=1,
        engine=setting.engine,
        versions=versions,
        device=setting.device,
        gpu=setting.has_gpu,
        folder=str(setting.folder),
        workload=WorkloadTold(
            name=setting.workload.name,
            sentence=setting.workload.sentence,
            requests=len(setting.workload.requests),
            fixed_batches=setting.workload.has_fixed_batches,
        ),
        buckets=list(setting.buckets),
        faults=list(setting.faults),
        seed=setting.seed,
        interrupted=interrupted,
        verdict=best_mode(rows, base.mode),
        slo_itl_ms=slo,
        slo=slo_told,
        base=base.mode,
        modes=rows,
        bucket_change=change,
        runs=[_run(one) for one in ran],
        not_identifiable=[*_not_measured(setting, ran, rows), *change_unknown],
        notes=_notes(setting, ran, modes, rows, interrupted=interrupted),
    )


def _nothing(ran: Sequence[Ran]) -> str:
    told = [one.sentence for one in ran if one.sentence]
    return told[0] if told else "no run recorded a step; see the logs in the experiment's folder."


def _slo(setting: Setting, base: SeenMode) -> tuple[float | None, str]:
    if setting.slo_itl_ms is not None:
        return setting.slo_itl_ms, "as given"
    if base.step_ms is None:
        return None, f"none: give --slo-itl-ms, {base.mode} has no step times to derive it from"
    slo = float(figure(_SLACK * base.step_ms).replace(",", ""))
    return slo, f"{_SLACK:g} times the mean step of {base.mode}: give --slo-itl-ms"


def _rate(mode: SeenMode, runs: Runs) -> Rate:
    """Return the mode's rates over the windows of its runs, start-up among the steps included."""
    served = [runs[mode.mode, run.ran.round].served for run in mode.runs]
    known = [one for one in served if one is not None]
    tokens, met = (sum(getattr(one, name) for one in known) for name in ("tokens", "met"))
    seconds = sum(one.seconds for one in known)
    if not tokens or seconds <= 0:
        return Rate(tokens_per_s=None, goodput_tokens_per_s=None, goodput_share=None)
    return Rate(
        tokens_per_s=tokens / seconds,
        goodput_tokens_per_s=met / seconds,
        goodput_share=met / tokens,
    )


def _bucket_change(
    setting: Setting, modes: Sequence[SeenMode], base: SeenMode
) -> tuple[BucketChange | None, list[str]]:
    """Return the best change of one bucket for as much memory, or as many graphs, as now."""
    graphs = next((mode for mode in modes if mode.mode == "graphs"), None)
    if graphs is None or not setting.buckets:
        return None, []
    captured = _captured(setting, graphs)
    name = ", ".join(run.source for run in graphs.runs)
    baseline = base.summary if base.mode == "eager" else None
    try:
        chosen = setting_of(
            graphs.summary, name, phase="decode", current=captured, baseline=baseline
        )
        mib = chosen.memory.mib(captured)
        wishes = Wishes(max_graphs=len(captured), budget_mib=mib)
        answer = plan_buckets(chosen, wishes)
    except GraphdiagError as error:
        return None, [f"Which bucket to change: {error}"]
    if answer.current is None:
        return None, ["Which bucket to change: no captured size is on record."]
    graphs_told = count(len(captured), "graph")
    held = None if mib is None else size_in_bytes(round(mib * MIB))
    budget = graphs_told if held is None else f"{graphs_told} and {held}"
    change = answer.best_single_change
    return BucketChange(
        budget=budget,
        current=answer.current,
        change=change,
        sentence=(
            f"No change of one bucket within {budget} saves more than noise on traffic it was "
            "not fitted to."
            if change is None
            else change.sentence
        ),
    ), []


def _captured(setting: Setting, graphs: SeenMode) -> list[int]:
    """Return the sizes that the runs captured for decoding, which a fault may have changed."""
    if setting.piecewise:  # the configuration lists those of prompts among them
        return list(setting.buckets)
    return capture_sizes(last_config(graphs.summary.events)) or list(setting.buckets)


def _run(ran: Ran) -> Run:
    result = ran.result
    return Run(
        mode=ran.mode,
        round=ran.round,
        cache="empty" if ran.is_cold else "kept",
        ended=ran.ended,
        trace=None if ran.trace is None else str(ran.trace),
        log=str(ran.log),
        ready_s=None if result is None else result.ready_s,
        first_step_s=None if result is None else result.first_step_s,
        ended_s=None if result is None else result.ended_s,
        steps=None if result is None else result.steps,
        tokens_out=None if result is None else result.tokens_out,
        sentence=ran.sentence,
    )


def _not_measured(setting: Setting, ran: Sequence[Ran], rows: Sequence[Mode]) -> list[str]:
    each = (one.result.not_measured for one in ran if one.result is not None)
    told = list(dict.fromkeys(sentence for sentences in each for sentence in sentences))
    if setting.has_gpu and all(row.gpu_gap_ms is None for row in rows):
        told.append(
            "GPU gaps: no step was profiled; open a window with `graphdiag profile` in a long run."
        )
    return told


def _notes(
    setting: Setting,
    ran: Sequence[Ran],
    modes: Sequence[SeenMode],
    rows: Sequence[Mode],
    *,
    interrupted: bool,
) -> list[str]:
    notes = []
    planned = len(setting.order())
    if interrupted:
        whole = sum(one.ended == "whole" for one in ran)
        notes.append(
            f"Interrupted: {whole} of {count(planned, 'run')} ended whole; the traces so far are "
            f"whole, in {setting.folder}."
        )
    notes += setting.left_out
    if setting.faults and set(setting.modes) == {"eager"}:
        notes.append("No fault shows in eager alone: run the graphs mode beside it.")
    graphs = next((mode for mode in modes if mode.mode == "graphs"), None)
    captured = [] if graphs is None else _captured(setting, graphs)
    if captured and setting.buckets and captured != sorted(setting.buckets):
        told = ", ".join(map(str, captured))
        notes.append(f"The graphs mode captured {told}, in place of the sizes asked for.")
    notes += [str(one.sentence) for one in ran if one.ended == "failed"]
    if setting.rounds == 1:
        notes.append("Each mode ran once: no start with a compile cache, and no second opinion.")
    if not setting.workload.has_fixed_batches:
        notes.append(
            "Arrivals decide the batches: a slower mode has larger ones, and compare's equal "
            "traffic takes that out of a step's change."
        )
    for row in rows:
        held = row.against
        if held is not None and held.change_ms_per_step is not None and held.change_ci95 is None:
            notes.append(f"{row.mode}: runs too short for intervals; what it gains may be noise.")
        if row.same_tokens is False:
            notes.append(
                f"{row.mode} sampled other tokens than the base: rounding turned a tie, or it "
                "computes something else."
            )
    return notes
