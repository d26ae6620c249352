"""SGLang's decode, prefill and replay-key lines as step rows."""

from __future__ import annotations

import numpy as np

from graphdiag.importers import log_columns as cols
from graphdiag.importers.log_columns import EAGER, EXACT, FALLBACK, NONE, PADDED, Column
from graphdiag.importers.log_scan import Lines
from graphdiag.importers.log_sglang_capture import prefix
from graphdiag.importers.log_sglang_engine import Engine, PhaseGraphs
from graphdiag.importers.log_sglang_lines import DECODING, VERIFYING, Labels
from graphdiag.importers.log_time import MISSING
from graphdiag_collectors.schema import MODES, PHASES, REASONS

_RUNNERS = ("target", "draft")
_UNITS = ("bs", "num_tokens")
_OVER_MAX, _NO_KEY, _UNKNOWN = map(REASONS.index, ("over_max", "no_key", "unknown"))
_LONGEST_STEP_NS = 1e12
"""A longer mean step (a thousand seconds) is a wait, not a step."""

_PADDING_LIMIT = 2
"""A prefill whose bucket exceeds this many times its tokens runs eager (since 0.5.16)."""


class Waits:
    """Finds the decode lines whose interval includes a wait for requests.

    The throughput of a decode line is over all time since the line before it. A prefill with no
    request running means that the engine stood still in between, so no step time follows from it.

    Parameters
    ----------
    fresh
        Whether the engine start was seen: then the first interval includes the wait for traffic.
    """

    def __init__(self, fresh: bool) -> None:
        self._fresh = fresh
        self._pending: dict[int, bool] = {}

    def find(self, decode: Lines, prefill: Lines) -> np.ndarray:
        """Return for each line of ``decode`` whether its interval includes a wait."""
        waited = np.zeros(len(decode), bool)
        idle = prefill["running"] == 0
        labels = np.union1d(decode["label"], prefill["label"][idle])
        for label in labels.tolist():
            rows = np.flatnonzero(decode["label"] == label)
            breaks = prefill.at[idle & (prefill["label"] == label)]
            after = np.searchsorted(decode.at[rows], breaks)
            if len(rows):
                waited[rows[after[after < len(rows)]]] = True
                waited[rows[0]] |= self._pending.get(label, self._fresh)
                self._pending[label] = False
            if (after == len(rows)).any():
                self._pending[label] = True
        return waited


def decode_rows(
    part: Lines, engine: Engine, labels: Labels, waited: np.ndarray, keyed: np.ndarray
) -> dict[str, Column]:
    """Return the columns of decode lines.

    Parameters
    ----------
    part
        The lines.
    engine
        What is known of the engine; it learns from a replay that graphs are on.
    waited
        Lines whose throughput includes a wait, so that they tell no step time.
    keyed
        Lines in a stretch where every replay has a line of its own: they stand for all steps of
        their interval. Replayed lines must not be among them.
    """
    running, graph, accepted = part["running"], part["graph"], part["accepted"]
    context, queued, rate = part["context"], part["queued"], part["rate"]
    verifying = np.isfinite(accepted)
    phase = np.where(verifying, VERIFYING, DECODING)
    stride = engine.draft_tokens or 0
    weight = np.where(keyed, engine.interval, 1)
    tokens = running * np.where(verifying, accepted, 1.0)
    step_ns = np.divide(tokens * 1e9, rate, out=np.zeros(len(part)), where=rate > 0)
    timed = (step_ns > 0) & (step_ns < _LONGEST_STEP_NS) & ~waited

    table = engine.decode
    bucket = np.where(graph, _decode_bucket(engine, running), -1)
    wanted = _graphs_wanted(table, graph)
    outcome = _outcome(running, bucket, graph, wanted)
    if graph.any():
        engine.saw_replay(table)
    reason = np.full(len(part), _UNKNOWN)
    if table.sizes:
        if not engine.padding:
            reason[~np.isin(running, table.sizes)] = _NO_KEY
        reason[running > table.sizes[-1]] = _OVER_MAX
    return {
        **_common(part, engine, labels, weight),
        **cols.fate(running, bucket, outcome, graph),
        "runner": cols.same("target", len(part)),
        "phase": cols.words(phase, PHASES),
        "axis": cols.same("requests", len(part)),
        "num_reqs": running,
        "num_tokens": cols.fitting(
            running * np.where(verifying, stride, 1), ~verifying | (stride > 0)
        ),
        "query_len": cols.known(np.full(len(part), stride), verifying & (stride > 0)),
        "mode": cols.words(_mode_codes(table, graph), MODES),
        "reason": cols.words(np.where(outcome == FALLBACK, reason, NONE), REASONS),
        "artifact": cols.named(prefix("decode"), bucket, bucket >= 0),
        "kv_tokens": cols.known(context * weight, context >= 0),
        "queued": cols.known(queued, queued >= 0),
        "dur_ns": cols.known(np.rint(np.where(timed, step_ns, 0) * weight).astype(np.int64), timed),
        "tokens_out": cols.fitting(np.rint(tokens * weight), np.ones(len(part), bool)),
    }


