"""The tables of ``graphdiag buckets`` as rows of text; the terminal and Markdown lay them out."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiag import wording
from graphdiag.buckets.answer import BucketAnswer, Plan, SizeCost
from graphdiag.reporters import format as fmt
from graphdiag.reporters.tables import NA, Sheet, known

TOP_SIZES = 12
TOP_DROPS = 12
FRONTIER_ROWS = 14
_LISTED = 24


def sheets(answer: BucketAnswer) -> Iterator[Sheet]:
    """Yield the tables that have something to show, in reading order."""
    plans = _plans(answer)
    if plans.rows:
        yield known(plans)
    if answer.frontier:
        yield known(_frontier(answer))
    if answer.sizes and answer.current is not None:
        yield known(_sizes(answer))
    if answer.drop_candidates:
        yield known(_drops(answer))


def subject(answer: BucketAnswer) -> str:
    """Return what the traffic is, in a clause."""
    first, last = answer.sizes[0].requested, answer.sizes[-1].requested
    unit = answer.axis or "rows"
    steps = "shares of steps" if answer.shares else wording.count(round(answer.steps), "step")
    engine = " ".join(filter(None, (answer.engine, answer.engine_version)))
    phase = f", {answer.phase}" if answer.phase else ""
    told = f"{engine + ', ' if engine else ''}{steps} of {first:,} to {last:,} {unit}{phase}"
    return fmt.clean(told, 300)


def slope(answer: BucketAnswer) -> str | None:
    """Return what one more row costs, in a sentence; None without times."""
    if answer.slope is None:
        return None
    interval = ""
    if answer.slope.ci95 is not None:
        low, high = (wording.figure(value) for value in answer.slope.ci95)
        interval = f" (95 %: {low} to {high})"
    each = wording.measure(answer.slope.ms_per_row, "ms")
    return f"One more row costs a replayed step {each}{interval}, over its buckets on average."


def listed(buckets: list[int]) -> str:
    """Return sizes for reading, the middle of a long list left out."""
    if len(buckets) <= _LISTED:
        return fmt.numbers(buckets)
    half = _LISTED // 2
    return f"{fmt.numbers(buckets[:half])}, …, {fmt.numbers(buckets[-half:])}"


_PLAN_HEADERS = ("set", "sizes", "graphs", "padding", "fallback", "ms/step", "MiB", "warm-up s")


def _plan_row(name: str, plan: Plan) -> tuple[str, ...]:
    return (
        name,
        str(len(plan.buckets)),
        str(plan.graphs),
        wording.percent(plan.padding_ratio, NA),
        wording.percent(plan.fallback_rate),
        _figure(plan.cost_ms_per_step),
        _figure(plan.memory_mib),
        _figure(plan.warmup_s),
    )


def _plans(answer: BucketAnswer) -> Sheet:
    change = answer.best_single_change
    move = answer.best_move
    named = [
        ("now", answer.current),
        ("best single change", None if change is None else change.plan),
        ("best move", None if move is None or move == change else move.plan),
        ("best of as many", answer.best_same_count),
        ("recommended", answer.recommended),
        ("what if", answer.what_if),
    ]
    rows = [_plan_row(name, plan) for name, plan in named if plan is not None]
    notes = ["Padding: padded / requested rows of replayed steps. Fallback: share of all steps."]
    held = answer.held_out
    if held is not None:
        cut = f"the first {wording.percent(held.fit_share)} of the steps"
        part = "the rest" if held.how == "time" else "the other"
        whole = cut if held.how == "time" else "a random half of the steps"
        notes.append(
            f"Fitted on {whole} and priced on {part}, the recommended count pads "
            f"{wording.percent(held.padding_ratio, wording.MISSING)}."
        )
    return Sheet("Sets", _PLAN_HEADERS, rows, 1, tuple(notes))


def _frontier(answer: BucketAnswer) -> Sheet:
    plans = answer.frontier
    marked = [
        index
        for index, plan in enumerate(plans)
        if len(plan.buckets) == answer.knee or plan == answer.best_same_count
    ]
    shown = sorted({*_spread(len(plans)), *marked})
    rows = []
    for index in shown:
        plan = plans[index]
        names = ["knee"] if len(plan.buckets) == answer.knee else []
        if plan == answer.best_same_count and answer.current is not None:
            as_many = len(plan.buckets) == len(answer.current.buckets)
            names.append("as many as now" if as_many else "more bring nothing")
        rows.append((*_plan_row(", ".join(names), plan)[1:], ", ".join(names)))
    return Sheet(
        "The best set of each count",
        (*_PLAN_HEADERS[1:], ""),
        rows,
        0,
        ("All counts are in --json.",) if len(shown) < len(plans) else (),
    )


def _spread(count: int) -> list[int]:
    """Return about FRONTIER_ROWS indices below ``count``, denser at the beginning."""
    if count <= FRONTIER_ROWS:
        return list(range(count))
    steps = range(FRONTIER_ROWS)
    return [round((count - 1) * (step / (FRONTIER_ROWS - 1)) ** 2) for step in steps]


def _sizes(answer: BucketAnswer) -> Sheet:
    most = sorted(answer.sizes, key=lambda size: -_weight(size))[:TOP_SIZES]
    rows = [
        (
            str(size.requested),
            _steps(size.steps, shares=answer.shares),
            "eager" if size.bucket is None else str(size.bucket),
            NA if size.padded_rows is None else str(size.padded_rows),
            _figure(size.replay_ms),
            _figure(size.eager_ms),
            _figure(size.launch_saving_ms),
            _figure(size.padded_ms),
            _figure(size.net_ms),
        )
        for size in sorted(most, key=lambda size: size.requested)
    ]
    headers = (
        *("requested", "steps", "bucket", "padded", "replay ms", "eager ms"),
        *("saved ms", "padding ms", "net ms"),
    )
    notes = []
    if any(size.net_ms is not None for size in answer.sizes):
        notes.append("Net: what replay saves in launches less what its padded rows cost, a step.")
    if len(answer.sizes) > len(rows):
        notes.append(f"The {len(rows)} sizes of most padded rows or steps; all are in --json.")
    losing = [size for size in answer.sizes if size.net_ms is not None and size.net_ms < 0]
    if losing:
        share = sum(size.steps for size in losing) / answer.steps
        notes.append(f"By these prices eager would win on {wording.percent(share)} of the steps.")
    return Sheet("Sizes that cost most now", headers, rows, 0, tuple(notes))


def _weight(size: SizeCost) -> float:
    return size.steps * (size.padded_rows if size.padded_rows is not None else size.requested)


def _drops(answer: BucketAnswer) -> Sheet:
    drops = answer.drop_candidates
    rows = [
        (
            str(drop.size),
            _steps(drop.steps, shares=answer.shares),
            str(drop.graphs),
            _figure(drop.memory_mib),
        )
        for drop in drops[:TOP_DROPS]
    ]
    more = len(drops) - len(rows)
    known_memory = any(drop.memory_mib is not None for drop in drops)
    notes = ("MiB: what dropping it alone gives back.",) if known_memory else ()
    return Sheet(
        "Captured, and hardly served",
        ("size", "steps served", "graphs", "MiB"),
        rows,
        0,
        (*notes, f"{more} more are in --json.") if more else notes,
    )


def _steps(steps: float, *, shares: bool) -> str:
    return wording.percent(steps) if shares else f"{steps:,.0f}"


def _figure(value: float | None) -> str:
    return NA if value is None else wording.figure(value)
