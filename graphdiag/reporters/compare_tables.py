"""The tables of ``graphdiag compare`` as rows of text; the terminal and Markdown lay them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10
from typing import Any

from graphdiag import wording
from graphdiag.checks import is_imported, nothing_made
from graphdiag.comparison.answer import (
    Comparison,
    Difference,
    FirstToken,
    Goodput,
    Interval,
    Objectives,
    RequestGoodput,
    SizeChange,
    StartUp,
)
from graphdiag.findings import Report
from graphdiag.reporters import format as fmt
from graphdiag.reporters.tables import NA, Sheet, known
from graphdiag.titles import SELDOM, TERMS

TOP_SIZES = 12
TOP_DIFFERENCES = 24
NO_INTERVAL = (None, None)
_CELL = 60
_LISTED = 12


def sheets(found: Comparison) -> Iterator[Sheet]:
    """Yield the tables that have something to show, in reading order."""
    if found.terms is not None:
        yield known(_terms(found))
    if found.delta_ms_per_step is not None:
        yield known(_change(found))
    yield _both(found)
    yield known(_start_up(found))
    if found.objectives is not None and _tells_goodput(found.objectives):
        yield known(_goodput(found))
    if found.objectives is not None and found.objectives.first_token is not None:
        yield known(_first_token(found.objectives, found.objectives.first_token))
    sizes = _sizes(found)
    if sizes.rows and found.terms is not None:  # else a size is not the same thing in both
        yield known(sizes)


def differences(found: Comparison) -> list[tuple[str, str, str]]:
    """Return key, base and candidate of each difference to show."""
    shown = []
    for one in found.differences[:TOP_DIFFERENCES]:
        base, candidate = _values(one)
        shown.append((fmt.name(one.key), base, candidate))
    return shown


def more_differences(found: Comparison) -> str | None:
    """Return how many differences are left out; None where all are shown."""
    more = len(found.differences) - TOP_DIFFERENCES
    return f"{wording.count(more, 'more difference')} in --json." if more > 0 else None


def no_differences(found: Comparison) -> str:
    """Return why there is no difference to show."""
    if any(len(report.engine) <= 2 for report in (found.base, found.candidate)):
        return "One of the two carries no configuration to hold against the other's."
    return "None on record: both ran with the same configuration."


def subject(report: Report) -> str:
    """Return the source, and what it is about."""
    return f"{fmt.clean(report.source, 300)}; {fmt.subject(report)}."


def _values(one: Difference) -> tuple[str, str]:
    """Return both values; of lists, what only one of them holds."""
    base, candidate = one.base, one.candidate
    if isinstance(base, list) and isinstance(candidate, list):
        return _list(base, candidate), _list(candidate, base)
    if one.key.endswith("_bytes"):
        return _bytes(base), _bytes(candidate)
    return _value(base), _value(candidate)


def _bytes(value: Any) -> str:
    return wording.size_in_bytes(value) if isinstance(value, int) else _value(value)


def _list(values: list[Any], other: list[Any]) -> str:
    own = [value for value in values if value not in other]
    if len(values) <= _LISTED or not own:
        return _value(values)
    shown = ", ".join(fmt.clipped(str(value), 20) for value in own[:_LISTED])
    more = f" and {len(own) - _LISTED} more" if len(own) > _LISTED else ""
    return f"{wording.count(len(values))} values; only here: {shown}{more}"


def _value(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, list):
        if len(value) > _LISTED:
            return (
                f"{wording.count(len(value))} values, {fmt.clipped(str(value[0]), 20)} to "
                f"{fmt.clipped(str(value[-1]), 20)}"
            )
        value = ", ".join(map(str, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return wording.count(value)
    return fmt.clipped(str(value), _CELL)


def _terms(found: Comparison) -> Sheet:
    assert found.terms is not None
    shown = {
        key: title for key, title in TERMS.items() if key not in SELDOM or getattr(found.terms, key)
    }
    ends = [
        NO_INTERVAL if found.terms_ci95 is None else getattr(found.terms_ci95, name) or NO_INTERVAL
        for name in shown
    ]
    token = found.per_token
    columns = [
        _signed([*(getattr(found.terms, name) for name in shown), found.delta_ms_per_step]),
        *(
            _signed([*(end[side] for end in ends), (found.ci95 or NO_INTERVAL)[side]])
            for side in (0, 1)
        ),
        _signed(
            [None] * (len(shown) + 1)
            if token is None
            else [*(getattr(token.terms, name) for name in shown), token.delta_ms],
            3,
        ),
    ]
    return Sheet(
        "What the change is made of",
        ("", "ms/step", "95 % low", "95 % high", "ms/token"),
        list(zip([*shown.values(), "sum"], *columns, strict=True)),
        1,
        (
            "Positive is slower. The intervals of the terms hold all of them at once; the terms "
            "add up to the sum.",
        ),
    )


def _change(found: Comparison) -> Sheet:
    changes = [
        (found.delta_ms_per_step, found.ci95),
        (found.steady_ms_per_step, found.steady_ci95),
        (found.matched_ms_per_step, found.matched_ci95),
        (found.steady_matched_ms_per_step, found.steady_matched_ci95),
    ]
    names = (
        *("all steps", "steady (no start-up)"),
        *("equal traffic", "equal traffic, steady"),
    )
    rows = list(
        zip(
            names,
            [_figure(found.base_ms_per_step), _figure(found.base_steady_ms_per_step), "", ""],
            [
                _figure(found.candidate_ms_per_step),
                _figure(found.candidate_steady_ms_per_step),
                *("", ""),
            ],
            _signed([value for value, _ in changes]),
            *(_signed([(ends or NO_INTERVAL)[side] for _, ends in changes]) for side in (0, 1)),
            strict=True,
        )
    )
    return Sheet(
        "Mean step time in ms",
        ("", "base", "candidate", "change", "95 % low", "95 % high"),
        rows,
        1,
        ("Equal traffic: each size as often in both, at the mean of its two shares.",),
    )


def _both(found: Comparison) -> Sheet:
    """Lay out what each of the two shows by itself."""
    metrics = (found.base.metrics, found.candidate.metrics)
    made = [not nothing_made(one) for one in metrics]

    def row(title: str, value: Callable[[Any], str]) -> tuple[str, ...]:
        return (title, *map(value, metrics))

    def work(title: str, name: str) -> tuple[str, ...]:
        told = [
            _figure(getattr(one, name)) if known or not is_imported(report) else NA
            for one, known, report in zip(metrics, made, (found.base, found.candidate), strict=True)
        ]
        return (title, *told)

    rows = [
        row("steps", lambda one: wording.count(one.steps)),
        row("p50 in ms", lambda one: _figure(one.step_ms_p50)),
        row("p99 in ms", lambda one: _figure(one.step_ms_p99)),
        row("exact hits in %", lambda one: _points(one.exact_hit_rate)),
        row("fallback in %", lambda one: _points(one.fallback_rate)),
        row("padding in %", lambda one: _points(one.padding_ratio)),
        work("compile in s", "compile_seconds"),
        work("capture in s", "capture_seconds"),
        row("graph memory", lambda one: wording.size_in_bytes(one.graph_bytes, NA)),
    ]
    rows = [one for one in rows if set(one[1:]) != {NA}]
    return Sheet(
        "Each by itself",
        ("", "base", "candidate"),
        rows,
        1,
        (
            "Exact hits and fallback: of the steps that graphs should have served. Padding: padded "
            "rows / requested rows of replayed steps. p50, p99: read off a histogram, to within "
            "5 %.",
        ),
    )


def _start_up(found: Comparison) -> Sheet:
    both = (found.base_start_up, found.candidate_start_up)

    def row(title: str, value: Callable[[StartUp], str]) -> tuple[str, ...]:
        return (title, *map(value, both))

    rows = [
        row("time to first step", lambda one: _seconds(one.first_step_s)),
        row("of it: compile", lambda one: _seconds(one.compile_s)),
        row("of it: load from cache", lambda one: _seconds(one.cache_load_s)),
        row("of it: capture", lambda one: _seconds(one.capture_s)),
        row("of it: rest", lambda one: _seconds(one.rest_s)),
        row("artifacts made", _made),
        row("artifacts that served", lambda one: _count(one.served)),
        row("steps they served", lambda one: _count(one.served_steps)),
    ]
    return Sheet(
        "Start-up",
        ("", "base", "candidate"),
        rows,
        1,
        (
            "Time to first step: from the first row on record to the first real step. Artifacts: "
            "of the whole run.",
        ),
    )


def _made(start: StartUp) -> str:
    """Return how many artifacts were made; none on record where some served is no figure."""
    return NA if not start.artifacts and start.served is None else wording.count(start.artifacts)


def _tells_goodput(told: Objectives) -> bool:
    """Say whether one of the two tells the tokens that came within the objective between them."""
    return any(one.tokens_per_s is not None for one in (told.base, told.candidate))


def _goodput(found: Comparison) -> Sheet:
    told = found.objectives
    assert told is not None

    def row(name: str, one: Goodput) -> tuple[str, ...]:
        return (
            name,
            _figure(one.tokens_per_s),
            _points(one.share),
            _figure(one.steady_tokens_per_s),
            _points(one.steady_share),
        )

    rows = [row("base", told.base), row("candidate", told.candidate)]
    return Sheet(
        f"Goodput: tokens at most {told.slo_itl_ms or 0.0:g} ms after the one before",
        ("", "tokens/s", "% of all", "steady tokens/s", "% of all, steady"),
        rows,
        1,
        _gain(told.gain_tokens_per_s, told.gain_ci95),
    )


def _first_token(objectives: Objectives, told: FirstToken) -> Sheet:
    def row(name: str, one: RequestGoodput) -> tuple[str, ...]:
        return (
            name,
            wording.count(one.requests),
            _points(one.share),
            _points(one.steady_share),
            _figure(one.tokens_per_s),
            _figure(one.steady_tokens_per_s),
        )

    return Sheet(
        f"Goodput: requests whose first token came within {objectives.slo_ttft_ms or 0.0:g} ms",
        ("", "requests", "% in time", "% steady", "tokens/s", "steady tokens/s"),
        [row("base", told.base), row("candidate", told.candidate)],
        1,
        (
            "Steady: requests that arrived after start-up.",
            *_gain(told.gain_tokens_per_s, told.gain_ci95),
        ),
    )


def _gain(per_s: float | None, ci95: Interval) -> tuple[str, ...]:
    if per_s is None:
        return ()
    value, low, high = _signed([per_s, *(ci95 or NO_INTERVAL)])
    interval = "" if ci95 is None else f" (95 %: {low} to {high})"
    return (f"Gain: {value} tokens/s{interval}, start-up included.",)


def _sizes(found: Comparison) -> Sheet:
    changed = [one for one in found.sizes if one.cost_ms_per_step]
    ordered = sorted(changed, key=lambda one: -abs(one.cost_ms_per_step or 0.0))
    shown = ordered[:TOP_SIZES]
    net = {one.requested: one.net_ms for one in found.size_costs}
    rows = [
        (
            fmt.name(one.phase),
            NA if one.requested is None else wording.count(one.requested),
            _bucket(one.base_bucket),
            _bucket(one.candidate_bucket),
            wording.count(one.base_steps),
            wording.count(one.candidate_steps),
            _figure(one.base_ms),
            _figure(one.candidate_ms),
            cost,
            *([_net(one, net)] if found.winner is not None else []),
        )
        for one, cost in zip(
            shown, _signed([one.cost_ms_per_step for one in shown], 3), strict=True
        )
    ]
    notes = [
        "Then: in the candidate. Bucket: the one that most of the steps replayed. Costs: the "
        "change in ms, times the size's share of the steps; positive is slower."
    ]
    if found.winner is not None:
        notes.append(
            "Net: ms that replay saves against eager at that size, less its padding. "
            f"{fmt.clean(found.winner)}"
        )
    if len(ordered) > len(rows):
        notes.append(f"Left out: {wording.count(len(ordered) - len(rows), 'size')}; see --json.")
    return Sheet(
        "Sizes whose change costs most",
        (
            *("phase", "size", "bucket", "then", "steps", "then", "ms", "then", "costs"),
            *(["net"] if found.winner is not None else []),
        ),
        rows,
        1,
        tuple(notes),
    )


def _net(size: SizeChange, net: dict[int, float | None]) -> str:
    return _figure(None if size.requested is None else net.get(size.requested))


def _bucket(bucket: int | None) -> str:
    return "none" if bucket is None else wording.count(bucket)


def _signed(values: Sequence[float | None], digits: int = 4) -> list[str]:
    """Return changes with their signs and the decimals that ``digits`` of the largest take."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    decimals = min(max(digits - 1 - floor(log10(largest)), 0), 6) if largest > 0 else 0
    texts = (NA if value is None else f"{value:+,.{decimals}f}" for value in values)
    return [text if text.strip("+-0.") else text.lstrip("+-") for text in texts]


def _seconds(value: float | None) -> str:
    return wording.measure(value, "s", NA)


def _count(number: int | None) -> str:
    return NA if number is None else wording.count(number)


def _figure(value: float | None) -> str:
    return NA if value is None else wording.figure(value)


def _points(fraction: float | None) -> str:
    return NA if fraction is None else wording.points(fraction)
