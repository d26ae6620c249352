"""Answers of ``graphdiag buckets`` with golden output: ``golden/buckets_NAME.json`` as text and md.

``python -m tests.reporters.sample_answers`` plans them and writes the golden files anew after a
wanted change.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from graphdiag.buckets import memory
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.buckets.planner import plan_buckets
from graphdiag.buckets.setting import of_summary
from graphdiag.buckets.wishes import Wishes
from tests.buckets.making import engine_rows, practice, summary
from tests.build import event

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("practice", "vllm", "nothing_fits")


def read(name: str) -> BucketAnswer:
    """Return the answer of that name."""
    data = (GOLDEN / f"buckets_{name}.json").read_bytes()
    return msgspec.json.decode(data, type=BucketAnswer)


def _vllm() -> BucketAnswer:
    """Two hundred sizes, times, memory, an eager price, and a list to price."""
    run = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "axis": "tokens",
        "mode": "FULL_AND_PIECEWISE",
        "token_budget": 2048,
        "compile_sizes": [],
        "capture_sizes": [1, 2, 4, 8, 16, 24, 32, 64, 128, 256],
    }
    sizes = [*range(20, 220), *[41] * 80, *[70] * 40, *[300] * 4] * 4
    captures = [
        event(
            "capture", index, size=size, dur_ns=200_000_000, pool_bytes=8 << (20 if index else 28)
        )
        for index, size in enumerate(sorted(run["capture_sizes"], reverse=True))
    ]
    rows = engine_rows(sizes, run["capture_sizes"], noise_ms=0.2, axis="tokens")
    setting = of_summary(summary([*captures, *rows], **run), "trace.parquet")
    return plan_buckets(setting, Wishes(max_graphs=24, what_if=(64, 32, 4096)))


def _nothing_fits() -> BucketAnswer:
    known = memory.given(practice().memory, graph_mib=20)
    return plan_buckets(replace(practice(), memory=known), Wishes(budget_mib=10))


def planned() -> dict[str, BucketAnswer]:
    return {
        "practice": plan_buckets(practice(), Wishes()),
        "vllm": _vllm(),
        "nothing_fits": _nothing_fits(),
    }


if __name__ == "__main__":
    from graphdiag.reporters import buckets_markdown, buckets_text, json

    for one, answer in planned().items():
        (GOLDEN / f"buckets_{one}.json").write_text(json.render(answer), encoding="utf-8")
        (GOLDEN / f"buckets_{one}.txt").write_text(buckets_text.render(answer), encoding="utf-8")
        (GOLDEN / f"buckets_{one}.md").write_text(buckets_markdown.render(answer), encoding="utf-8")
