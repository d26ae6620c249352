"""Kineto: the JSON that ``torch.profiler`` exports, of vLLM, SGLang or any other program.

One file is one rank. Its steps are the engines' annotations, each with what it launched and what
the GPU made of it; a mark sums up the GPU over the whole file. Read as a stream in windows
(:mod:`~graphdiag.importers.kineto.stream`), kept as a few columns of numbers
(:mod:`~graphdiag.importers.kineto.events`), joined by correlation id
(:mod:`~graphdiag.importers.kineto.attribution`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.importers.kineto.attribution import Step, outer_steps
from graphdiag.importers.kineto.costs import step_costs, window
from graphdiag.importers.kineto.events import EventLog, Events
from graphdiag.importers.kineto.header import Header, parse_header
from graphdiag.importers.kineto.notes import damage, step_notes, window_notes
from graphdiag.importers.kineto.stream import Contents, read_trace
from graphdiag.importers.kineto.tables import capture_rows, run_row, step_rows, window_row
from graphdiag.importers.source import Source

NAME = "kineto"

_SUFFIXES = re.compile(r"(\.pt|\.trace|\.json|\.gz)+$")
_ABSOLUTE_NS = 10**18
"""Times beyond this (2001) count from 1970 whatever base the header names."""


def recognises(head: bytes) -> bool:
    """Say whether a file that starts with ``head`` is a Chrome trace as Kineto writes it."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return re.search(rb'"traceEvents"\s*:', text) is not None or (
            b'"schemaVersion"' in text and b'"deviceProperties"' in text
        )
    return re.match(rb"\[\s*\{", text) is not None and b'"ph"' in text and b'"ts"' in text


def read(sources: Sequence[Source]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file: its run event, captures, steps, and the mark of its window.

    Raises
    ------
    SourceError
        When a file cannot be opened or holds no events.
    """
    numbers: Counter[tuple[Any, ...]] = Counter()
    for source in sources:
        log = EventLog()
        with source.open() as stream:
            contents = read_trace(stream, source.path, log)
        yield from _rows(source, contents, log, numbers)


def clock_base(source: Source) -> int:
    """Return the wall-clock ns that the times of a profiler trace count from.

    Raises
    ------
    SourceError
        When the file cannot be opened, is no profiler trace, or holds no events.
    """
    if not recognises(source.head()):
        raise SourceError(f"{source.path}: no profiler trace; give the JSON of torch.profiler.")
    log = EventLog()
    with source.open() as stream:
        contents = read_trace(stream, source.path, log)
    return _base_ns(_first_ns(log.finish()), parse_header(contents.header))


def _base_ns(start: int | None, header: Header) -> int:
    return 0 if start is None or start >= _ABSOLUTE_NS else header.base_ns


def _rows(
    source: Source, contents: Contents, log: EventLog, numbers: Counter[tuple[Any, ...]]
) -> Iterator[pa.RecordBatch]:
    events = log.finish()
    header = parse_header(contents.header)
    steps = outer_steps(events.annotations)
    costs, links = step_costs(events, steps)
    measured = window(events, links)
    start = _first_ns(events)
    base_ns = _base_ns(start, header)
    common = {
        "run": header.run or _SUFFIXES.sub("", re.split(r"[/\\]", source.path)[-1]),
        "rank": header.rank,
        "pid": events.pid,
    }
    notes = [
        *window_notes(events, measured, contents.lost_events),
        *step_notes(steps, costs, contents.lost_events),
    ]
    if start is not None and start + base_ns < _ABSOLUTE_NS:
        notes.append("The trace does not name the base of its clock: its dates are not real.")
    config = _config(header, steps, notes, damage(log, contents, len(steps)))
    yield run_row(None if start is None else start + base_ns, config, common)
    yield capture_rows(events.annotations, base_ns, common)
    counted = _numbered(steps, common, numbers)
    lost = contents.lost_events
    yield step_rows(steps, costs, counted, base_ns, common, lost_events=lost)
    if measured is not None:
        yield window_row(measured, base_ns, common)


def _config(
    header: Header, steps: Sequence[Step], notes: list[str], damaged: list[str]
) -> dict[str, Any]:
    engines = {step.label.engine for step in steps}
    engine = "sglang" if "sglang" in engines else "vllm" if engines else None
    config = {"engine": engine, **header.config, "importer": NAME, "notes": notes}
    return {**config, "damage": damaged} if damaged else config


def _numbered(
    steps: Sequence[Step], common: dict[str, Any], numbers: Counter[tuple[Any, ...]]
) -> list[int]:
    """Count steps in their process and runner, on from the files before."""
    found = []
    for step in steps:
        key = (*common.values(), step.label.runner)
        found.append(numbers[key])
        numbers[key] += 1
    return found


def _first_ns(events: Events) -> int | None:
    """Return the start of the earliest label or GPU event, on the file's own clock."""
    starts = [note.start for note in events.annotations]
    if len(events.gpu):
        starts.append(int(events.gpu.start.min()))
    return min(starts, default=None)
