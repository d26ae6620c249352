"""What a reader is told to change: the advice of the cases and the sizes to capture."""

from __future__ import annotations

import re
from dataclasses import dataclass

from graphdiag.findings import Recommendation, Report
from graphdiag.reporters.format import clean, numbers

ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM"}

_ADD_SIZES = re.compile(r"Add [\d, and]+ to the captured sizes\.", re.ASCII)


@dataclass(frozen=True)
class Sizes:
    """The recommended sizes: a sentence, what to paste as (engine, flag), or only the list.

    ``listed`` is the whole set for an engine that has no flag we know, and empty otherwise. A
    healthy engine needs nothing pasted: it has the sentence alone.
    """

    sentence: str
    pasted: list[tuple[str, str]]
    listed: str


def sizes(report: Report) -> Sizes | None:
    """Return the recommended sizes as they are told, None where the report has none."""
    plan = report.recommendation
    if plan is None:
        return None
    if report.verdict.case is None:
        return Sizes(
            f"{_would(change(plan)).rstrip('.')}; no need, since no case calls for it.", [], ""
        )
    engine = report.engine.get("name")
    if engine is None or str(engine) in ENGINE_NAMES:
        return Sizes(change(plan), flags(plan, engine), "")
    return Sizes(change(plan), [], " ".join(map(str, plan.buckets)))


def advice(report: Report) -> list[tuple[str, str]]:
    """Return (cases, advice) pairs, worst case first; what several cases advise comes once.

    Advice to add the recommended sizes is left out: :func:`sizes` says it, with its effect.
    """
    cases: dict[str, list[str]] = {}
    for case in report.cases:
        for sentence in case.advice:
            if not _repeats(sentence, report.recommendation):
                cases.setdefault(clean(sentence), []).append(case.case)
    return [(", ".join(names), sentence) for sentence, names in cases.items()]


def flags(plan: Recommendation, engine: str | None) -> list[tuple[str, str]]:
    """Return (engine, flag) pairs: the engine's own where it is known, else all."""
    return [
        (ENGINE_NAMES.get(key, clean(key)), clean(flag, 20_000))
        for key, flag in plan.flags.items()
        if flag and engine in (None, key)
    ]


def change(plan: Recommendation) -> str:
    """Return why the recommended sizes are better, or at least how they differ."""
    add, drop = numbers(plan.add), numbers(plan.drop)
    told = clean(plan.why) or (f"Add {add}." if add else "")
    return f"{told} {f'Drop {drop}.' if drop else ''}".strip() or "Keep the sizes as they are."


def _repeats(sentence: str, plan: Recommendation | None) -> bool:
    if plan is None or not _ADD_SIZES.fullmatch(sentence):
        return False
    return sorted(map(int, re.findall(r"\d+", sentence))) == sorted(plan.add)


def _would(sentence: str) -> str:
    return re.sub(r"\b(take|let|end)s\b", r"would \1", sentence)
