"""The tables of ``graphdiag experiment`` as rows of text; terminal and Markdown lay them out.

Modes are columns, what was measured rows: a column is as narrow as its mode's name allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphdiag import wording
from graphdiag.experiment.answer import BucketChange, Experiment, Mode, Repayment, Run
from graphdiag.reporters import format as fmt
from graphdiag.reporters.tables import NA, Sheet
from graphdiag.titles import TERMS

_Cell = Callable[[Mode], str]


def sheets(found: Experiment) -> Iterator[Sheet]:
    """Yield the tables that have something to show, in reading order."""
    yield _costs(found)
    if any(mode.against is not None and mode.against.terms is not None for mode in found.modes):
        yield _changes(found)
    yield _runs(found)


def subject(found: Experiment) -> str:
    """Return what was run, in one line."""
    versions = ", ".join(
        f"{fmt.clipped(name)} {fmt.clipped(version)}"
        for name, version in sorted(found.versions.items())
    )
    engine = "the bundled engine" if found.engine == "bundled" else fmt.clipped(found.engine)
    told = f"{engine} on {fmt.clipped(found.device)}"
    return f"{told} ({versions})" if versions else told


def buckets(found: Experiment) -> str:
    """Return the sizes that were captured."""
    return fmt.numbers(found.buckets) or "those the engine chose"


def objective(found: Experiment) -> str:
    """Return the objective of the goodput, and where it comes from."""
    if found.slo_itl_ms is None:
        return fmt.clean(found.slo)
    return f"{wording.measure(found.slo_itl_ms, 'ms')} between tokens ({fmt.clean(found.slo)})"


def what(found: Experiment) -> list[str]:
    """Return a line on what each mode is."""
    return [f"{mode.mode}: {fmt.clean(mode.what)}" for mode in found.modes]


def faults(found: Experiment) -> str | None:
    """Return the faults that were switched on; None without any."""
    return ", ".join(map(fmt.name, found.faults)) or None


def diagnoses(found: Experiment) -> list[tuple[str, str]]:
    """Return mode and diagnosis of those that have one, and what the audit found beside it."""
    told = []
    for mode in found.modes:
        if mode.diagnosis.case is not None or mode.exact_hit_rate is not None:
            told.append((mode.mode, fmt.clean(mode.diagnosis.sentence)))
        told += [
            (mode.mode, f"{one.severity}: {fmt.name(one.kind)}: {fmt.clean(one.sentence, 300)}")
            for one in fmt.worst_first(mode.audit)
        ]
    return told


def bucket_change(told: BucketChange) -> list[str]:
    """Return what to change, and whom that hurts; whom it helps most is in its sentence."""
    change = told.change
    helps = [] if change is None else [f"Helps: {each.sentence}." for each in change.helps[1:]]
    hurts = [] if change is None else [f"Hurts: {each.sentence}." for each in change.hurts]
    return [fmt.clean(sentence) for sentence in (told.sentence, *helps, *hurts)]


def verdicts(found: Experiment) -> list[str]:
    """Return the verdict on each mode after its full cost."""
    told = []
    for mode in found.modes:
        if mode.against is not None:
            told.append(fmt.clean(mode.against.sentence))
            if mode.against.warm is not None:
                warm = fmt.clean(mode.against.warm.sentence)
                told.append(f"{mode.mode}, started with a compile cache: {warm}")
    return told


def _costs(found: Experiment) -> Sheet:
    rows: list[tuple[str, _Cell]] = [
        ("cold start, s", lambda mode: _number(mode.cold_start_s)),
        ("time to first step, s", lambda mode: _number(mode.first_step_s)),
        ("warm start, s", lambda mode: _number(mode.warm_start_s)),
        ("compiled and captured", _made),
        ("CPU preparation, ms a step", lambda mode: _number(mode.prepare_ms)),
        ("GPU gaps, ms a step", lambda mode: _number(mode.gpu_gap_ms) if found.gpu else "no GPU"),
        ("exact hits, %", lambda mode: _percent(mode.exact_hit_rate)),
        ("padding, % of rows asked for", lambda mode: _percent(mode.padding_ratio)),
        ("fallbacks, % of steps", lambda mode: _percent(mode.fallback_rate)),
        ("graph memory", lambda mode: wording.size_in_bytes(mode.graph_bytes, NA)),
        ("mean step, ms", lambda mode: _number(mode.step_ms)),
        ("mean decode step, ms", lambda mode: _number(mode.decode_step_ms)),
        ("tokens/s", lambda mode: _number(mode.rate.tokens_per_s)),
        ("goodput, tokens/s", lambda mode: _number(mode.rate.goodput_tokens_per_s)),
        ("tokens within objective, %", lambda mode: _percent(mode.rate.goodput_share)),
        ("pays for its start after, steps", _steps),
        ("that many without a pause", _hours),
        ("improves the service", _succeeded),
    ]
    notes = [
        "Starts: process start to the first request taken, with an empty compile cache (cold) and "
        "a kept one (warm). Steps: of steady state. Tokens: those of decode steps, without the "
        "first of each request, which its prompt's step gives; from the first step to the last.",
    ]
    if any(mode.against is not None for mode in found.modes):
        notes.append(f"Held against {fmt.clipped(str(found.base))}, -: the base itself.")
    return Sheet(
        "What each mode costs and gives",
        ("", *(fmt.clipped(mode.mode, 16) for mode in found.modes)),
        [(name, *map(cell, found.modes)) for name, cell in rows],
        1,
        tuple(notes),
    )


def _changes(found: Experiment) -> Sheet:
    held = [mode for mode in found.modes if mode.against is not None]
    rows = []
    for name, title in TERMS.items():
        cells = (
            NA
            if mode.against is None or mode.against.terms is None
            else _signed(getattr(mode.against.terms, name))
            for mode in held
        )
        rows.append((title, *cells))
    totals = (
        NA if mode.against is None else _signed(mode.against.all_change_ms_per_step)
        for mode in held
    )
    rows.append(("in all", *totals))
    return Sheet(
        f"Change of the mean step against {fmt.clipped(str(found.base))}, ms",
        ("", *(fmt.clipped(mode.mode, 16) for mode in held)),
        rows,
        1,
        ("Means over the rounds; all steps, start-up among them included.",),
    )


def _runs(found: Experiment) -> Sheet:
    return Sheet(
        "Runs, in order",
        ("mode", "cache", "ended", "trace", "ready, s", "first step, s", "in all, s"),
        [
            (
                run.mode,
                run.cache,
                run.ended,
                _trace(run),
                _number(run.ready_s),
                _number(run.first_step_s),
                _number(run.ended_s),
            )
            for run in found.runs
        ],
        4,
        (),
    )


def _trace(run: Run) -> str:
    return NA if run.trace is None else fmt.name(run.trace.rpartition("/")[2])


def _made(mode: Mode) -> str:
    return f"{mode.compile_count + mode.capture_count:,}"


def _steps(mode: Mode) -> str:
    if mode.against is None:
        return "-"
    cost = mode.against.cold
    return _repaid(cost, None if cost.steps is None else f"{round(cost.steps):,}")


def _hours(mode: Mode) -> str:
    if mode.against is None:
        return "-"
    cost = mode.against.cold
    return _repaid(cost, None if cost.hours is None else wording.duration(cost.hours * 3600))


def _repaid(cost: Repayment, told: str | None) -> str:
    if told is not None:
        return told
    return "never" if cost.sentence.startswith("Never") else NA


def _succeeded(mode: Mode) -> str:
    if mode.against is None:
        return "-"
    return {True: "yes", False: "no", None: NA}[mode.against.succeeded]


def _number(value: float | None) -> str:
    return NA if value is None else wording.figure(value)


def _signed(value: float | None) -> str:
    if value is None:
        return NA
    return "0" if value == 0 else f"{'+' if value > 0 else '-'}{wording.figure(abs(value))}"


def _percent(fraction: float | None) -> str:
    return NA if fraction is None else wording.points(fraction)
