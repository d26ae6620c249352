"""Whole experiments with a stand-in for the engine: the order, the table, interruption, failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import msgspec
import pytest

from graphdiag.errors import GraphdiagError
from graphdiag.experiment.answer import Experiment
from graphdiag.experiment.outcome import outcome
from graphdiag.experiment.plan import RunPlan
from graphdiag.experiment.run import check_folder, make_folder, run_all
from graphdiag.reporters import experiment_markdown, experiment_text
from graphdiag.reporters import json as json_reporter
from graphdiag.sources import open_source
from graphdiag.summary import summarize


@pytest.fixture(scope="module")
def done(faked, make_setting):
    """A whole experiment, its runs and what was told of it."""
    setting, told = make_setting(faults=("other-tokens",)), []
    ran, interrupted = run_all(setting, told.append)
    assert not interrupted
    return setting, ran, told


@pytest.fixture(scope="module")
def found(done):
    setting, ran, _ = done
    return outcome(setting, ran, interrupted=False)


def test_modes_are_interleaved_and_told_as_they_run(done):
    setting, ran, told = done
    order = ["eager", "compiled", "graphs", "graphs", "compiled", "eager"]
    assert [one.mode for one in ran] == order
    assert [one.ended for one in ran] == ["whole"] * 6
    assert [line.split()[1].strip(",:") for line in told[::2]] == order
    assert told[0] == "[1/6] eager, cold start ..."
    assert told[-2] == "[6/6] eager, warm start ..."
    assert not list(setting.folder.glob("*cache*"))


def test_only_the_first_run_of_a_mode_finds_an_empty_cache(found):
    assert [run.cache for run in found.runs] == ["empty"] * 3 + ["kept"] * 3
    rows = {row.mode: row for row in found.modes}
    assert (rows["graphs"].cold_start_s, rows["graphs"].warm_start_s) == (41.0, 3.05)
    assert rows["graphs"].first_step_s == 41.01


def test_each_trace_carries_the_identity_of_its_run(done):
    _, ran, _ = done
    with open_source([str(ran[3].trace)]) as trace:
        (config,) = summarize(trace).events.filter(event="run")["config"]
    told = json.loads(config)
    assert (told["experiment_mode"], told["experiment_round"]) == ("graphs", "2")
    assert told["experiment_cache"] == "kept"
    assert told["experiment_workload"].startswith("the practice's batch sizes")


def test_the_table_has_the_figures_of_the_formulas(found):
    rows = {row.mode: row for row in found.modes}
    assert found.base == "eager"
    assert rows["eager"].exact_hit_rate is None
    graphs = rows["graphs"]
    assert graphs.padding_ratio == pytest.approx(0.282, abs=0.005)
    assert graphs.fallback_rate == 0
    # A graph serves exactly its size: batch sizes 1, 4, 8, 16 and 32 of the practice.
    assert graphs.exact_hit_rate == pytest.approx(0.255, abs=0.02)
    assert graphs.decode_step_ms < rows["compiled"].decode_step_ms < rows["eager"].decode_step_ms
    assert graphs.prepare_ms == pytest.approx(0.2)
    assert graphs.gpu_gap_ms is None
    assert graphs.rate.goodput_tokens_per_s == pytest.approx(
        graphs.rate.tokens_per_s * graphs.rate.goodput_share
    )
    assert "stands in for CUDA graphs" in graphs.what
    assert found.slo == "1.5 times the mean step of eager: give --slo-itl-ms"


def test_a_mode_is_judged_after_its_full_cost(found):
    rows = {row.mode: row for row in found.modes}
    held = rows["compiled"].against
    # By the formulas: 1.2 + 0.05 n ms in place of 2.0 + 0.05 n, start-up 20 s longer.
    assert held.change_ms_per_step == pytest.approx(-0.8, rel=0.02)
    assert held.change_ci95[0] < -0.8 < held.change_ci95[1]
    assert held.cold.later_s == pytest.approx(20)
    assert held.cold.steps == pytest.approx(25_000, rel=0.02)
    low, high = held.cold.steps_ci95
    assert low < 25_000 < high
    assert held.cold.hours * 3.6e6 == pytest.approx(held.cold.steps * rows["compiled"].step_ms)
    assert held.warm.steps == pytest.approx(1250, rel=0.02)
    assert held.succeeded
    terms = msgspec.structs.asdict(held.terms)
    assert sum(terms.values()) == pytest.approx(held.all_change_ms_per_step)
    assert rows["graphs"].against.terms.padding > 0.1
    assert rows["graphs"].against.terms.launch_saving < -1
    assert found.verdict.startswith("2 modes have succeeded, and graphs serves most: graphs has")
    # By the formulas graphs replays 0.4 ms faster than compiled, and pads 0.13 ms of it away.


def test_other_tokens_are_noticed(found):
    rows = {row.mode: row for row in found.modes}
    assert [rows[mode].same_tokens for mode in ("eager", "compiled", "graphs")] == [
        None,
        True,
        False,
    ]
    assert any("graphs sampled other tokens" in note for note in found.notes)


def test_the_one_change_is_for_as_many_graphs(found):
    told = found.bucket_change
    assert told.budget == "5 graphs"
    assert told.current.buckets == [1, 4, 8, 16, 32]
    assert told.change.action == "move"
    assert len(told.change.plan.buckets) == 5
    assert told.change.plan.padding_ratio < told.current.padding_ratio


def test_the_json_obeys_its_schema_file_and_reads_back(found):
    text = json_reporter.render(found)
    schema = json_reporter.schema(Experiment, "experiment")
    assert json_reporter.EXPERIMENT_SCHEMA_FILE.read_text(encoding="utf-8") == schema
    jsonschema.validate(json.loads(text), json.loads(schema))
    assert msgspec.json.decode(text, type=Experiment) == found


def test_text_and_markdown_show_the_same_figures(found):
    text = experiment_text.render(found)
    markdown = experiment_markdown.render(found)
    assert max(map(len, text.splitlines())) <= 80
    for told in ("GPU gaps, ms a step", "no GPU", "goodput, tokens/s", "Move 1 to", "28."):
        assert told in text
        assert told in markdown
    assert "Faults switched on: other-tokens." in text
    assert max(map(len, experiment_text.render(found, width=40).splitlines())) <= 40


def test_a_mode_that_fails_is_told_and_tried_once(faked, make_setting):
    setting = make_setting(modes=("eager", "compiled"), faults=("crash-compiled",))
    ran, interrupted = run_all(setting, lambda _: None)
    assert not interrupted
    assert [(one.mode, one.ended) for one in ran] == [
        ("eager", "whole"),
        ("compiled", "failed"),
        ("eager", "whole"),
    ]
    found = outcome(setting, ran, interrupted=False)
    assert [mode.mode for mode in found.modes] == ["eager"]
    (note,) = (note for note in found.notes if note.startswith("compiled"))
    assert "it ended with code 1 (RuntimeError: no kernel for this device)" in note
    assert f"all of it is in {setting.folder}" in note
    assert found.verdict == "Only eager has run: there is nothing to hold it against."


def test_buckets_below_the_batch_limit_are_allowed_and_reported(faked, make_setting):
    setting = make_setting(modes=("graphs",), rounds=1, buckets=(1, 4, 8))
    ran, _ = run_all(setting, lambda _: None)
    found = outcome(setting, ran, interrupted=False)
    (graphs,) = found.modes
    assert graphs.fallback_rate == pytest.approx(0.44, abs=0.001)  # batches of 9 to 32
    assert {finding.kind: finding.severity for finding in graphs.audit}["ceiling"] == "error"
    text = experiment_text.render(found)
    assert "error: ceiling: " in text
    assert "Each mode ran once" in text


def test_nothing_recorded_is_a_sentence(faked, make_setting):
    setting = make_setting(modes=("eager",), rounds=1, faults=("crash-eager",))
    ran, _ = run_all(setting, lambda _: None)
    with pytest.raises(GraphdiagError, match="eager: it ended with code 1"):
        outcome(setting, ran, interrupted=False)


COMMAND = """
import sys
from graphdiag import cli
from graphdiag.experiment import probe, run
from graphdiag.experiment.engine import faults
run.WORKERS["bundled"] = "fake_worker"
names = "hang-compiled", "silent-eager", "crash-compiled"
faults.FAULTS = tuple(faults.Fault(name, "", "", "", "") for name in names)
probe.check_python = lambda *_: "cpu"
sys.exit(cli.run(sys.argv[1:]))
"""


def _listen():
    """Take signals again: a background job ignores SIGINT, one under nohup SIGHUP."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def command(folder: Path, *arguments: str, number: int | None) -> tuple[int, str, str]:
    """Run an experiment, send it a signal once its engine hangs, and return how it ended."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "NO_COLOR": "1"}
    words = [sys.executable, "-c", COMMAND, "experiment", "--out", str(folder), *arguments]
    child = subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_listen,
    )
    deadline = time.monotonic() + 60
    while number and not (folder / "hanging").exists() and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if number:
        child.send_signal(number)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_a_mode_that_fails_is_exit_code_1_and_the_others_are_drawn(tmp_path):
    page = tmp_path / "page.html"
    told = ("--number", "100", "--rounds", "1", "--markdown", "--html", str(page))
    code, out, err = command(tmp_path / "out", *told, "--fault", "crash-compiled", number=None)
    assert code == 1, err
    assert "compiled: it ended with code 1" in err
    assert "no kernel for this device" in out
    drawn = page.read_text()
    assert "eager-1.parquet" in drawn
    assert "graphs-1.parquet" in drawn


def test_an_interruption_reports_the_traces_so_far(tmp_path):
    told = ("--number", "100", "--fault", "hang-compiled", "--json", "--modes", "eager,compiled")
    code, out, err = command(tmp_path / "out", *told, number=signal.SIGINT)
    assert code == 130, err
    assert "Traceback" not in err
    found = msgspec.json.decode(out, type=Experiment)
    assert found.interrupted
    assert [(run.mode, run.ended) for run in found.runs] == [
        ("eager", "whole"),
        ("compiled", "interrupted"),
    ]
    # What the broken-off run had recorded counts: its steps have times, its start is not known.
    compiled = found.modes[1]
    assert compiled.decode_step_ms is not None
    assert compiled.cold_start_s is None
    assert compiled.against.cold.sentence == "Not identifiable: its start was not measured."
    assert any(note.startswith("Interrupted: 1 of 4 runs ended whole") for note in found.notes)
    assert (tmp_path / "out" / "experiment.json").read_text() == out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_before_any_step_is_a_sentence(tmp_path, number):
    told = ("--number", "100", "--fault", "silent-eager")
    code, out, err = command(tmp_path / "out", *told, number=number)
    assert code == 130, err
    assert out == ""
    assert err.endswith("graphdiag: eager was interrupted before it had recorded anything.\n")


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(GraphdiagError, match="exists already; name another folder with --out"):
        check_folder(tmp_path)
    with pytest.raises(GraphdiagError, match="exists already"):
        check_folder(tmp_path / "kept")
    check_folder(tmp_path / "new")
    with pytest.raises(GraphdiagError, match="its folder is a file"):
        make_folder(tmp_path / "kept" / "below")


def test_a_plan_reads_back(done):
    setting, _, _ = done
    plan = msgspec.json.decode((setting.folder / "graphs-2.plan.json").read_bytes(), type=RunPlan)
    assert plan.requests == setting.workload.requests
    assert plan.buckets == (1, 4, 8, 16, 32)
