"""The rows of vLLM's CUDA graph tables as step rows: each stands for as many steps as it counts."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from graphdiag.importers import log_columns as cols
from graphdiag.importers.log_columns import EAGER, EXACT, FALLBACK, NONE, PADDED, Column
from graphdiag.importers.log_scan import Hits, Kind, Lines, codes_of
from graphdiag.importers.log_time import MISSING, Stamps, YearClock, fill_forward, iso_ns
from graphdiag.importers.log_vllm_engine import SPLIT_MODES, Engine
from graphdiag_collectors.schema import MODES, PHASES, REASONS

TABLE = Kind(
    "table",
    r"\|[ \t]*\d+[ \t]*\|[ \t]*\d+[ \t]*\|[ \t]*-?\d+[ \t]*\|[ \t]*(?:NONE|PIECEWISE|FULL)",
    "",
    re.compile(
        rb"\|[ \t]*(\d{1,9})[ \t]*\|[ \t]*(\d{1,9})[ \t]*\|[ \t]*-?\d{1,10}[ \t]*\|[ \t]*"
        rb"(NONE|PIECEWISE|FULL)[ \t]*\|[ \t]*(\d{1,15})[ \t]*\|[^\n]*"
    ),
)
STAMP = re.compile(rb"\b(\d\d-\d\d \d\d:\d\d:\d\d) \[")
"""The time in vLLM's own prefix."""

_RAN = ("full", "piecewise", "eager")
_MODE_CODES = np.array([MODES.index(mode) for mode in _RAN])
_FULL, _PIECEWISE, _BY_HAND = range(3)
_DECODING, _MIXED = map(PHASES.index, ("decode", "mixed"))
_OVER_MAX, _EXCLUDED, _UNKNOWN = map(REASONS.index, ("over_max", "mode_excluded", "unknown"))


class HeadReader:
    """Reads ``INFO MM-DD HH:MM:SS [file:line] `` in the heads of table rows.

    Parameters
    ----------
    clock
        Knows the year.
    """

    def __init__(self, clock: YearClock) -> None:
        self._clock = clock

    def __call__(self, heads: pa.BinaryArray) -> tuple[dict[str, np.ndarray], pa.DictionaryArray]:
        """Return the time of each head in ns as ``t``, and the heads."""
        encoded = heads.dictionary_encode()
        times = [line_ns(head, self._clock) for head in encoded.dictionary.to_pylist()]
        return {"t": np.array(times, np.int64)[codes_of(encoded)]}, encoded


def line_ns(line: bytes, clock: YearClock) -> int:
    """Return the time of ``line`` in ns: vLLM's own, else any with a year; MISSING if none."""
    match = STAMP.search(line)
    found = clock.ns(match[1]) if match else MISSING
    return iso_ns(line) if found == MISSING else int(found)


def read_lines(hits: Hits, before: int, others: Stamps) -> Lines:
    """Return table rows by column; one without a time gets that of the line before it.

    ``before`` is the time of the last line of the block before, in ns, or MISSING, and ``others``
    gives the times of the rare lines.
    """
    times = hits.head.get("t", np.zeros(0, np.int64))
    times = fill_forward({"table": times}, {"table": hits.at}, before, others)["table"]
    ran = {"FULL": _FULL, "PIECEWISE": _PIECEWISE, "NONE": _BY_HAND}
    return Lines(
        hits.at,
        {
            "t": times,
            "requested": hits.whole(0),
            "padded": hits.whole(1),
            "ran": hits.coded(2, ran),
            "count": hits.whole(3),
        },
    )


def replays(part: Lines) -> np.ndarray:
    """Return for each row whether its steps were replayed."""
    return np.asarray(part["ran"] != _BY_HAND)


def step_columns(part: Lines, engine: Engine) -> dict[str, Column]:
    """Return the columns of table rows; ``engine`` learns from replays that graphs are on.

    A table covers an interval, so where it has a replay all of its rows ran with graphs on.
    """
    times, requested, ran = part["t"], part["requested"], part["ran"]
    replayed = replays(part)
    off = np.full(len(part), engine.off())
    if replayed.any():
        off &= times < times[replayed].min()
        engine.saw_replay(int(part["padded"][replayed].max()))
    bucket = np.where(replayed, part["padded"], -1)
    outcome = np.where(
        replayed,
        np.where(bucket == requested, EXACT, np.where(bucket > requested, PADDED, NONE)),
        np.where(off, EAGER, FALLBACK),
    )
    phase = np.full(len(part), NONE)
    if engine.mode in SPLIT_MODES:
        phase[ran == _FULL] = _DECODING
        if engine.mode == "FULL_AND_PIECEWISE":
            phase[ran == _PIECEWISE] = _MIXED
    reason = np.full(len(part), _UNKNOWN)
    largest = engine.largest()
    if engine.mode == "FULL_DECODE_ONLY":
        reason[:] = _EXCLUDED
    if largest is not None:
        reason[requested > largest] = _OVER_MAX
    stride = engine.stride() or 0
    return {
        **cols.fate(requested, bucket, outcome, replayed),
        "event": cols.same("step", len(part)),
        "t_ns": cols.known(times, times != MISSING),
        "run": cols.same(engine.run.id, len(part)),
        "weight": part["count"],
        "runner": cols.same("target", len(part)),
        "phase": cols.words(phase, PHASES),
        "axis": cols.same("tokens", len(part)),
        "num_tokens": requested,
        "query_len": cols.known(np.full(len(part), stride), (phase == _DECODING) & (stride > 0)),
        "mode": cols.words(_MODE_CODES[ran], MODES),
        "reason": cols.words(np.where(outcome == FALLBACK, reason, NONE), REASONS),
        "artifact": cols.joined(_RAN, ran, bucket, when=replayed),
    }
