"""Logs of real engines, against what was counted inside their processes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from graphdiag.sources import open_source

REAL = Path(__file__).parents[1] / "data" / "logs" / "real"

VLLM_METRICS = "vllm-0.32-cpu-metrics"
VLLM_PLAIN = "vllm-0.32-cpu-plain"
SGLANG_KEYS = "sglang-0.5.23-cpu-keylog"
SGLANG_SAMPLED_KEYS = "sglang-0.5.23-cpu-keylog-40"
SGLANG_PLAIN = "sglang-0.5.23-cpu-plain"
SGLANG = (SGLANG_KEYS, SGLANG_SAMPLED_KEYS, SGLANG_PLAIN)

VLLM_MODES = {"FULL": "full", "PIECEWISE": "piecewise", "NONE": "eager"}


def truth(name: str) -> dict[str, Any]:
    return json.loads((REAL / f"{name}.json").read_text())


@contextmanager
def imported(name: str) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
    """Yield the steps of a log and what it tells of its run."""
    with open_source([str(REAL / f"{name}.log")]) as trace:
        runs = trace.events().filter(pl.col("event") == "run")
        assert runs["run"].n_unique() == 1
        yield trace.collect(trace.steps()), json.loads(runs["config"][-1])


def total(steps: pl.DataFrame, *columns: str) -> Counter[tuple[Any, ...]]:
    """Return how many steps there are of each combination of values of ``columns``."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for *key, weight in steps.select(*columns, "weight").iter_rows():
        counts[tuple(key)] += weight
    return counts


def counted(rows: list[dict[str, Any]], *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(row[name] for name in columns): row["steps"] for row in rows})


def test_vllm_tables_count_every_step_as_the_worker_ran_it():
    known = truth(VLLM_METRICS)
    expected = Counter(
        {
            (row["requested"], row["bucket"], VLLM_MODES[row["mode"]]): row["steps"]
            for row in known["steps"]
        }
    )
    with imported(VLLM_METRICS) as (steps, config):
        assert steps["weight"].sum() == known["total"]
        assert total(steps, "requested", "bucket", "mode") == expected
        assert config["sampled"] is False


def test_vllm_steps_above_the_largest_size_are_fallbacks_and_no_others():
    known = truth(VLLM_METRICS)
    over = sum(row["steps"] for row in known["steps"] if row["requested"] > 32)
    assert over == known["by_mode"]["NONE"]
    with imported(VLLM_METRICS) as (steps, _):
        fell_back = steps.filter(pl.col("outcome") == "fallback")
        assert fell_back["weight"].sum() == over
        assert fell_back["reason"].unique().to_list() == ["over_max"]
        assert fell_back["requested"].min() > 32


@pytest.mark.parametrize("name", [VLLM_METRICS, VLLM_PLAIN])
def test_vllm_configuration_is_read_from_the_line_of_the_engine_core(name):
    with imported(name) as (_, config):
        assert config["engine_version"] == "0.32.0"
        assert config["mode"] == "FULL_AND_PIECEWISE"
        assert config["capture_sizes"] == [1, 2, 4, 8, 16, 32]
        assert config["max_num_seqs"] == 48
        assert config["graphs_off"] == []


def test_vllm_without_metrics_tells_of_no_step_and_says_so():
    assert truth(VLLM_PLAIN)["total"] > 0
    with imported(VLLM_PLAIN) as (steps, config):
        assert steps.height == 0
        assert any("--cudagraph-metrics" in note for note in config["notes"])


@pytest.mark.parametrize("name", [SGLANG_KEYS, SGLANG_SAMPLED_KEYS])
def test_sglang_key_lines_count_every_replay(name):
    known = truth(name)
    with imported(name) as (steps, _):
        replayed = steps.filter(pl.col("phase") == "decode", pl.col("bucket").is_not_null())
        assert replayed["weight"].sum() == known["replayed"]
        assert total(replayed, "requested", "bucket") == counted(
            known["replays"], "requested", "bucket"
        )


def test_sglang_eager_decode_steps_are_exact_where_every_step_has_a_line():
    known = truth(SGLANG_KEYS)
    assert known["shown_every"] == 1
    with imported(SGLANG_KEYS) as (steps, _):
        decode = steps.filter(pl.col("phase") == "decode")
        eager = decode.filter(pl.col("mode") == "eager")
        assert total(eager, "requested") == counted(known["eager_steps"], "requested")
        assert set(eager["reason"]) == {"over_max"}
        assert decode["weight"].sum() == known["decode_steps"]


def test_sglang_decode_lines_show_the_steps_that_were_due():
    known = truth(SGLANG_PLAIN)
    with imported(SGLANG_PLAIN) as (steps, _):
        decode = steps.filter(pl.col("phase") == "decode").sort("t_ns", maintain_order=True)
        shown = [(row["requested"], row["bucket"]) for row in known["shown"]]
        assert decode.select("requested", "bucket").rows() == shown


@pytest.mark.parametrize("name", SGLANG)
def test_sglang_prefill_lines_count_every_prefill(name):
    known = truth(name)
    with imported(name) as (steps, _):
        prefill = steps.filter(pl.col("phase") == "prefill")
        assert prefill["weight"].sum() == known["prefill_steps"]
        assert prefill["num_reqs"].sum() == known["prefill_requests"]
        assert prefill["num_tokens"].sum() == known["prefill_tokens"]
        assert set(prefill["outcome"]) == {"eager"}  # prefill graphs are off by configuration


@pytest.mark.parametrize("name", SGLANG)
def test_sglang_arguments_printed_as_a_dict_are_read(name):
    with imported(name) as (_, config):
        assert config["sample_every"] == truth(name)["shown_every"]
        assert config["capture_sizes"] == [1, 2, 4, 8]
        assert config["max_num_seqs"] == 16
        assert config["tensor_parallel"] == 1
        assert config["padding"] is True
        assert config["graphs_off"] == ["prefill"]
        assert config["mode"] == "full"
