"""vLLM logs of every version format, against values worked out by hand."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

import polars as pl
import pytest

from graphdiag.importers import vllm_log
from graphdiag.importers.registry import recognise
from graphdiag.importers.source import Source

from .log_tables import LOGS, configs, counts, read, rows, write

GIB = 1 << 30
STEP = ("phase", "requested", "bucket", "mode", "outcome", "reason", "weight", "artifact")


def ns(year: int, *rest: int) -> int:
    return int(datetime(year, *rest, tzinfo=timezone.utc).timestamp()) * 10**9


def modified(path: Path, *when: int) -> Path:
    seconds = ns(*when) / 1e9
    os.utime(path, (seconds, seconds))
    return path


def log(tmp_path: Path, version: str, *when: int) -> pl.DataFrame:
    copy = tmp_path / "server.log"
    shutil.copy(LOGS / f"vllm_{version}.log", copy)
    return read(vllm_log, modified(copy, *when))


@pytest.mark.parametrize("path", sorted(LOGS.glob("vllm_*.log")), ids=lambda path: path.stem)
def test_each_version_is_recognised_by_content(path):
    assert recognise(Source(str(path))) is vllm_log


def test_0_9_2_has_no_mode_and_no_process_names(tmp_path):
    frame = log(tmp_path, "0.9.2", 2025, 3, 4, 12)
    (config,) = configs(frame)
    assert config["engine_version"] == "0.9.2"
    assert config["mode"] == "PIECEWISE"
    assert config["capture_sizes"] == [1, 2, 4, 8, 16]
    assert config["max_num_seqs"] == 64
    assert config["token_budget"] == 2048
    assert config["kv_tokens"] == 43_312
    assert config["graph_bytes"] == GIB // 4
    assert any("--cudagraph-metrics" in note for note in config["notes"])
    captures = rows(frame, "capture", "kind", "weight", "dur_ns", "pool_bytes", "t_ns")
    assert captures == [
        ("graph", 5, None, None, ns(2025, 3, 4, 10, 0, 26)),
        (None, 0, 3 * 10**9, GIB // 4, ns(2025, 3, 4, 10, 0, 23)),
    ]
    (compiled,) = rows(frame, "compile", "kind", "weight", "dur_ns", "cache", "key")
    assert compiled[:4] == ("torch.compile", 1, 13_750_000_000, "miss")
    assert json.loads(compiled[4])["compiled"] == {"any shape": 9.25}


def test_0_11_one_process_speaks_for_all_ranks(tmp_path):
    frame = log(tmp_path, "0.11.0", 2025, 10, 10, 12)
    (config,) = configs(frame)
    assert config["mode"] == "FULL_AND_PIECEWISE"
    assert config["speculative_tokens"] == 3
    assert config["lora"] == 2
    assert config["tensor_parallel"] == 2
    assert any("FULL is not supported" in note for note in config["notes"])
    assert rows(frame, "capture", "kind", "mode", "weight", "dur_ns", "pid") == [
        ("mixed prefill-decode", "piecewise", 4, None, 30),
        ("decode", "full", 2, None, 30),
        (None, None, 0, 4 * 10**9, 30),
    ]
    # The total holds the loading time, so the loaded range has none of its own.
    assert rows(frame, "compile", "weight", "dur_ns", "cache") == [
        (0, 5_500_000_000, "hit"),
        (1, None, "hit"),
    ]


def test_0_32_tables_over_new_year(tmp_path):
    frame = log(tmp_path, "0.32.0", 2027, 1, 2)
    (config,) = configs(frame)
    assert config["model_runner"] == "v2"
    assert config["token_budget"] == 4096
    assert config["sampled"] is False
    assert "max_num_seqs" not in config
    assert any("max_num_seqs" in note for note in config["notes"])
    assert frame.filter(pl.col("event") == "step")["t_ns"].unique().sort().to_list() == [
        ns(2026, 12, 31, 23, 59, 58),
        ns(2027, 1, 1, 0, 0, 8),
    ]
    table = [
        ("decode", 8, 8, "full", "exact", None, 41, "full/8"),
        ("mixed", 5, 8, "piecewise", "padded", None, 7, "piecewise/8"),
        (None, 300, None, "eager", "fallback", "over_max", 2, None),
        (None, 3, None, "eager", "fallback", "unknown", 1, None),
    ]
    assert rows(frame, "step", *STEP) == table * 2
    assert rows(frame, "step", "query_len")[:2] == [(4,), (None,)]
    # Without bars the plan tells how many graphs there are.
    assert rows(frame, "capture", "kind", "mode", "weight", "dur_ns") == [
        ("graph", "piecewise", 3, None),
        ("graph", "full", 2, None),
        (None, None, 0, 2 * 10**9),
        ("encoder", None, 6, None),
    ]
    assert rows(frame, "compile", "kind", "weight", "dur_ns", "cache") == [
        ("aot", 1, None, "hit"),
        ("torch.compile", 0, 1_250_000_000, "hit"),
    ]


PREFIX = "(APIServer pid=7) INFO 05-04 09:30:{second:02d} [cuda_graph.py:123] "
HEADER = (
    "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
    "|-----------------|---------------|--------------|--------------|-------|",
)
START = (
    "(EngineCore pid={pid}) INFO 05-04 09:30:00 [core.py:109] Initializing a V1 LLM engine "
    "(v0.32.0) with config: model='m', speculative_config=None, enforce_eager={eager}, "
    "compilation_config={{'cudagraph_mode': <CUDAGraphMode.{mode}: (2, 1)>, "
    "'cudagraph_capture_sizes': [1, 2, 8], 'max_cudagraph_capture_size': 8}}\n"
)


def start(mode: str = "FULL_AND_PIECEWISE", eager: bool = False, pid: int = 1) -> str:
    return START.format(mode=mode, eager=eager, pid=pid)


def table(*cells: tuple[int, int, str, int], mode: str, sizes: str, second: int = 20) -> str:
    lines = [f"- Mode: {mode}", f"- Capture sizes: {sizes}", "", *HEADER]
    lines += [
        f"| {asked:<15} | {padded:<13} | {padded - asked:<12} | {ran:<12} | {count:<5} |"
        for asked, padded, ran, count in cells
    ]
    return "".join(PREFIX.format(second=second) + line + "\n" for line in lines)


def test_eager_tables_are_no_fallback_where_graphs_are_off(tmp_path):
    text = start(eager=True) + table((5, 5, "NONE", 9), mode="NONE", sizes="[]") * 2
    frame = read(vllm_log, write(tmp_path, text))
    assert counts(frame) == {"eager": 18}
    assert configs(frame)[0]["graphs_off"] == ["decode", "prefill", "mixed"]


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_rows_beat_a_header_that_says_none(tmp_path, block_bytes):
    cells = ((900, 900, "NONE", 9), (5, 8, "FULL", 4), (900, 900, "NONE", 1))
    eager = table((7, 7, "NONE", 2), mode="NONE", sizes="[]", second=10)
    text = start(mode="NONE") + eager + table(*cells, mode="NONE", sizes="[]")
    frame = read(vllm_log, write(tmp_path, text), block_bytes=block_bytes)
    # The same table has a replay, so its eager rows are fallbacks; the table before it is not.
    assert rows(frame, "step", "requested", "outcome", "phase", "weight") == [
        (7, "eager", None, 2),
        (900, "fallback", None, 9),
        (5, "padded", None, 4),
        (900, "fallback", None, 1),
    ]
    assert configs(frame)[0]["graphs_off"] == []


def test_in_full_decode_only_what_fits_and_ran_eager_was_excluded(tmp_path):
    cells = ((5, 5, "NONE", 9), (9, 9, "NONE", 4), (8, 8, "FULL", 1))
    text = start("FULL_DECODE_ONLY") + table(*cells, mode="FULL_DECODE_ONLY", sizes="[1, 2, 8]")
    frame = read(vllm_log, write(tmp_path, text))
    assert rows(frame, "step", "phase", "reason") == [
        (None, "mode_excluded"),
        (None, "over_max"),
        ("decode", None),
    ]


def test_the_truncated_maximum_decides_what_is_over_it(tmp_path):
    text = (
        "(EngineCore pid=1) INFO 05-04 09:30:00 [core.py:109] Initializing a V1 LLM engine "
        "(v0.32.0) with config: model='m', compilation_config={'cudagraph_mode': 'FULL'}\n"
        "(EngineCore pid=1) WARNING 05-04 09:30:00 [vllm.py:1] Truncating "
        "max_cudagraph_capture_size to 40\n"
    )
    text += table((42, 42, "NONE", 3), (40, 40, "FULL", 2), mode="FULL", sizes="[]")
    frame = read(vllm_log, write(tmp_path, text))
    assert rows(frame, "step", "reason") == [("over_max",), (None,)]
    assert configs(frame)[0]["max_capture_size"] == 40


def test_overridden_sizes_win(tmp_path):
    text = start() + (
        "(EngineCore pid=1) INFO 05-04 09:30:01 [vllm.py:9] cudagraph_capture_sizes specified in "
        "compilation_config [1, 2, 8] is overridden by config [4, 2, 4]\n"
    )
    assert configs(read(vllm_log, write(tmp_path, text)))[0]["capture_sizes"] == [2, 4]


def test_another_core_of_the_same_name_is_a_restart_and_another_name_is_not(tmp_path):
    other = start(pid=2).replace("EngineCore", "EngineCore_DP1")
    replay = table((8, 8, "FULL", 1), mode="FULL_AND_PIECEWISE", sizes="[1, 2, 8]")
    text = start() + other + replay + start(pid=3) + replay
    frame = read(vllm_log, write(tmp_path, text))
    assert len(configs(frame)) == 2
    assert frame.filter(pl.col("event") == "step")["run"].n_unique() == 2


def test_parts_of_a_compilation_count_only_where_no_total_follows(tmp_path):
    text = (
        "(Worker pid=3) INFO 05-04 09:30:05 [b.py:1] [backbone] Dynamo bytecode transform time: "
        "1.50 s\n"
        "(Worker pid=3) INFO 05-04 09:30:09 [b.py:1] [backbone] Compiling a graph for compile "
        "range (1, 8192) takes 2.50 s\n"
        "(Worker pid=3) INFO 05-04 09:30:11 [b.py:1] [backbone] Directly load the compiled "
        "graph(s) for shape 64 from the cache, took 1.000 s\n"
    )
    frame = read(vllm_log, modified(write(tmp_path, start() + text), 2026, 6, 1))
    zero = ns(2026, 5, 4, 9, 30)
    assert rows(frame, "compile", "weight", "dur_ns", "cache", "t_ns") == [
        (0, 1_500_000_000, None, zero + 3_500_000_000),
        (1, 2_500_000_000, "miss", zero + 6_500_000_000),
        (1, 1_000_000_000, "hit", zero + 10_000_000_000),
    ]
    total = (
        "(Worker pid=3) INFO 05-04 09:30:12 [m.py:1] [backbone] torch.compile took 7.00 s in "
        "total\n"
    )
    whole = read(vllm_log, write(tmp_path, start() + text + total))
    assert rows(whole, "compile", "weight", "dur_ns", "cache") == [
        (1, 7_000_000_000, "miss"),
        (1, None, "hit"),
    ]


def test_the_joint_line_is_not_counted_beside_a_total(tmp_path):
    one = "INFO 05-04 09:30:12 [m.py:1] torch.compile took 7.00 s in total\n"
    both = (
        "INFO 05-04 09:30:14 [m.py:1] torch.compile and initial profiling/warmup run together "
        "took 9.00 s in total\n"
    )
    joint = read(vllm_log, write(tmp_path, both))
    assert rows(joint, "compile", "weight", "dur_ns") == [(1, 9_000_000_000)]
    assert any("profiling run" in note for note in configs(joint)[0]["notes"])
    assert rows(read(vllm_log, write(tmp_path, one + both)), "compile", "dur_ns") == [
        (7_000_000_000,)
    ]


def test_an_aot_artifact_that_does_not_load_is_a_miss_with_its_reason(tmp_path):
    text = (
        "(Worker pid=3) INFO 05-04 09:30:05 [d.py:1] Compiling model again due to a load failure "
        "from /c/a/model, reason: it has no attribute 'x'\n"
        "(Worker pid=3) INFO 05-04 09:30:35 [d.py:1] saved AOT compiled function to /c/a/model\n"
    )
    frame = read(vllm_log, write(tmp_path, start() + text))
    failed, saved = rows(frame, "compile", "kind", "cache", "weight", "key")
    assert failed[:3] == ("aot", "miss", 0)
    assert json.loads(failed[3]) == {"path": "/c/a/model", "why": "it has no attribute 'x'"}
    assert saved[:3] == ("aot", "miss", 1)
    assert any("no attribute" in note for note in configs(frame)[0]["notes"])


def test_a_capture_without_bars_or_plan_has_no_count(tmp_path):
    text = "INFO 05-04 09:30:14 [g.py:1] Graph capturing finished in 14 secs, took -0.50 GiB\n"
    frame = read(vllm_log, write(tmp_path, text * 2))
    # A negative figure is no size of a pool.
    assert rows(frame, "capture", "weight", "dur_ns", "pool_bytes") == [(0, 14 * 10**9, None)]
    assert any("how many graphs" in note for note in configs(frame)[0]["notes"])


def test_the_year_is_the_latest_before_the_file_was_modified(tmp_path):
    text = "INFO 02-29 09:30:14 [g.py:1] Graph capturing finished in 0 secs, took 0.50 GiB\n"
    path = modified(write(tmp_path, text), 2027, 6, 1)
    assert rows(read(vllm_log, path), "capture", "t_ns") == [(ns(2024, 2, 29, 9, 30, 14),)]


def test_the_cases_of_real_formats(shared):
    seen = 0
    for path in sorted((shared / "cases").glob("vllm_*/expect.json")):
        want = json.loads(path.read_text())
        frame = read(vllm_log, path.with_name("server.log"))
        outcomes = counts(frame)
        steps = sum(outcomes.values())
        assert steps == want["metrics"]["steps"]
        assert outcomes.get("fallback", 0) / steps == pytest.approx(
            want["metrics"]["fallback_rate"]
        )
        replayed = frame.filter(pl.col("outcome").is_in(["exact", "padded"]))
        rows_asked = (replayed["requested"] * replayed["weight"]).sum()
        rows_run = (replayed["bucket"] * replayed["weight"]).sum()
        assert rows_run / rows_asked - 1 == pytest.approx(want["metrics"]["padding_ratio"])
        if "compile_seconds" in want:
            compiled = frame.filter(pl.col("event") == "compile")["dur_ns"].sum()
            assert compiled / 1e9 == pytest.approx(want["compile_seconds"])
        seen += 1
    assert seen
