"""SGLang's numerous lines by column: decode, prefill and replay-key lines of every version."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphdiag.importers.log_columns import NONE
from graphdiag.importers.log_scan import (
    Hits,
    Kind,
    Lines,
    as_numpy,
    codes_of,
    fronts,
    letters_of,
    offsets_of,
    tails,
)
from graphdiag.importers.log_sglang_engine import Engine
from graphdiag.importers.log_time import MISSING, Stamps, fill_forward, stamp_column
from graphdiag_collectors.schema import PHASES

_BATCH = rb"(?:\.| \[\d+\],|,) ?"

DECODE = Kind(
    "decode",
    r"Decode batch(?:\.|,| \[)",
    "Decode batch",
    re.compile(
        rb"Decode batch" + _BATCH + rb"#running-req: (\d{1,7}), "
        rb"(?:#(?:full )?token: (\d{1,12}), )?(?:[^\n]*?accept len: (\d{1,4}(?:\.\d{1,9})?))?"
        rb"[^\n]*? graph: (True|False), "
        rb"gen throughput \(token/s\): (\d{1,15}(?:\.\d{1,9})?)"
        rb", #queue-req: (\d{1,9})[^\n]*"
    ),
)
PREFILL = Kind(
    "prefill",
    r"Prefill batch(?:\.|,| \[)",
    "Prefill batch",
    re.compile(
        rb"Prefill batch" + _BATCH + rb"#new-seq: (\d{1,9}), #new-token: (\d{1,9}), "
        rb"#cached-token: [^,\n]*(?:[^\n]*?#running-req: (\d{1,9}))?"
        rb"(?:[^\n]*?#queue-req: (\d{1,9}))?(?:[^\n]*? graph: (True|False))?[^\n]*"
    ),
)
KEY = Kind(
    "key",
    "Decode graph replay: worker=",
    "Decode graph replay: worker=",
    re.compile(
        rb"Decode graph replay: worker=(draft|target) key_size=(\d{1,9}) "
        rb"\((bs|num_tokens)\) mode=(\w+) raw_bs=(\d{1,7})[^\n]*"
    ),
)
_STAMP_BYTES = len("2026-05-04 09:30:00")
KINDS = (KEY, DECODE, PREFILL)

_REST = re.compile(rb"(?:[.,](\d{1,6}))?((?: [A-Z_]+\d+)*)\] (?:[A-Z]+ [\w.]+:\d+: )?")
"""What comes between the seconds of a line's prefix and its message."""

DECODING, VERIFYING = map(PHASES.index, ("decode", "verify"))
"""Codes of the phases that a decode line or a replay can be in."""


class Labels:
    """The rank labels of a log's prefixes, such as `` DP1 TP3``, as codes."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    def code(self, label: bytes) -> int:
        """Return the code of ``label``."""
        return self._codes.setdefault(label, len(self._codes))

    def ranks(self, engine: Engine) -> np.ndarray:
        """Return the global rank of each code, -1 where unclear."""
        ranks = (engine.rank(label) for label in self._codes)
        return np.array([NONE if rank is None else rank for rank in ranks], np.int64)

    def read_heads(self, heads: pa.BinaryArray) -> tuple[dict[str, np.ndarray], pa.DictionaryArray]:
        """Read ``[YYYY-MM-DD HH:MM:SS DP0 TP0] `` at the end of each head.

        Returns the time ``t`` in ns (MISSING where there is no such prefix) and the code of the
        label, and what comes before the prefix.
        """
        found = as_numpy(pc.find_substring(heads, "[20")).astype(np.int64)
        offsets = offsets_of(heads).astype(np.int64)
        starts, ends = offsets[:-1] + found + 1, offsets[1:]
        times = stamp_column(letters_of(heads), np.where(found < 0, -1, starts), ends)
        rest = tails(heads, np.minimum(starts + _STAMP_BYTES, ends) - offsets[:-1])
        rests = rest.dictionary_encode()
        matches = [_REST.fullmatch(text) for text in rests.dictionary.to_pylist()]
        fractions = [int(match[1].ljust(9, b"0")) if match and match[1] else 0 for match in matches]
        labels = [self.code(match[2]) if match else self.code(b"") for match in matches]
        whole = np.array([match is not None for match in matches])
        which = codes_of(rests)
        times = np.where(
            (times != MISSING) & whole[which], times + np.array(fractions)[which], MISSING
        )
        columns = {"t": times, "label": np.array(labels)[which]}
        if not found.any():  # as a rule the prefix is all there is
            return columns, pa.repeat(b"", len(heads)).dictionary_encode()
        return columns, fronts(heads, np.maximum(found, 0)).dictionary_encode()


def read_lines(hits: dict[str, Hits], before: int, others: Stamps) -> dict[str, Lines]:
    """Return the numerous lines of a block by column, each with its time and label.

    A line without a time gets that of the line before it: ``before`` is the time of the last line
    of the block before, in ns, or MISSING, and ``others`` gives the times of the rare lines.
    """
    empty = {"t": np.zeros(0, np.int64), "label": np.zeros(0, np.int64)}
    heads = {name: found.head or empty for name, found in hits.items()}
    times = fill_forward(
        {name: head["t"] for name, head in heads.items()},
        {name: found.at for name, found in hits.items()},
        before,
        others,
    )
    return {
        name: Lines(found.at, {**heads[name], "t": times[name], **_READERS[name](found)})
        for name, found in hits.items()
    }


def _read_decode(hits: Hits) -> dict[str, np.ndarray]:
    return {
        "running": hits.whole(0),
        "context": hits.whole(1),
        "accepted": hits.decimal(2),
        "graph": hits.coded(3, {"True": 1}) == 1,
        "rate": hits.decimal(4),
        "queued": hits.whole(5),
    }


def _read_prefill(hits: Hits) -> dict[str, np.ndarray]:
    return {
        "requests": hits.whole(0),
        "tokens": hits.whole(1),
        "running": hits.whole(2),
        "queued": hits.whole(3),
        "flag": hits.coded(4, {"False": 0, "True": 1}),
    }


def _read_key(hits: Hits) -> dict[str, np.ndarray]:
    phases = {"DECODE": DECODING, "TARGET_VERIFY": VERIFYING}
    return {
        "draft": hits.coded(0, {"draft": 1}) == 1,
        "key": hits.whole(1),
        "in_tokens": hits.coded(2, {"num_tokens": 1}) == 1,
        "phase": hits.coded(3, phases),
        "idle": hits.coded(3, {"IDLE": 1}) == 1,
        "raw": hits.whole(4),
    }


_READERS = {DECODE.name: _read_decode, PREFILL.name: _read_prefill, KEY.name: _read_key}
