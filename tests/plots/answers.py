"""Answers to draw, whose figures the tests know."""

from __future__ import annotations

from typing import Any

from graphdiag.bucket_advice import setting_of
from graphdiag.buckets.answer import BucketAnswer
from graphdiag.buckets.planner import Wishes, plan_buckets
from graphdiag.buckets.setting import of_table
from graphdiag.buckets.tables import parse_size_table
from tests.buckets import making


def practice(wishes: Wishes | None = None, **more: Any) -> BucketAnswer:
    """The practice distribution under buckets 1, 4, 8, 16, 32: padding 28.02 %, in shares."""
    return plan_buckets(making.practice(**more), wishes or Wishes())


def counted(text: str, current: tuple[int, ...] = ()) -> BucketAnswer:
    """A histogram of steps."""
    table = parse_size_table(text, "sizes.csv")
    return plan_buckets(of_table(table, "sizes.csv", current=current), Wishes())


def timed() -> BucketAnswer:
    """40 steps each of 1 to 32 rows, with their times and eager's: nine rows lose 0.93 ms."""
    sizes = [size for size in range(1, 33) for _ in range(40)]
    engine = {"engine": "vllm", "capture_sizes": list(making.LADDER)}
    recorded = making.summary(making.engine_rows(sizes), **engine)
    baseline = making.summary(making.graphs_off_rows(sizes), engine="vllm")
    return plan_buckets(setting_of(recorded, "recorded", baseline=baseline), Wishes())
