"""Comparisons with golden output: ``golden/compare_NAME.json`` as text and Markdown.

``python -m tests.reporters.sample_comparisons`` makes them and writes the golden files anew after a
wanted change.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from graphdiag.comparison.answer import Comparison
from graphdiag.comparison.compare import Slo
from tests.build import MS, event
from tests.comparison.runs import chapter_one, compared, configured, replayed, steps

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("chapter_one", "other_traffic", "untimed")


def read(name: str) -> Comparison:
    """Return the comparison of that name."""
    return msgspec.json.decode((GOLDEN / f"compare_{name}.json").read_bytes(), type=Comparison)


def _other_traffic() -> Comparison:
    """Larger batches and a longer list of sizes, artifacts from a cache, another torch."""
    key = '{"rows": 8}'
    compiled = {"artifact": "region", "dur_ns": 2_000 * MS, "key": key}
    base = configured(
        [
            event("compile", -9000.0, cache="miss", **compiled),
            *steps((8, 8, 16, 16, 32), 500, replayed),
        ],
        at_ms=-20_000.0,
        engine="vllm",
        engine_version="0.11.0",
        torch="2.8.0",
        capture_sizes=[8, 16, 32],
        kv_tokens=100_000,
    )
    candidate = configured(
        [
            event("compile", -9000.0, cache="hit", **compiled),
            *steps((8, 16, 32, 32, 32), 500, lambda size: replayed(size, launch_ms=0.1)),
        ],
        at_ms=-20_000.0,
        engine="vllm",
        engine_version="0.11.0",
        torch="2.9.0",
        capture_sizes=[*range(8, 513, 8)],
        kv_tokens=90_000,
    )
    return compared(base, candidate, Slo(9.0, 200.0))


def _untimed() -> Comparison:
    """A log that tells no times against a recorded trace of another engine."""
    _, candidate = chapter_one(60)
    rows = [{**row, "dur_ns": None} for row in steps((3, 11, 27), 60, replayed)]
    log = configured(rows, engine="sglang", importer="sglang_log", sampled=True, damage=["Cut."])
    return compared(log, candidate)


def made() -> dict[str, Comparison]:
    """Return all of them, compared anew."""
    return {
        "chapter_one": compared(*chapter_one(), Slo(5.5)),
        "other_traffic": _other_traffic(),
        "untimed": _untimed(),
    }


if __name__ == "__main__":
    from graphdiag.reporters import compare_markdown, compare_text, json

    for one, found in made().items():
        target = GOLDEN / f"compare_{one}"
        target.with_suffix(".json").write_text(json.render(found), encoding="utf-8")
        target.with_suffix(".txt").write_text(compare_text.render(found), encoding="utf-8")
        target.with_suffix(".md").write_text(compare_markdown.render(found), encoding="utf-8")
