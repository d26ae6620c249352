"""``graphdiag buckets`` from its arguments to what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from graphdiag import cli
from graphdiag.buckets.engines import ENGINES, rules_for
from tests.buckets.making import PRACTICE, engine_rows, graphs_off_rows
from tests.build import event, write
from tests.conftest import ROOT

Run = Callable[..., tuple[int, str, str]]
SAMPLES = ROOT / "sample_traces"
CURRENT = ("--current", "1,4,8,16,32")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "sizes.csv"
    path.write_text(PRACTICE)
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    run = {"capture_sizes": [1, 4, 8, 16, 32], "axis": "requests", "max_num_seqs": 32}
    rows = engine_rows([1, 4, 8, 9, 10, 16, 32] * 60)
    return str(write([event("run", config=run), *rows], tmp_path / "t.parquet"))


def answered(run: Run, *arguments: str) -> dict:
    code, out, err = run("buckets", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def refused(run: Run, *arguments: str) -> str:
    code, out, err = run("buckets", *arguments)
    assert (code, out) == (2, "")
    sentence = err.strip().splitlines()[-1]  # click prints the usage above its own
    assert sentence.endswith(".")
    assert "Traceback" not in err
    return sentence


def test_the_bundled_practice(run: Run) -> None:
    answer = answered(run, str(SAMPLES / "practice.csv"), *CURRENT)
    assert answer["current"]["padding_ratio"] == pytest.approx(0.2802, abs=5e-5)
    assert answer["best_single_change"]["sizes"] == [24]
    assert answer["best_single_change"]["plan"]["padding_ratio"] == pytest.approx(0.2196, abs=5e-5)
    assert [(run["from"], run["to"]) for run in answer["best_single_change"]["helps"]] == [(17, 24)]


def test_text_markdown_and_a_file(run: Run, table: str, tmp_path: Path) -> None:
    code, out, err = run("buckets", table, *CURRENT)
    assert (code, err) == (0, "")
    assert out.startswith("Answer: The best 5 sizes pad 24.3 % in place of 28.0 % of")
    assert "  - Add 24: padding from 28.0 % of requested rows to 22.0 %; 7.5 % of" in out
    assert run("buckets", table, "--markdown")[1].startswith("### graphdiag buckets\n\n**Answer:**")
    target = tmp_path / "plan.txt"
    assert run("buckets", table, *CURRENT, "-o", str(target)) == (0, "", "")
    assert target.read_text() == out


def test_lists_may_be_written_in_ranges(run: Run, table: str) -> None:
    answer = answered(run, table, "--current", "1,2,4,8-32:8", "--what-if", "8-32:4")
    assert answer["current"]["buckets"] == [1, 2, 4, 8, 16, 24, 32]
    assert answer["what_if"]["buckets"] == [8, 12, 16, 20, 24, 28, 32]


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_a_table_on_standard_input(source: str) -> None:
    done = process("buckets", source, "--json", given_text=PRACTICE)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["knee"] == 4
    assert answer["source"] == {"-": "standard input"}.get(source, source)


def test_a_trace_on_standard_input(trace: str) -> None:
    command = [sys.executable, "-m", "graphdiag", "buckets", "-", "--json"]
    done = subprocess.run(command, input=Path(trace).read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["current"]["buckets"] == [1, 4, 8, 16, 32]


def test_nothing_on_standard_input_is_named() -> None:
    done = process("buckets", "-", given_text="")
    assert done.returncode == 2
    assert done.stderr.startswith("graphdiag: standard input: ")


def process(*arguments: str, given_text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdiag", *arguments]
    return subprocess.run(command, input=given_text, capture_output=True, text=True, check=False)


def test_a_closed_pipe_is_quiet(table: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "graphdiag", "buckets", table]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""


def test_the_source_is_not_overwritten(run: Run, table: str) -> None:
    assert "is the source itself" in refused(run, table, "-o", table)
    assert "is the source itself" in refused(run, table, "--html", table)
    assert Path(table).read_text() == PRACTICE


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_where_nothing_can_be_written_is_said_first(run: Run, table: str, option: str) -> None:
    assert "its folder does not exist" in refused(run, table, option, "/nowhere/at/all.html")
    assert "is a folder" in refused(run, table, option, str(ROOT))


def test_what_a_person_gives_about_memory(run: Run, table: str) -> None:
    given_memory = ("--mib-per-graph", "10", "--pool-mib", "2048", "--seconds-per-graph", "0.7")
    answer = answered(run, table, *CURRENT, *given_memory, "--budget-mib", "2088")
    assert answer["current"]["memory_mib"] == 2098
    assert answer["current"]["warmup_s"] == pytest.approx(3.5)
    assert len(answer["recommended"]["buckets"]) == 4
    assert answer["recommended"]["memory_mib"] == 2088


def test_a_pool_belongs_to_the_largest_captured_size(run: Run, table: str) -> None:
    given_memory = ("--mib-per-graph", "10", "--pool-mib", "1000", "--what-if", "32")
    answer = answered(run, table, "--current", "8,16", *given_memory)
    assert answer["current"]["memory_mib"] == 1020
    assert answer["what_if"]["memory_mib"] == 2010


def test_a_baseline_tells_what_eager_costs(run: Run, trace: str, tmp_path: Path) -> None:
    rows = graphs_off_rows([1, 8, 9, 16, 32] * 60)
    baseline = str(write([event("run", config={"mode": "NONE"}), *rows], tmp_path / "off.parquet"))
    answer = answered(run, trace, "--baseline", baseline)
    sizes = {size["requested"]: size["net_ms"] for size in answer["sizes"]}
    assert sizes[8] == pytest.approx(0.75)
    assert sizes[9] == pytest.approx(-0.93)


def test_several_tables_or_one_with_a_baseline_are_refused(run: Run, table: str) -> None:
    assert "a histogram is read alone" in refused(run, table, table)
    assert "no times to hold against it" in refused(run, table, "--baseline", table)


def test_a_baseline_that_is_no_trace(run: Run, trace: str, table: str) -> None:
    assert "not a graphdiag trace" in refused(run, trace, "--baseline", table)
    assert "no such file" in refused(run, trace, "--baseline", "absent.parquet")


def test_one_list_has_no_phase(run: Run, table: str) -> None:
    sentence = refused(run, table, "--engine", "vllm", "--phase", "prefill")
    assert sentence == (
        "graphdiag: --phase prefill: vLLM keeps one list for all phases; leave --phase out."
    )
    answer = answered(run, table, "--engine", "sglang", "--phase", "prefill")
    assert answer["flags"]["sglang"].startswith("--cuda-graph-bs-prefill ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "1,two"], "'two' is no size"),
        (["--current", "0,4"], "a size is 1 or more"),
        (["--current", ""], "the list is empty"),
        (["--current", "1-99999"], "more than 4,096 sizes"),
        (["--max-graphs", "0"], "0 is not in the range"),
        (["--max-graphs", "many"], "not a valid integer"),
        (["--budget-mib", "-1"], "not in the range"),
        (["--budget-mib", "nan"], "not in the range"),
        (["--mib-per-graph", "nan"], "not in the range"),
        (["--pool-mib", "inf"], "not in the range"),
        (["--budget-mib", "10"], "give --mib-per-graph"),
        (["--keep", "8", "--forbid", "8"], "both kept and forbidden"),
        (["--json", "--markdown"], "not both"),
        (["--engine", "other"], "is not one of"),
    ],
)
def test_bad_options_get_a_sentence(run: Run, table: str, arguments: list[str], said: str) -> None:
    assert said in refused(run, table, *arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8,-1\n", "negative"),
        ("8,nan\n", "no number"),
        ("8,1e400\n", "larger than 2**53"),
        ("0,5\n", "is not between 1"),
        ("8,0\n", "all counts are zero"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n", "a list of requests"),
    ],
)
def test_bad_tables_get_a_sentence(run: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert said in refused(run, str(path))


def test_one_size_and_more_graphs_than_sizes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("9,100\n")
    answer = answered(run, str(path), "--max-graphs", "500", *CURRENT)
    assert answer["recommended"]["buckets"] == [9]
    assert len(answer["frontier"]) == 1
    assert answered(run, str(path))["recommended"]["buckets"] == [9]


def test_a_trace_without_a_replay(run: Run, tmp_path: Path) -> None:
    rows = engine_rows([40, 50] * 100)
    path = str(write([event("run", config={"capture_sizes": [8]}), *rows], tmp_path / "t.parquet"))
    answer = answered(run, path)
    assert answer["current"]["fallback_rate"] == 1
    assert answer["best_single_change"]["sizes"][-1] == 50


def test_a_trace_whose_graphs_were_off(run: Run, tmp_path: Path) -> None:
    rows = graphs_off_rows([3, 9, 20] * 100)
    run_event = event("run", config={"engine": "vllm", "mode": "NONE", "axis": "requests"})
    path = str(write([run_event, *rows], tmp_path / "t.parquet"))
    answer = answered(run, path)
    assert answer["current"] is None
    assert answer["recommended"]["fallback_rate"] == 0
    assert any(note.startswith("Graphs were off in this trace") for note in answer["notes"])


def test_a_trace_without_a_size(run: Run, tmp_path: Path) -> None:
    path = str(write([event("run", config={})], tmp_path / "t.parquet"))
    assert "there is nothing to plan for" in refused(run, path)


def test_impossible_options_never_hide_behind_a_bug(run: Run, table: str) -> None:
    code, _, err = run("buckets", table, "--keep", "4096", *CURRENT, "--max-graphs", "1")
    assert (code, err) == (0, "")


counts = st.one_of(st.integers(0, 10**6).map(str), st.floats(0, 1e6).map("{:.3f}".format))
tables = st.dictionaries(st.integers(1, 3000), counts, min_size=1, max_size=12).map(
    lambda pairs: "".join(f"{size},{count}\n" for size, count in pairs.items())
)
noise = st.text(st.characters(codec="utf-8"), max_size=40)
lists = st.lists(st.integers(1, 3000), min_size=1, max_size=8).map(
    lambda sizes: ",".join(map(str, sizes))
)
options = st.fixed_dictionaries(
    {},
    optional={
        "--current": lists,
        "--what-if": lists,
        "--keep": lists,
        "--forbid": lists,
        "--max-graphs": st.integers(1, 40).map(str),
        "--budget-mib": st.integers(0, 5000).map(str),
        "--mib-per-graph": st.integers(0, 100).map(str),
        "--pool-mib": st.integers(0, 5000).map(str),
        "--engine": st.sampled_from(ENGINES),
        "--phase": st.sampled_from(["decode", "prefill"]),
    },
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(tables, tables, tables, noise), options)
def test_any_table_and_options_give_a_legal_plan_or_a_sentence(
    capsysbinary: pytest.CaptureFixture[bytes], text: str, chosen: dict[str, str]
) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        words = [word for pair in chosen.items() for word in pair]
        code = cli.run(["buckets", file.name, *words, "--json"])
        out, err = capsysbinary.readouterr()
        assert b"bug in graphdiag" not in err
        assert code in (0, 2)
        if code == 2:
            assert err.decode().strip().endswith(".")
            return
        legal(json.loads(out), chosen)
        for form in ([], ["--markdown"]):
            assert cli.run(["buckets", file.name, *words, *form]) == 0
        capsysbinary.readouterr()


configs = st.fixed_dictionaries(
    {"axis": st.sampled_from(["requests", "tokens"])},
    optional={
        "engine": st.sampled_from([*ENGINES, "mine"]),
        "engine_version": st.sampled_from(["0.5.9", "0.5.23", "0.9.0", "0.32.0", "1.2.0", "?"]),
        "mode": st.sampled_from(["NONE", "FULL", "PIECEWISE", "FULL_AND_PIECEWISE"]),
        "runner": st.sampled_from(["v1", "v2"]),
        "capture_sizes": st.lists(st.integers(1, 300), max_size=6),
        "compile_sizes": st.lists(st.integers(1, 300), max_size=2),
        "max_num_seqs": st.integers(1, 300),
        "request_pool": st.integers(1, 300),
        "token_budget": st.integers(1, 600),
        "speculative_tokens": st.integers(1, 4),
        "tensor_parallel": st.sampled_from([1, 2, 4]),
        "padding": st.booleans(),
        "lora": st.integers(1, 4),
    },
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(
    [1],
    [1],
    {"axis": "requests", "engine": "sglang", "padding": False, "tensor_parallel": 1}
    | {"request_pool": 1, "capture_sizes": [2]},
    {},
    False,
    "decode",
)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.lists(st.integers(1, 300), min_size=1, max_size=6),
    configs,
    options,
    st.booleans(),
    st.sampled_from(["decode", "prefill", None]),
)
def test_any_trace_and_options_give_a_legal_plan_or_a_sentence(
    capsysbinary: pytest.CaptureFixture[bytes],
    sizes: list[int],
    buckets: list[int],
    config: dict,
    chosen: dict[str, str],
    timed: bool,
    phase: str | None,
) -> None:
    rows = engine_rows(sizes * 4, buckets, axis=config["axis"], phase=phase)
    if not timed:
        rows = [{**row, "dur_ns": None} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = write([event("run", config=config), *rows], Path(folder) / "t.parquet")
        words = [word for pair in chosen.items() for word in pair]
        code = cli.run(["buckets", str(path), *words, "--json"])
        out, err = capsysbinary.readouterr()
        assert b"bug in graphdiag" not in err, err
        assert code in (0, 2)
        if code == 2:
            assert err.decode().strip().endswith(".")
            return
        answer = json.loads(out)
        legal(answer, chosen, config, None if answer["phase"] else answer["axis"])
        assert cli.run(["buckets", str(path), *words]) == 0
        capsysbinary.readouterr()


def legal(
    answer: dict, chosen: dict[str, str], config: dict | None = None, axis: str | None = None
) -> None:
    """Every set obeys the engine's rules and the person's wishes, and has its flag."""
    engine = chosen.get("--engine") or answer["engine"] or "vllm"
    phase = chosen.get("--phase")
    if phase is None and axis == "requests":
        phase = "decode"
    known = config if answer["engine"] else {}
    rules = rules_for(engine, known or {}, axis, phase)
    change = answer["best_single_change"] or {}
    plans = [answer["recommended"], answer["best_same_count"], change.get("plan")]
    for plan in (*filter(None, plans), *answer["frontier"]):
        buckets = plan["buckets"]
        assert buckets == sorted(set(buckets))
        assert rules.refusals(buckets) == []
        assert plan["graphs"] <= int(chosen.get("--max-graphs", 10**6))
        assert set(map(int, chosen.get("--keep", "0").split(","))) <= set(buckets) or (
            "--keep" not in chosen
        )
        assert not {str(size) for size in buckets} & set(chosen.get("--forbid", "").split(","))
        if "--budget-mib" in chosen:
            assert plan["memory_mib"] <= float(chosen["--budget-mib"]) + 1e-6
    if answer["recommended"] is None:
        assert answer["flags"] == {}
    elif config is None:
        assert engine in answer["flags"]
    for name, pasted in answer["flags"].items():
        assert all(str(size) in pasted for size in answer["recommended"]["buckets"]), name


def test_the_plan_adds_what_the_report_adds_where_no_other_set_is_better(
    run: Run, shared: Path
) -> None:
    log = str(shared / "cases" / "sglang_bucket_nine" / "server.log")
    plan, report = (json.loads(run(command, log, "--json")[1]) for command in ("buckets", "report"))
    advice = report["recommendation"]
    assert plan["recommended"]["buckets"] == advice["buckets"]
    assert plan["sentence"].startswith(f"{advice['why']} A whole new set gains ")
    assert plan["sentence"].endswith("on traffic it was not fitted to: within noise.")
