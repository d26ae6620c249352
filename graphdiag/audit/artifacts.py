"""Audit of the artifacts: captured and never used, used and never warmed, stale, out of order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import polars as pl

from graphdiag.evidence import Evidence, listed, step_count
from graphdiag.findings import AuditFinding
from graphdiag.metrics import ELIGIBLE, is_replayed, is_target
from graphdiag.wording import count


def unused_artifacts(evidence: Evidence) -> list[AuditFinding]:
    """Find captures that served nothing: all of them, an error; single sizes, information."""
    captures = evidence.summary.events.filter((pl.col("event") == "capture") & is_target())
    made = int(captures["weight"].fill_null(1).sum())
    eligible = evidence.steps.filter(pl.col("outcome").is_in(ELIGIBLE))
    served = evidence.steps.filter(is_replayed())
    replays = evidence.replays.outside
    if made and step_count(eligible) and not step_count(served) and not replays:
        top = evidence.captured[-1] if evidence.captured else None
        fit = step_count(eligible.filter(pl.col("requested") <= top)) if top is not None else None
        inside = f", though {fit:,} of them were within the largest size {top}" if fit else ""
        sentence = (
            f"{made} graphs were captured and not one of {step_count(eligible):,} steps replayed "
            f"any{inside}: the key they are looked up by does not match, or graphs are switched "
            "off for this kind of batch. Other sizes will not help."
        )
        data: dict[str, Any] = {"captured": made, "steps": step_count(eligible), "served": 0}
        return [
            AuditFinding(kind="unused_artifacts", severity="error", sentence=sentence, data=data)
        ]
    used = set(evidence.on_axis.filter(is_replayed())["bucket"].drop_nulls())
    idle = [size for size in evidence.captured if size not in used]
    if not used or not idle:
        return []
    steps = step_count(served)
    sentence = (
        f"{len(idle)} of {len(evidence.captured)} captured sizes served none of the {steps:,} "
        f"replayed steps seen: {listed(idle)}."
    )
    data = {"sizes": idle, "captured": len(evidence.captured)}
    return [AuditFinding(kind="unused_artifacts", severity="info", sentence=sentence, data=data)]


def never_warmed(evidence: Evidence) -> list[AuditFinding]:
    """Find traffic that captured its artifact on the way, or replayed one never captured here."""
    findings = []
    lazy = evidence.steps.filter(pl.col("outcome") == "capture")
    if step_count(lazy):
        sizes = sorted(set(lazy["requested"].drop_nulls()))
        sentence = (
            f"{step_count(lazy):,} steps of real traffic captured or compiled their artifact while "
            f"a user waited (sizes {listed(sizes)}): warm-up did not exercise these keys."
        )
        data = {"steps": step_count(lazy), "sizes": sizes}
        findings.append(
            AuditFinding(kind="never_warmed", severity="error", sentence=sentence, data=data)
        )
    replayed = evidence.steps.filter(is_replayed() & pl.col("artifact").is_not_null())
    known = evidence.summary.events.filter(
        pl.col("event").is_in(["capture", "compile"]) & pl.col("artifact").is_not_null()
    )
    if known.is_empty():
        return findings
    made = pl.concat([known["artifact"], lazy["artifact"].drop_nulls()]).implode()
    cold = replayed.filter(~pl.col("artifact").is_in(made))
    if step_count(cold):
        names = sorted(set(cold["artifact"]))
        sentence = (
            f"{step_count(cold):,} steps replayed {len(names)} artifacts whose capture is not on "
            f"record ({_named(names)}), though others' are: they were not part of the warm-up seen."
        )
        data = {"steps": step_count(cold), "artifacts": names[:50]}
        findings.append(
            AuditFinding(kind="never_warmed", severity="warn", sentence=sentence, data=data)
        )
    return findings


def stale_artifact(evidence: Evidence) -> list[AuditFinding]:
    """Find two identities behind one look-up key: an influence that the key leaves out."""
    rows = evidence.summary.events.filter(
        pl.col("event").is_in(["capture", "compile"])
        & pl.col("key").is_not_null()
        & pl.col("identity").is_not_null()
    )
    findings = []
    for (key,), group in rows.group_by("key", maintain_order=True):
        identities = list(group["identity"].unique(maintain_order=True))
        if len(identities) < 2:
            continue
        hit = bool((group["cache"] == "hit").any())
        outlives_process = hit or bool((group["cache"] == "miss").any())
        within_one_run = bool(
            (group.group_by("run").agg(pl.col("identity").n_unique())["identity"] > 1).any()
        )
        if not outlives_process and not within_one_run:
            continue  # graphs in memory die with their process: a new run may differ
        influences = _differing(identities)
        served = _served(evidence, group["artifact"])
        how = "and a cached one was served" if hit else "and either may be served"
        sentence = (
            f"{len(identities)} identities stand behind one key {_shortened(str(key))} {how}; in "
            f"all, {count(served, 'step')} ran its artifact: {', '.join(influences)} influenced it "
            "but is in no key."
        )
        data = {"key": str(key), "influences": influences, "steps": served}
        severity = "error" if hit and served else "warn"
        findings.append(
            AuditFinding(
                kind="stale_artifact",
                severity="error" if severity == "error" else "warn",
                sentence=sentence,
                data=data,
            )
        )
    return findings


def capture_order(evidence: Evidence) -> list[AuditFinding]:
    """Find captures that were not made largest first, so that the pool grew more than once."""
    rows = evidence.summary.events.filter(
        (pl.col("event") == "capture")
        & pl.col("size").is_not_null()
        & pl.col("t_ns").is_not_null()
        & (pl.col("weight").fill_null(1) > 0)
    ).sort("t_ns", maintain_order=True)
    for _, group in rows.group_by(
        "run", "rank", "pid", "runner", "phase", "mode", "kind", maintain_order=True
    ):
        if group["t_ns"].n_unique() < len(group):
            continue  # the source gave one time for all: it does not tell the order
        sizes = list(group["size"])
        rises = _rises(sizes)
        if not rises:
            continue
        smaller, larger = rises[0]
        sentence = (
            f"Captures ran {listed(sizes, 4)}, not largest first ({larger} came after {smaller}): "
            "each larger graph grows the pool again instead of fitting into the space already "
            "there."
        )
        data = {"sizes": sizes, "grew": len(rises)}
        return [AuditFinding(kind="capture_order", severity="warn", sentence=sentence, data=data)]
    return []


def _rises(sizes: list[int]) -> list[tuple[int, int]]:
    """Return where a larger size was captured after a smaller one.

    A size that comes again begins anew: after new weights, or as the next region of one artifact.
    """
    found, seen = [], set()
    for before, after in pairwise(sizes):
        seen.add(before)
        if after in seen:
            seen.clear()
        elif after > before:
            found.append((before, after))
    return found


def _served(evidence: Evidence, artifacts: pl.Series) -> int:
    names = artifacts.drop_nulls().unique().implode()
    return step_count(evidence.steps.filter(pl.col("artifact").is_in(names)))


def _differing(identities: list[str]) -> list[str]:
    try:
        values = [msgspec.json.decode(identity) for identity in identities]
    except msgspec.DecodeError:
        return ["something"]
    if not all(isinstance(value, dict) for value in values):
        return ["something"]
    names = sorted({name for value in values for name in value})
    return [
        str(name) for name in names if len({repr(value.get(name)) for value in values}) > 1
    ] or ["something"]


def _named(names: list[str]) -> str:
    shown = ", ".join(_shortened(name) for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
