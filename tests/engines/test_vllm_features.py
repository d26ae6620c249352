"""What makes vLLM's steps differ, in the real engine: each is recorded as the engine ran it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.rows import Row, read, steps
from tests.engines.vllm_lab import Lab

pytestmark = pytest.mark.slow

Found = dict[str, Any]
Features = Callable[[str], tuple[list[Row], list[Found], Path]]
AS_PLANNED = ("requested", "num_reqs", "tokens_out")


@pytest.fixture(scope="module")
def features(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Run an engine with a feature once: the rows of its steps, and what the engine did."""
    kept: dict[str, tuple[list[Row], list[Found], Path]] = {}

    def run(feature: str) -> tuple[list[Row], list[Found], Path]:
        if feature not in kept:
            folder = tmp_path_factory.mktemp(feature)
            found = vllm_lab.run("vllm_features.py", feature, folder)
            assert found["same"], "the engine's tokens changed"
            assert found["dropped"] == 0
            assert found["hooks"]["failures"] == found["hooks"]["missing"] == {}
            trace = folder / f"{feature}.parquet"
            rows = [row for row in steps(trace) if row["kind"] is None]
            kept[feature] = [r for r in rows if r["runner"] == "target"], found["steps"], trace
        return kept[feature]

    return run


@pytest.mark.parametrize("feature", ["ngram", "eagle", "lora", "deferred"])
def test_every_step_is_recorded_once(features: Features, feature: str) -> None:
    rows, ran, _ = features(feature)
    assert [[row[name] for name in AS_PLANNED] for row in rows] == [
        [step[name] for name in AS_PLANNED] for step in ran
    ]


@pytest.mark.parametrize("feature", ["ngram", "eagle"])
def test_steps_that_verify_drafts(features: Features, feature: str) -> None:
    rows, ran, _ = features(feature)
    phases = Counter(row["phase"] for row in rows)
    assert phases["verify"] > 10
    for row, step in zip(rows, ran, strict=True):
        prompts = step["new"] + step["resumed"]
        expected = "verify" if step["drafts"] else "decode"
        if prompts:
            expected = "prefill" if prompts == step["num_reqs"] else "mixed"
        assert row["phase"] == expected


def test_drafts_from_the_prompt(features: Features) -> None:
    rows, ran, _ = features("ngram")
    taken = 0
    for row, step in zip(rows, ran, strict=True):
        if row["phase"] == "verify":
            assert row["requested"] == step["num_reqs"] + step["drafts"]
            taken += row["tokens_out"] - row["num_reqs"]
    assert taken > 10  # drafts that were right
    uniform = [row for row in rows if row["query_len"] == 4]
    assert len(uniform) > 5
    assert {row["phase"] for row in uniform} == {"verify"}
    assert all(row["requested"] == 4 * row["num_reqs"] for row in uniform)


def test_a_drafter_has_rows_of_its_own(features: Features) -> None:
    rows, _, trace = features("eagle")
    drafts = [row for row in steps(trace) if row["runner"] == "draft" and row["kind"] is None]
    assert len(drafts) == 2 * len(rows)  # two tokens a request and step
    assert all(row["mode"] == "eager" for row in drafts)
    uniform = [row for row in rows if row["query_len"] == 3]
    assert len(uniform) > 10
    for row in uniform:
        bucket = next(size for size in (3, 6, 12, 24, 48) if size >= row["requested"])
        assert (row["bucket"], row["artifact"]) == (bucket, f"full/{bucket}/q3")
    config = json.loads(read(trace, "run")[-1]["config"])
    assert config["speculative_tokens"] == 2


def test_adapters(features: Features) -> None:
    rows, ran, _ = features("lora")
    assert [row["loras"] for row in rows] == [step["loras"] for step in ran]
    assert {row["loras"] for row in rows} == {0, 1, 2}
    graphs = [row for row in rows if row["artifact"] is not None]
    assert len(graphs) > 20
    for row in graphs:
        assert row["loras_replayed"] == (3 if row["loras"] else 0)
        assert row["artifact"].endswith("/lora3") == (row["loras"] > 0)


def test_prompts_in_chunks_and_preemption(features: Features) -> None:
    rows, ran, _ = features("lora")
    assert max(row["requested"] for row in rows) == 32  # the budget; prompts are longer
    preempted = [step["preempted"] or None for step in ran]
    assert [row["preempted"] for row in rows] == preempted
    assert sum(filter(None, preempted)) >= 2
    for row, step in zip(rows, ran, strict=True):
        if step["resumed"]:
            assert row["phase"] in ("mixed", "prefill")


def test_results_that_are_fetched_later(features: Features) -> None:
    rows, ran, trace = features("deferred")
    assert all(step.get("promised") for step in ran)
    config = json.loads(read(trace, "run")[-1]["config"])
    assert config["async_scheduling"] is True
    for before, after in pairwise(rows):
        assert after["t_ns"] >= before["t_ns"] + before["dur_ns"] - 1000  # none overlaps
        assert after["dur_ns"] > 0
