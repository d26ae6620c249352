"""Audit of the captured sizes against what the scheduler may ask for."""

from __future__ import annotations

import polars as pl

from graphdiag.evidence import Evidence, listed, step_count
from graphdiag.findings import AuditFinding, Severity
from graphdiag.metrics import ELIGIBLE
from graphdiag.wording import count, percent


def ceiling(evidence: Evidence) -> list[AuditFinding]:
    """Find batches that the scheduler may admit, or did, above the largest captured size."""
    if not evidence.captured:
        return []
    top = evidence.captured[-1]
    may = evidence.largest_decode
    above = evidence.on_axis.filter((pl.col("outcome") == "fallback") & (pl.col("requested") > top))
    steps, seen = step_count(above), above["requested"].max()
    seen = seen if isinstance(seen, int) else None
    unit = evidence.traffic.axis or "rows"
    short = may is not None and may > top
    if not steps and not short:
        return []
    severity: Severity
    if not steps:
        severity = "warn"
        sentence = (
            f"The largest captured size is {top} {unit}, but the scheduler may run decode batches "
            f"of {may}: every batch between runs eager. None did in this trace."
        )
    else:
        served = step_count(evidence.on_axis.filter(pl.col("outcome").is_in(ELIGIBLE)))
        happened = (
            f"{steps:,} of {count(served, 'step')} ({percent(steps / served)}) asked for more than "
            f"the largest captured size of {top} {unit}, up to {seen}, and ran eager"
        )
        decode = step_count(above.filter(pl.col("phase").is_in(["decode", "verify"])))
        if short or may is None or decode:
            severity = "error"
            allowed = f"; the scheduler may run decode batches of {may}" if short else ""
            sentence = f"{happened}{allowed}."
        else:
            severity = "info"
            sentence = (
                f"{happened}. The largest decode batch ({may}) is covered, so these are batches "
                "with prompt tokens."
            )
    data = {
        "largest_bucket": top,
        "largest_batch_allowed": may,
        "largest_batch_seen": seen,
        "steps_above": steps,
    }
    return [AuditFinding(kind="ceiling", severity=severity, sentence=sentence, data=data)]


def stride(evidence: Evidence) -> list[AuditFinding]:
    """Find token buckets that no uniform speculative batch can fill exactly."""
    q = evidence.stride
    if q == 1 or evidence.traffic.axis != "tokens":
        return []
    off = [size for size in evidence.captured if size % q]
    if not off:
        return []
    padded = evidence.on_axis.filter(
        (pl.col("outcome") == "padded")
        & (pl.col("requested") % q == 0)
        & (pl.col("bucket") % q != 0)
    )
    steps = step_count(padded)
    rows = int(
        padded.select(((pl.col("bucket") - pl.col("requested")) * pl.col("weight")).sum()).item()
        or 0
    )
    cost = (
        f" {steps:,} steps padded {rows:,} rows because of it."
        if steps
        else " No step of this trace padded because of it."
    )
    sentence = (
        f"Decode batches come in multiples of {q} tokens (1 + {q - 1} speculative), but the "
        f"captured sizes {listed(off)} are no multiples.{cost}"
    )
    return [
        AuditFinding(
            kind="stride",
            severity="error" if steps else "warn",
            sentence=sentence,
            data={"stride": q, "sizes": off, "steps": steps, "padded_rows": rows},
        )
    ]


def unreachable_size(evidence: Evidence) -> list[AuditFinding]:
    """Find captured sizes that no batch the scheduler may admit is dispatched to."""
    limit = _largest_dispatched(evidence)
    if limit is None:
        return []
    enough = next((size for size in evidence.captured if size >= limit), None)
    if enough is None:
        return []
    beyond = [size for size in evidence.captured if size > enough]
    if not beyond:
        return []
    sentence = (
        f"Sizes {listed(beyond)} can never be dispatched: the largest batch is {limit} "
        f"{evidence.traffic.axis or 'rows'}, and {enough} serves it. They cost warm-up and memory."
    )
    data = {"sizes": beyond, "largest_batch": limit}
    return [AuditFinding(kind="unreachable_size", severity="info", sentence=sentence, data=data)]


def _largest_dispatched(evidence: Evidence) -> int | None:
    """Largest batch that may reach a graph: mixed batches fill the token budget, decode cannot."""
    mode = str(evidence.config.get("mode") or "").upper()
    if evidence.traffic.axis == "tokens" and mode != "FULL_DECODE_ONLY":
        budget = evidence.config.get("token_budget")
        return budget if isinstance(budget, int) else None
    return evidence.largest_decode
