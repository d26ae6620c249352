"""Audit of compiling and capturing: limits reached, graphs left out, attempts that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl

from graphdiag.compilation import guard, limit_sentence
from graphdiag.evidence import Evidence, step_count
from graphdiag.findings import AuditFinding, Severity
from graphdiag.limits import details, short_frame
from graphdiag.wording import count
from graphdiag_collectors.schema import CAPTURE_FAILED, COMPILE_FAILED, CUDAGRAPH_SKIP

_MOST_TOLD = 3
_MOST_LISTED = 50
_MOST_CHARS = 200


def recompile_limit(evidence: Evidence) -> list[AuditFinding]:
    """Find frames that reached torch's recompile limit: an error where steps ran after it."""
    frames = evidence.frames_at_limit
    if not frames:
        return []
    worst = frames[0]
    sentence = limit_sentence(worst, step_count(evidence.steps))
    if worst.limit.reason:
        sentence += f" Last reason: {_short(guard(worst.limit.reason))}."
    if len(frames) > 1:
        others = [frame.name for frame in frames[1 : _MOST_TOLD + 1]]
        left = len(frames) - 1 - len(others)
        more = f" and {left} more" if left else ""
        sentence += f" So did {', '.join(others)}{more}."
    data: dict[str, Any] = {
        "frames": [
            {
                "frame": frame.limit.frame,
                "since_ns": frame.limit.since_ns,
                "until_ns": frame.limit.until_ns,
                "effect": frame.limit.effect,
                "limit": frame.limit.setting,
                "reason": frame.limit.reason,
                "steps_after": frame.steps,
            }
            for frame in frames[:_MOST_LISTED]
        ],
        "frames_in_all": len(frames),
    }
    severity: Severity = "error" if worst.steps else "warn"
    return [AuditFinding(kind="recompile_limit", severity=severity, sentence=sentence, data=data)]


def cudagraph_skip(evidence: Evidence) -> list[AuditFinding]:
    """Find compiled graphs that inductor runs without CUDA graphs, by reason."""
    return _marked(
        evidence,
        CUDAGRAPH_SKIP,
        lambda told: (_frame(told), _word(told, "reason")),
        "Inductor left CUDA graphs out {times}, so that these regions launch kernel by kernel",
    )


def compile_failed(evidence: Evidence) -> list[AuditFinding]:
    """Find compilations that raised."""
    return _marked(
        evidence,
        COMPILE_FAILED,
        lambda told: (_frame(told), f"{_word(told, 'type')}: {_word(told, 'reason')}"),
        "Compiling failed {times}",
    )


def capture_failed(evidence: Evidence) -> list[AuditFinding]:
    """Find captures that raised."""
    return _marked(
        evidence,
        CAPTURE_FAILED,
        lambda told: (_word(told, "artifact"), _word(told, "error")),
        "Capturing a CUDA graph failed {times}",
    )


def _marked(
    evidence: Evidence,
    kind: str,
    read: Callable[[dict[str, Any]], tuple[str, str]],
    opening: str,
) -> list[AuditFinding]:
    """Return one finding on the marks of a kind; ``read`` gives what each is about, and why."""
    events = evidence.summary.events
    marks = events.filter((pl.col("event") == "mark") & (pl.col("kind") == kind))
    found: Counter[tuple[str, str]] = Counter()
    for text, weight in marks.select("config", pl.col("weight").fill_null(1)).iter_rows():
        found[read(details(text))] += weight
    if not found:
        return []
    ranked = found.most_common()
    told = "; ".join(
        f"{what}: {_short(why)} ({times:,})" for (what, why), times in ranked[:_MOST_TOLD]
    )
    left = len(ranked) - _MOST_TOLD
    more = f"; and {left} more reasons" if left > 0 else ""
    opened = opening.format(times=count(found.total(), "time"))
    data = {
        "times": found.total(),
        "reasons": [
            {"what": what, "reason": why, "times": times}
            for (what, why), times in ranked[:_MOST_LISTED]
        ],
    }
    return [
        AuditFinding(kind=kind, severity="warn", sentence=f"{opened}. {told}{more}.", data=data)
    ]


def _frame(told: dict[str, Any]) -> str:
    return short_frame(_word(told, "frame"))


def _word(told: dict[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) and value else "not told"


def _short(text: str) -> str:
    """Return the first line, without its full stop, cut where it is long."""
    line = (text.splitlines() or [""])[0].rstrip(". ")
    return line if len(line) <= _MOST_CHARS else f"{line[: _MOST_CHARS - 1]}…"
