import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphdiag import cli
from graphdiag.reporters import report_html
from tests.build import step
from tests.plots import runs

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_traces"
LOG = """\
INFO 01-01 10:00:00 [core.py:70] Initializing a V1 LLM engine (v0.11.0) with config: model='m'
INFO 01-01 10:00:09 [gpu_model_runner.py:3480] Graph capturing finished in 4 secs, took 0.31 GiB
"""


def shown(rows: runs.Rows | None = None) -> str:
    return html.unescape(report_html.render(*runs.all_of(rows)))


@pytest.fixture(scope="module")
def text():
    return shown()


def test_the_verdict_is_on_top_and_the_cases_are_cards_worst_first(text):
    assert "<h1>Verdict: Case 2, shapes recompile or miss their buckets: " in text
    cards = re.findall(r'class="card([^"]*)">\s*<h2>(\d) (\w+)', text)
    assert cards == [
        (" marked", "2", "shapes"),
        ("", "3", "fallback"),
        ("", "4", "padding"),
        (" quiet", "1", "compile"),
    ]
    figures = re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", text)
    assert ("exact-bucket hit rate", "33.5 %") in figures
    assert ("a step", "3.35 ms") in figures
    assert ("compiles and captures", "6 in 4.36 s") in figures
    assert ("charged to it", "nothing") in figures
    assert "100 of 597 steps (16.8 %) fell back to eager." in text


def test_what_to_do_ends_with_the_flag_to_copy(text):
    flag = re.search(r"<span>Paste for vLLM</span><button[^>]*>Copy</button></div>\s*<pre.*", text)
    assert flag is not None
    assert '"cudagraph_capture_sizes": [3, 8, 11, 16, 27, 32, 40]' in flag[0]


def test_every_picture_says_how_to_read_it(text):
    titles = re.findall(r"<figcaption>\s*<h2>([^<]*)</h2>\s*<p>[^<]+</p>", text)
    assert titles == [
        "Step time over time",
        "Outcome over time",
        "Requested sizes",
        "Cost by size",
        "Where a step's time goes",
        "Artifacts by how often they served",
        "What each number of graphs can give",
        "Host and GPU time of a step",
        "Launches of a step",
    ]
    assert text.count('class="plot"') == 9
    assert text.count("Replay is faster than eager at every size that replays: 3 to 27.") == 2


def test_the_audit_is_told_with_its_severity(text):
    assert re.search(r'<span class="severity error">error</span>\s*<b>ceiling</b>', text)


def test_nothing_is_hidden_that_the_other_reports_tell(text):
    for part in ("Rates in %", "Step time in ms", "Compile and capture", "Configuration"):
        assert f"<h2>{part}</h2>" in text
    assert "<td>max_num_seqs</td>" not in text  # text is aligned left
    assert '<td class="text">max_num_seqs</td>' in text


def test_what_was_not_recorded_is_said_in_its_place():
    rows = [row for row in runs.service(60, late=False) if row["event"] == "step"]
    text = shown(
        runs.without(rows, "t_ns", "dur_ns", "artifact", "host_ns", "gpu_ns", "blocked_ns")
    )
    for words in (
        "The source does not say when each step ran",
        "The time of a step was not recorded",
        "No artifact has a name in this source",
        "open a profiler window on the running engine",
    ):
        assert words in text
    assert re.findall(r'class="plot"[^>]*aria-label="([^"]*)"', text) == [
        "Requested sizes",
        "What each number of graphs can give",
    ]


def test_one_step_is_a_page():
    text = shown([step(8, 8, dur_ns=10**6)])
    assert "Verdict: No verdict: 1 step" in text
    assert 'class="card quiet"' in text


def test_a_server_log_is_a_page(tmp_path, capsys):
    log, target = tmp_path / "server.log", tmp_path / "out.html"
    log.write_text(LOG, encoding="utf-8")
    assert cli.run(["report", str(log), "--html", str(target)]) == 0
    text = html.unescape(target.read_text(encoding="utf-8"))
    assert "The source holds no step" in text
    assert "graphdiag record" in text
    assert len(text) < 100_000  # nothing to draw, and nothing to draw with


def test_the_command_writes_the_page_beside_the_report(tmp_path, capsys):
    target = tmp_path / "out.html"
    source = str(SAMPLES / "fallback_trap.parquet")
    assert cli.run(["report", source, "--html", str(target)]) == 0
    assert capsys.readouterr().out.startswith("Verdict: Case 3")
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert len(text) < 5 << 20
    assert text.count("<script>") == 3  # Bokeh, how loud it is, and the page's own


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--html", "/nowhere/at/all.html"], "its folder does not exist"),
        (["-o", "one.html", "--html", "one.html"], "-o and --html name one file"),
        (["--html", "-"], "name a file"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_first(options, words, capsys):
    source = str(SAMPLES / "practice.parquet")
    assert cli.run(["report", source, *options]) == 2
    assert words in capsys.readouterr().err


def test_the_source_is_never_overwritten(tmp_path, capsys):
    source = tmp_path / "trace.parquet"
    source.write_bytes((SAMPLES / "practice.parquet").read_bytes())
    assert cli.run(["report", str(source), "--html", str(source)]) == 2
    assert "is the source itself" in capsys.readouterr().err


def test_help_and_a_report_without_a_page_load_no_plotting():
    source = str(SAMPLES / "practice.parquet")
    code = (
        "import sys; from graphdiag import cli; cli.run(['report', '--help']); "
        f"cli.run(['report', {source!r}]); "
        "sys.exit('holoviews' in sys.modules or 'bokeh' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