def prefill_rows(part: Lines, engine: Engine, labels: Labels) -> dict[str, Column]:
    """Return the columns of prefill lines; ``engine`` learns from a replay that graphs are on."""
    requests, tokens, queued, flag = (part[k] for k in ("requests", "tokens", "queued", "flag"))
    table = engine.prefill
    graph = flag == 1
    fits = table.bucket(tokens)
    bucket = np.where(graph, fits, -1)
    # Versions whose line has no flag have no prefill graphs, unless they were asked for.
    wanted = _graphs_wanted(table, graph)
    untold = (flag == NONE) & (wanted == 1)
    wanted = np.where(untold, -1, np.where(flag == NONE, 0, wanted))
    outcome = _outcome(tokens, bucket, graph, wanted)
    if graph.any():
        engine.saw_replay(table)
    reason = np.full(len(part), _UNKNOWN)
    if table.sizes:
        reason[fits > _PADDING_LIMIT * tokens] = _NO_KEY
        reason[tokens > table.sizes[-1]] = _OVER_MAX
    return {
        **_common(part, engine, labels, np.ones(len(part), np.int64)),
        **cols.fate(tokens, bucket, outcome, graph),
        "runner": cols.same("target", len(part)),
        "phase": cols.same("prefill", len(part)),
        "axis": cols.same("tokens", len(part)),
        "num_reqs": requests,
        "num_tokens": tokens,
        "mode": cols.words(np.where(untold, NONE, _mode_codes(table, graph)), MODES),
        "reason": cols.words(np.where(outcome == FALLBACK, reason, NONE), REASONS),
        "artifact": cols.named(prefix("prefill"), bucket, bucket >= 0),
        "queued": cols.known(queued, queued >= 0),
    }


def key_rows(part: Lines, engine: Engine, labels: Labels) -> dict[str, Column]:
    """Return the columns of replay-key lines: one replayed step each, requested size and bucket."""
    draft, in_tokens, phase = part["draft"], part["in_tokens"], part["phase"]
    key, raw = part["key"], part["raw"]
    # A key in tokens names the tier; how many tokens were asked for is not in the line.
    requested = np.where(in_tokens, -1, raw)
    replayed = np.ones(len(part), bool)
    outcome = np.where(key == requested, EXACT, np.where(key > requested, PADDED, NONE))
    outcome[in_tokens] = NONE
    stride = engine.draft_tokens or 0
    verifying = phase == VERIFYING
    decoding = phase == DECODING
    counted = decoding | (verifying & (stride > 0))
    engine.saw_replay(engine.decode)
    name = np.where(draft, 2, 0) + in_tokens
    names = [prefix(role, unit) for role in ("decode", "draft-decode") for unit in _UNITS]
    return {
        **_common(part, engine, labels, np.ones(len(part), np.int64)),
        **cols.fate(requested, key, outcome, replayed),
        "kind": cols.words(np.where(part["idle"], 0, NONE), ("filler",)),
        "runner": cols.words(draft.astype(np.int64), _RUNNERS),
        "phase": cols.words(phase, PHASES),
        "axis": cols.words(in_tokens.astype(np.int64), ("requests", "tokens")),
        "num_reqs": raw,
        "num_tokens": cols.fitting(np.where(verifying, raw * stride, raw), counted & ~in_tokens),
        "query_len": cols.known(np.full(len(part), stride), verifying & (stride > 0)),
        "mode": cols.same(engine.decode.mode, len(part)),
        "artifact": cols.joined(names, name, key),
        "tokens_out": cols.known(raw, decoding),
    }


def _common(part: Lines, engine: Engine, labels: Labels, weight: np.ndarray) -> dict[str, Column]:
    rank = labels.ranks(engine)[part["label"]]
    return {
        "event": cols.same("step", len(part)),
        "t_ns": cols.known(part["t"], part["t"] != MISSING),
        "run": cols.same(engine.run.id, len(part)),
        "rank": cols.known(rank, rank != NONE),
        "weight": weight,
    }


def _decode_bucket(engine: Engine, running: np.ndarray) -> np.ndarray:
    if engine.dp_attention:  # the largest rank decides, and a line tells only of its own
        return np.full(len(running), -1)
    if not engine.padding:
        return running
    return engine.decode.bucket(running)


def _graphs_wanted(table: PhaseGraphs, graph: np.ndarray) -> np.ndarray:
    """Return for each line whether graphs are on: 1 yes, 0 no, -1 not known yet."""
    before = -1 if table.on is None else int(table.on)
    return np.where(np.logical_or.accumulate(graph), 1, before)


def _outcome(
    requested: np.ndarray, bucket: np.ndarray, graph: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    replayed = np.where(bucket < 0, NONE, np.where(bucket == requested, EXACT, PADDED))
    by_hand = np.array([EAGER, FALLBACK, NONE])[wanted]
    return np.where(graph, replayed, by_hand)


def _mode_codes(table: PhaseGraphs, graph: np.ndarray) -> np.ndarray:
    return np.where(graph, MODES.index(table.mode), MODES.index("eager"))
