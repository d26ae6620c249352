"""SGLang logs of every version format, against values worked out by hand."""

from __future__ import annotations

import json

import polars as pl
import pytest

from graphdiag.importers import sglang_log
from graphdiag.importers.registry import recognise
from graphdiag.importers.source import Source

from .log_tables import LOGS, configs, counts, read, rows, write

GIB = 1 << 30
STEP = ("phase", "requested", "bucket", "mode", "outcome", "reason", "weight", "dur_ns")


def log(version: str) -> pl.DataFrame:
    return read(sglang_log, LOGS / f"sglang_{version}.log")


@pytest.mark.parametrize("path", sorted(LOGS.glob("sglang_*.log")), ids=lambda path: path.stem)
def test_each_version_is_recognised_by_content(path):
    assert recognise(Source(str(path))) is sglang_log


def test_0_4_6_knows_the_count_of_graphs_but_not_their_sizes():
    frame = log("0.4.6")
    (config,) = configs(frame)
    assert config["max_num_seqs"] == 64
    assert config["kv_tokens"] == 100_000
    assert config["graph_bytes"] == GIB // 2
    assert config["graphs_off"] == ["prefill"]
    assert config["sampled"] is True
    assert config["sample_every"] == 40
    assert "capture_sizes" not in config
    capture = ("kind", "weight", "artifact", "dur_ns", "pool_bytes", "mem_before", "mem_after")
    assert rows(frame, "capture", *capture) == [
        ("decode", 4, None, 4 * 10**9, GIB // 2, 20 * GIB, 39 * GIB // 2)
    ]
    assert rows(frame, "step", *STEP) == [
        ("prefill", 7, None, "eager", "eager", None, 1, None),
        # No request was running before the prefill: the interval holds a wait, and no step time.
        ("decode", 1, None, "full", None, None, 1, None),
        ("decode", 1, None, "full", None, None, 1, 10_000_000),
        ("decode", 70, None, "eager", "fallback", "unknown", 1, 50_000_000),
    ]
    assert rows(frame, "step", "fallback") == [(False,), (False,), (False,), (True,)]


def test_0_4_10_counts_a_capture_once_for_all_ranks_and_pads_nothing():
    frame = log("0.4.10")
    (config,) = configs(frame)
    assert config["padding"] is False
    assert config["capture_sizes"] == [1, 2, 3, 4]
    assert config["graph_bytes"] == 3 * GIB // 4
    sizes = rows(frame, "capture", "kind", "size", "artifact", "weight", "dur_ns", "pool_bytes")
    assert sizes == [
        *(("decode", size, f"decode/{size}", 1, None, None) for size in (4, 3, 2, 1)),
        ("decode", None, None, 0, 4_100_000_000, GIB // 2),
        ("draft-decode", None, None, 0, 10**9, GIB // 4),
    ]
    assert rows(frame, "step", "requested", "bucket", "outcome", "reason", "rank", "preempted") == [
        (4, 4, "exact", None, 0, None),
        (2, 2, "exact", None, 0, 2),
        (6, None, "fallback", "over_max", 0, None),
    ]


def test_0_5_6_speculative_decode_is_verify_and_its_time_counts_accepted_tokens():
    frame = log("0.5.6")
    (config,) = configs(frame)
    assert config["speculative_tokens"] == 3
    assert config["sample_every"] == 10
    assert config["graphs_off"] == []
    piecewise = frame.filter((pl.col("event") == "capture") & (pl.col("kind") == "prefill"))
    assert piecewise["size"].to_list() == [256, 64, 16, None]
    assert set(piecewise["mode"]) == {"piecewise"}
    verify = ("phase", "requested", "bucket", "outcome", "query_len", "num_tokens", "tokens_out")
    assert rows(frame, "step", *verify, "dur_ns", "kv_tokens") == [
        ("prefill", 7, None, None, None, 7, None, None, None),
        ("verify", 3, 4, "padded", 4, 12, 8, None, 910),
        ("verify", 3, 4, "padded", 4, 12, 8, 10_000_000, 9),
        ("verify", 9, None, "fallback", 4, 36, 18, 200_000_000, 9),
    ]


def test_0_5_9_prefill_flag_at_the_end_is_eager_where_prefill_graphs_are_off():
    frame = log("0.5.9")
    step = ("phase", "axis", "requested", "num_reqs", "mode", "outcome", "queued")
    assert rows(frame, "step", *step) == [("prefill", "tokens", 40, 2, "eager", "eager", 5)]
    assert "sampled" not in configs(frame)[0]


def test_0_5_23_prefill_buckets_and_reasons():
    frame = log("0.5.23")
    (config,) = configs(frame)
    assert config["capture_sizes"] == [1, 4, 8]
    assert config["graphs_off"] == []
    assert config["token_budget"] == 64
    assert config["graph_bytes"] == 3 * GIB // 4
    steps = rows(frame, "step", "phase", "requested", "bucket", "outcome", "reason", "artifact")
    assert steps == [
        ("prefill", 13, 16, "padded", None, "prefill/16"),
        ("prefill", 64, 64, "exact", None, "prefill/64"),
        ("prefill", 65, None, "fallback", "over_max", None),
        ("prefill", 17, None, "fallback", "no_key", None),  # 64 is more than twice 17
        ("prefill", 16, None, "fallback", "unknown", None),
        ("decode", 3, 4, "padded", None, "decode/4"),
        ("decode", 3, 4, "padded", None, "decode/4"),
    ]
    assert rows(frame, "step", "dur_ns")[-2:] == [(None,), (10_000_000,)]
    captured = frame.filter((pl.col("event") == "capture") & (pl.col("weight") == 1))
    assert captured["artifact"].to_list() == [
        *(f"prefill/{size}" for size in (64, 16, 4)),
        *(f"decode/{size}" for size in (8, 4, 1)),
        "DSV4 tail/256",
    ]
    late = captured.row(-1, named=True)
    assert (late["dur_ns"], late["pool_bytes"]) == (500_000_000, GIB // 8)
    assert late["t_ns"] % 10**9 == 500_000_000  # it began half a second before its line
    marks = {kind: json.loads(text) for kind, text in rows(frame, "mark", "kind", "config")}
    assert marks["dedup"] == {"graphs": 21, "executables": 7}
    assert marks["startup"]["seconds"]["prefill"] == 3.0


def test_replay_keys_count_every_replay_once_and_eager_lines_stand_for_their_interval():
    frame = log("0.5.16_keys")
    step = ("kind", "runner", "phase", "axis", "requested", "bucket", "outcome", "artifact")
    assert rows(frame, "step", *step, "weight") == [
        (None, "target", "verify", "requests", 3, 4, "padded", "decode/4", 1),
        (None, "draft", "decode", "requests", 4, 4, "exact", "draft-decode/4", 1),
        # A key in tokens says nothing of the tokens asked for.
        (None, "target", "verify", "tokens", None, 24, None, "decode-tokens/24", 1),
        ("filler", "target", None, "requests", 0, 1, "padded", "decode/1", 1),
        (None, "target", "verify", "requests", 9, None, "fallback", None, 40),
    ]
    eager = frame.filter(pl.col("outcome") == "fallback").row(0, named=True)
    assert (eager["dur_ns"], eager["tokens_out"]) == (40 * 100_000_000, 40 * 18)
    assert configs(frame)[0]["sampled"] is True


def test_replay_keys_alone_are_no_sample(tmp_path):
    text = (LOGS / "sglang_0.5.16_keys.log").read_text().splitlines(keepends=True)
    frame = read(sglang_log, write(tmp_path, "".join(text[:-1])))
    assert configs(frame)[0]["sampled"] is False
    assert counts(frame) == {"padded": 1, None: 1}


def test_decode_lines_before_the_first_key_are_a_sample_of_their_own(tmp_path):
    text = (LOGS / "sglang_0.5.16_keys.log").read_text().splitlines(keepends=True)
    start, keys, decode = text[:4], text[4:5], text[8:9]
    frame = read(sglang_log, write(tmp_path, "".join([*start, *decode, *keys, *decode])))
    assert rows(frame, "step", "requested", "outcome", "weight") == [
        (3, "padded", 1),
        (3, "padded", 1),
    ]


START = """\
[2026-05-04 09:00:00] server_args=ServerArgs(model_path='m', {arguments})
[2026-05-04 09:00:02] max_total_num_tokens=1000, chunked_prefill_size=4096, max_running_requests=32
"""
DECODE = (
    "[2026-05-04 09:00:{second:02d}{ranks}] Decode batch, #running-req: {running}, #token: 9, "
    "token usage: 0.05, {device} graph: {graph}, gen throughput (token/s): 100.00, #queue-req: 0\n"
)


def decode(
    running: int, graph: bool, second: int = 5, ranks: str = "", device: str = "cuda"
) -> str:
    return DECODE.format(running=running, graph=graph, second=second, ranks=ranks, device=device)


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ("disable_cuda_graph=True", "eager"),
        ("disable_cuda_graph=False", "fallback"),
        (
            "cuda_graph_config=CudaGraphConfig(decode=PhaseConfig(backend='disabled', bs=[1]))",
            "eager",
        ),
        ("disable_cuda_graph=False, disable_decode_cuda_graph=True", "eager"),
        ("cuda_graph_config={'decode': {'backend': 'breakable', 'bs': [1]}}", "fallback"),
        ("disable_cuda_graph=False, device='cpu'", None),
    ],
)
def test_an_eager_step_is_a_fallback_only_where_graphs_are_on(tmp_path, arguments, outcome):
    text = START.format(arguments=arguments) + decode(4, graph=False)
    frame = read(sglang_log, write(tmp_path, text))
    assert counts(frame) == {outcome: 1}
    assert ("decode" in configs(frame)[0]["graphs_off"]) == (outcome == "eager")


def test_a_disabling_line_turns_decode_graphs_off_and_is_quoted(tmp_path):
    text = START.format(arguments="disable_cuda_graph=False")
    text += "[2026-05-04 09:00:03] Cuda graph is disabled because of X.\n" + decode(4, graph=False)
    frame = read(sglang_log, write(tmp_path, text))
    assert counts(frame) == {"eager": 1}
    assert any("because of X" in note for note in configs(frame)[0]["notes"])


def test_without_the_start_an_eager_step_is_nothing_until_a_replay_is_seen(tmp_path):
    frame = read(sglang_log, write(tmp_path, decode(4, graph=False)))
    assert counts(frame) == {None: 1}
    assert rows(frame, "step", "fallback") == [(None,)]
    assert any("start" in note for note in configs(frame)[0]["notes"])
    both = decode(4, graph=False) + decode(4, graph=True)
    assert counts(read(sglang_log, write(tmp_path, both))) == {"fallback": 1, None: 1}


def test_a_replay_beats_a_configuration_that_says_off(tmp_path):
    text = START.format(arguments="disable_cuda_graph=True")
    text += decode(4, graph=False) + decode(4, graph=True) + decode(4, graph=False)
    frame = read(sglang_log, write(tmp_path, text))
    assert [row[0] for row in rows(frame, "step", "outcome")] == ["eager", None, "fallback"]
    assert "decode" not in configs(frame)[0]["graphs_off"]


def test_under_dp_attention_the_bucket_is_not_guessed(tmp_path):
    arguments = "tp_size=4, dp_size=2, enable_dp_attention=True, disable_cuda_graph=False"
    text = START.format(arguments=arguments + ", cuda_graph_bs=[1, 8]")
    text += decode(4, graph=True, ranks=" DP0 TP0") + decode(3, graph=True, ranks=" DP1 TP2")
    frame = read(sglang_log, write(tmp_path, text))
    assert rows(frame, "step", "rank", "bucket", "outcome", "fallback") == [
        (0, None, None, False),
        (2, None, None, False),
    ]


def test_ranks_of_replicas_are_counted_through(tmp_path):
    text = START.format(arguments="tp_size=4, dp_size=2, pp_size=2, disable_cuda_graph=False")
    text += decode(4, graph=True, ranks=" DP1 PP1 TP3")
    frame = read(sglang_log, write(tmp_path, text))
    assert rows(frame, "step", "rank") == [(15,)]
    alone = decode(4, graph=True, ranks=" DP1 TP3") + decode(4, graph=True, ranks=" TP3")
    frame = read(sglang_log, write(tmp_path, alone))
    assert rows(frame, "step", "rank") == [(None,), (3,)]  # without the sizes only TP is clear


def test_a_restart_begins_a_new_run(tmp_path):
    one = START.format(arguments="disable_cuda_graph=True") + decode(4, graph=False)
    two = START.format(arguments="disable_cuda_graph=False, cuda_graph_bs=[1, 4]")
    frame = read(sglang_log, write(tmp_path, one + two + decode(4, graph=True)))
    first, second = configs(frame)
    assert first["graphs_off"] == ["decode", "prefill"]
    assert second["capture_sizes"] == [1, 4]
    runs = rows(frame, "step", "run", "outcome")
    assert [outcome for _, outcome in runs] == ["eager", "exact"]
    assert runs[0][0] != runs[1][0]


def test_arguments_printed_as_a_dictionary_with_every_decode_line_shown(tmp_path):
    arguments = "{'tp_size': 2, 'disable_cuda_graph': False, 'decode_log_interval': 1, 'x': '{'}"
    text = f"[2026-05-04 09:00:00] server_args={arguments}\n" + decode(4, graph=False)
    frame = read(sglang_log, write(tmp_path, text))
    (config,) = configs(frame)
    assert (config["sampled"], config["sample_every"]) == (False, 1)
    assert config["tensor_parallel"] == 2
    assert counts(frame) == {"fallback": 1}


def test_a_reason_printed_before_the_arguments_of_a_restart_belongs_to_the_restart(tmp_path):
    start = START.format(arguments="disable_cuda_graph=False")
    reason = "[2026-05-04 09:00:09] Cuda graph is disabled because of X.\n"
    text = start + decode(4, graph=False) + reason + start + decode(4, graph=False)
    frame = read(sglang_log, write(tmp_path, text))
    assert [row[0] for row in rows(frame, "step", "outcome")] == ["fallback", "eager"]
    first, second = configs(frame)
    assert "decode" not in first["graphs_off"]
    assert "decode" in second["graphs_off"]


def test_arguments_printed_twice_at_start_are_one_run(tmp_path):
    start = START.format(arguments="disable_cuda_graph=False").splitlines(keepends=True)
    frame = read(sglang_log, write(tmp_path, start[0] + "".join(start) + decode(4, graph=True)))
    assert len(configs(frame)) == 1


def test_a_recapture_by_the_same_rank_is_another_capture(tmp_path):
    capture = (
        "[2026-05-04 09:00:03 TP0] Capture target decode CUDA graph begin. backend=full, "
        "num_tokens_per_req=1, bs=[1, 4], avail mem=9.00 GB\n"
        "[2026-05-04 09:00:04 TP0] Capture target decode CUDA graph end. elapsed=1.00 s, "
        "mem usage=0.25 GB, avail mem=8.75 GB.\n"
    )
    other = capture.replace("TP0", "TP1")
    frame = read(sglang_log, write(tmp_path, capture + other + capture))
    assert sum(weight for (weight,) in rows(frame, "capture", "weight")) == 4


def test_a_progress_bar_that_misses_sizes_gives_only_the_count(tmp_path):
    text = (
        "[2026-05-04 09:00:03] Capture draft cuda graph begin. This can take up to several "
        "minutes. avail mem=9.00 GB\n"
        "Capturing batches (bs=8 avail_mem=9.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]\r"
        "Capturing batches (bs=1 avail_mem=9.00 GB):  67%|██████▋   | 2/3 [00:00<?, ?it/s]"
        "[2026-05-04 09:00:04] Capture draft cuda graph end. Time elapsed: 1.00 s. "
        "mem usage=0.25 GB. avail mem=8.75 GB.\n"
    )
    frame = read(sglang_log, write(tmp_path, text))
    assert rows(frame, "capture", "kind", "weight", "size") == [("draft-decode", 3, None)]


def test_retractions_that_no_step_follows_are_a_mark(tmp_path):
    text = decode(4, graph=True) + (
        "[2026-05-04 09:00:09] Decode out of memory happened. #retracted_reqs: 3, "
        "#new_token_ratio: 0.5 -> 1.0\n"
    )
    frame = read(sglang_log, write(tmp_path, text))
    assert rows(frame, "mark", "kind", "weight") == [("retraction", 3)]


def test_a_log_without_steps_says_which_flags_show_them(tmp_path):
    frame = read(sglang_log, write(tmp_path, START.format(arguments="disable_cuda_graph=False")))
    assert rows(frame, "step", "event") == []
    assert any("SGLANG_LOG_DECODE_GRAPH_KEY=1" in note for note in configs(frame)[0]["notes"])


def test_the_cases_of_real_formats(shared):
    expected = {}
    for path in sorted((shared / "cases").glob("sglang_*/expect.json")):
        want = json.loads(path.read_text())["metrics"]
        outcomes = counts(read(sglang_log, path.with_name("server.log")))
        served = sum(outcomes.get(name, 0) for name in ("exact", "padded", "fallback"))
        expected[path.parent.name] = want["fallback_rate"]
        assert outcomes.get("fallback", 0) / served == pytest.approx(want["fallback_rate"])
        if "exact_hit_rate" in want:
            assert outcomes.get("exact", 0) / served == pytest.approx(want["exact_hit_rate"])
    assert expected
