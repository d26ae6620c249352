"""Running totals of a process's trace, for a live display: a few numbers from each batch written.

Rows add up as everywhere in the format: counts are sums of ``weight`` and times sums of ``dur_ns``.
Every label comes from a closed vocabulary of the schema, so that what an engine calls its artifacts
cannot make the number of series grow.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphdiag_collectors.schema import (
    CACHES,
    HOOK_OFF,
    MODES,
    OUTCOMES,
    PHASES,
    REASONS,
    RUNNERS,
    SYNTHETIC_STEPS,
)

OTHER = "other"
"""Label of a word that is none of the schema's; a null is the empty label."""
STEP_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.2, 0.5, 1.0),
)
"""Upper bounds of the histogram of step times, in seconds."""


class Metric(NamedTuple):
    """A metric's name, its sentence for a person, and its labels; each is a counter or is timed.

    ``timed`` metrics are histograms over :data:`STEP_SECONDS`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    timed: bool = False


STEPS = Metric(
    "graphdiag_steps_total",
    "Real steps by how they ran.",
    ("runner", "phase", "mode", "outcome", "reason"),
)
SYNTHETIC = Metric(
    "graphdiag_synthetic_steps_total",
    "Warm-up, dummy, profile, capture and filler steps; in no other metric of steps.",
    ("runner", "kind"),
)
REQUESTED = Metric(
    "graphdiag_requested_rows_total",
    "Rows that real steps which replayed a graph needed.",
    ("runner", "phase"),
)
PADDED = Metric(
    "graphdiag_padded_rows_total",
    "Rows that those steps computed on top, to fill their bucket.",
    ("runner", "phase"),
)
TIMES = Metric(
    "graphdiag_step_seconds",
    "Time of a real step, from schedule to result.",
    ("runner", "phase", "outcome"),
    timed=True,
)
CAPTURES = Metric("graphdiag_captures_total", "Graphs captured.")
CAPTURE_SECONDS = Metric("graphdiag_capture_seconds_total", "Time spent capturing graphs.")
COMPILES = Metric("graphdiag_compiles_total", "Regions compiled or loaded.", ("cache",))
COMPILE_SECONDS = Metric("graphdiag_compile_seconds_total", "Time spent compiling and loading.")
DROPPED_ROWS = Metric("graphdiag_dropped_rows_total", "Rows that could not be recorded.")
HOOK_FAILURES = Metric("graphdiag_hook_failures_total", "Failures of graphdiag's own hooks.")

METRICS = (
    *(STEPS, SYNTHETIC, REQUESTED, PADDED, TIMES, CAPTURES, CAPTURE_SECONDS),
    *(COMPILES, COMPILE_SECONDS, DROPPED_ROWS, HOOK_FAILURES),
)

_LEGAL: dict[str, frozenset[str]] = {
    "runner": frozenset(RUNNERS),
    "phase": frozenset(PHASES),
    "mode": frozenset(MODES),
    "outcome": frozenset(OUTCOMES),
    "reason": frozenset(REASONS),
    "kind": frozenset(SYNTHETIC_STEPS),
    "cache": frozenset(CACHES),
}
_COLUMNS = [
    *("event", "kind", "weight", "dur_ns", "config", "cache", "requested", "bucket"),
    *("runner", "phase", "mode", "outcome", "reason"),
]
_OUTCOME = ("kind", *STEPS.labels).index("outcome")
_EDGES_NS = np.array(STEP_SECONDS) * 1e9
_BINS = len(STEP_SECONDS) + 1
_REPLAYED = ("exact", "padded")

Key = tuple[str, ...]
Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """One series of a metric.

    Attributes
    ----------
    labels
        In the order of the metric's.
    value
        The counter; for a timed metric the sum in seconds.
    counts
        Of a timed metric: steps in each bin of :data:`STEP_SECONDS` and above the last.
    """

    labels: Key
    value: float
    counts: tuple[float, ...] = ()


class LiveTotals:
    """Totals of the batches added so far; one thread adds, any thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, defaultdict[Key, float]] = {
            metric.name: defaultdict(float) for metric in METRICS
        }
        self._bins: defaultdict[Key, Floats] = defaultdict(lambda: np.zeros(_BINS))
        for metric in METRICS:
            if not metric.labels:
                self._sums[metric.name][()] = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch of the trace's schema."""
        batch = batch.select(_COLUMNS)
        is_step = pc.equal(batch.column("event"), "step")
        number = is_step.true_count
        if number:
            self._add_steps(batch if number == batch.num_rows else batch.filter(is_step))
        if number < batch.num_rows:
            self._add_events(batch.filter(pc.invert(is_step)))

    def raise_to(self, metric: Metric, total: float) -> None:
        """Set a counter without labels that is counted elsewhere; it never goes down."""
        with self._lock:
            sums = self._sums[metric.name]
            sums[()] = max(sums[()], total)

    def read(self, metric: Metric) -> Iterator[Sample]:
        """Return the series of one metric as they are now, sorted by label."""
        with self._lock:
            sums = sorted(self._sums[metric.name].items())
            bins = {key: tuple(counts.tolist()) for key, counts in self._bins.items()}
        for key, value in sums:
            yield Sample(key, value, bins[key] if metric.timed else ())

    def _add_steps(self, steps: pa.RecordBatch) -> None:
        keys, group = _groups(steps, ("kind", *STEPS.labels))
        size = len(keys)
        weight = _weight(steps)
        requested, bucket = _number(steps, "requested"), _number(steps, "bucket")
        replayed = np.array([key[_OUTCOME] in _REPLAYED for key in keys])[group]
        fits = replayed & (requested > 0) & (bucket >= requested)
        needed = np.bincount(group, np.where(fits, requested * weight, 0), size)
        filled = np.bincount(group, np.where(fits, bucket * weight, 0), size) - needed
        took = _number(steps, "dur_ns")
        timed = (took >= 0) & (weight > 0)
        took = np.where(timed, took, 0)
        weight_timed = np.where(timed, weight, 0)
        # A row of several steps has their total time: each counts with the mean of them all.
        bins = np.searchsorted(_EDGES_NS, took / np.maximum(weight, 1))
        binned = np.bincount(group * _BINS + bins, weight_timed, size * _BINS)
        counts = binned.astype(np.float64, copy=False).reshape(-1, _BINS)
        counted = np.bincount(group, weight, size)
        seconds = np.bincount(group, took, size) / 1e9
        sums = np.stack([counted, needed, filled, seconds], axis=1).tolist()
        with self._lock:
            for key, row, timings in zip(keys, sums, counts, strict=True):
                self._add_group(key, row, timings)

    def _add_group(self, key: Key, sums: Sequence[float], timings: Floats) -> None:
        """Add the sums of the steps of one kind and one set of labels."""
        steps, needed, filled, seconds = sums
        kind, runner, phase, _, outcome, _ = key
        if kind:
            self._sums[SYNTHETIC.name][runner, kind] += steps
            return
        self._sums[STEPS.name][key[1:]] += steps
        if needed:
            self._sums[REQUESTED.name][runner, phase] += needed
            self._sums[PADDED.name][runner, phase] += filled
        if timings.any():
            self._bins[runner, phase, outcome] += timings
            self._sums[TIMES.name][runner, phase, outcome] += seconds

    def _add_events(self, events: pa.RecordBatch) -> None:
        for name, number, seconds in (
            ("capture", CAPTURES, CAPTURE_SECONDS),
            ("compile", COMPILES, COMPILE_SECONDS),
        ):
            rows = events.filter(pc.equal(events.column("event"), name))
            if rows.num_rows:
                self._count(number, rows, _weight(rows))
                self._count(seconds, rows, np.fmax(_number(rows, "dur_ns"), 0) / 1e9)
        off = events.filter(pc.equal(events.column("kind"), HOOK_OFF))
        failures = [_failures(config) for config in off.column("config").to_pylist()]
        self._count(HOOK_FAILURES, off, np.array(failures, np.float64))

    def _count(self, metric: Metric, rows: pa.RecordBatch, values: Floats) -> None:
        """Add ``values``, one a row, to the metric's series."""
        keys, group = _groups(rows, metric.labels)
        sums = np.bincount(group, values, len(keys))
        with self._lock:
            for key, value in zip(keys, sums.tolist(), strict=True):
                self._sums[metric.name][key] += value


def _groups(rows: pa.RecordBatch, columns: Sequence[str]) -> tuple[list[Key], NDArray[np.int64]]:
    """Return the combinations of label words in ``rows``, and each row's place among them."""
    code = np.zeros(rows.num_rows, np.int64)
    combinations: list[Key] = [()]
    for name in columns:
        encoded = rows.column(name).dictionary_encode(null_encoding="encode")
        told = [_word(name, word) for word in encoded.dictionary.to_pylist()]
        words = sorted(set(told))
        place = np.array([words.index(word) for word in told], np.int64)
        code = code * len(words) + place[encoded.indices.to_numpy()]
        combinations = [(*key, word) for key in combinations for word in words]
    used = np.flatnonzero(np.bincount(code, minlength=1))
    rank = np.zeros(len(combinations), np.int64)
    rank[used] = np.arange(len(used))
    return [combinations[at] for at in used.tolist()], rank[code]


def _word(column: str, word: str | None) -> str:
    if word is None:
        return ""
    return word if word in _LEGAL[column] else OTHER


def _number(rows: pa.RecordBatch, name: str) -> Floats:
    """Return a column as floats, null as NaN."""
    numbers: Floats = (
        rows.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    )
    return numbers


def _weight(rows: pa.RecordBatch) -> Floats:
    """Return how many things each row stands for; a counter cannot go down."""
    weight = _number(rows, "weight")
    return np.where(np.isnan(weight), 1.0, np.maximum(weight, 0.0))


def _failures(config: str | None) -> float:
    """Return the failures of a hook that the mark of its end tells; at least the one."""
    try:
        told: Any = json.loads(config or "")["failures"]
        return max(float(told), 1.0)
    except (ValueError, TypeError, KeyError):
        return 1.0
