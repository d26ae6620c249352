"""What the page says, without a browser."""

import json
import re
from contextlib import ExitStack

import msgspec
import pytest

pytest.importorskip("panel", reason='needs pip install "graphdiag[dashboard]"')

from graphdiag.dashboard import words
from graphdiag.dashboard.editor import read_size
from graphdiag.dashboard.state import Choice, count, find
from graphdiag.dashboard.watching import Watched, watching
from graphdiag.diagnosis import diagnose
from graphdiag.errors import GraphdiagError
from graphdiag.reporters import json as json_reporter
from graphdiag.reporters.case_cards import case_cards
from graphdiag.sources import open_source
from graphdiag.timerange import TimeRange
from graphdiag_collectors.files import write_part
from tests.build import MS, START_NS, event, step, table, write
from tests.conftest import ROOT
from tests.recordings import folder

HOSTILE = '<img src=x onerror="x">\'&'


def watched(path):
    source = Watched(str(path), ExitStack())
    source.refresh()
    return source


def found(path, **chosen):
    source = watched(path)
    return find(source.sums, source.name, Choice(**chosen).selection())


def test_words_of_a_trace_are_text(tmp_path):
    rows = [event("run", config={"engine": HOSTILE, "notes": [HOSTILE]})]
    rows += [step(9, 16, 5.0 * i, dur_ns=MS, artifact=HOSTILE, phase=HOSTILE) for i in range(9)]
    rows.append(step(99, None, 90.0, dur_ns=MS, reason=HOSTILE))
    here = found(write(rows, tmp_path / "t.parquet"))
    text = (
        words.verdict(here)
        + words.tiles(here.report.metrics)
        + words.advised(here)
        + words.window(here)
    )
    text += words.status(HOSTILE, here, HOSTILE, grows=True)
    assert HOSTILE not in text
    assert "&lt;img src=x" in text


def test_the_page_says_which_stretch_it_is_of_and_how_report_gets_it():
    window = TimeRange(START_NS, START_NS + 1)
    practice = ROOT / "sample_traces" / "practice.parquet"
    assert "whole trace" in words.window(found(practice, window=window))
    first = found(practice).first_ns
    some = found(practice, window=TimeRange(first + 10 * 10**9, first + 20 * 10**9))
    told = words.window(some)
    assert "--window 2026-01-01T00:00:09." in told
    assert some.chosen.window.start_ns <= first + 10 * 10**9
    assert some.report.steps < some.steps == 8000
    assert (some.ranks, some.phases, some.runners) == ([], ["decode"], ["target"])
    assert "Simulated: " in told
    early = found(practice, window=TimeRange(first - 5 * 10**9, first + 5 * 10**9))
    assert "of <b>0.000 s to " in words.window(early)


def test_a_stretch_in_a_gap_is_said_to_hold_no_step(tmp_path):
    rows = [step(9, 16, at + 5.0 * i, dur_ns=MS) for at in (0, 60_000) for i in range(50)]
    path = write([event("run", config={"engine": "vllm"}), *rows], tmp_path / "t.parquet")
    gap = TimeRange(START_NS + 20 * 10**9, START_NS + 30 * 10**9)
    assert "No step began in it" in words.window(found(path, window=gap))
    assert "No step began" not in words.window(found(path))


TRACES = [
    *(f"sample_traces/{name}.parquet" for name in ("practice", "practice_eager", "fallback_trap")),
    "tests/data/logs/vllm_0.9.2.log",
    "tests/data/logs/sglang_0.5.9.log",
]


@pytest.mark.parametrize("name", TRACES)
def test_the_numbers_are_those_of_report_json(name):
    source = watched(ROOT / name)
    chosen = Choice().selection()
    with open_source([str(ROOT / name)]) as trace:
        report = json.loads(json_reporter.render(diagnose(trace)))
    metrics = report["metrics"]
    assert json.loads(msgspec.json.encode(count(source.sums, chosen))) == metrics
    told = dict(
        re.findall(r'data-tile="(\w+)"><b>(.*?)</b>', words.tiles(count(source.sums, chosen)))
    )
    keys = ("exact_hit_rate", "fallback_rate", "padding_ratio", "step_ms_mean", "step_ms_p99")
    for tile, key in zip(("exact", "fallback", "padding", "mean", "p99"), keys, strict=True):
        assert (told[tile] == "n/a") == (metrics[key] is None), key
    here = find(source.sums, source.name, chosen)
    for case, card in zip(report["cases"], case_cards(here.report), strict=True):
        assert case["case"] in card.title
        if card.figures[1][0] == "n/a":
            assert case["ms_per_step"] is None, case["case"]


@pytest.mark.parametrize("text", ["0", "-3", "abc", "13.5", "1048577", "9" * 30])
def test_what_is_no_size_is_refused_with_a_word(text):
    with pytest.raises(ValueError, match="from 1 to 1,048,576"):
        read_size(text)
    assert read_size("13") == 13


def test_a_single_file_is_read_once():
    practice = watched(ROOT / "sample_traces" / "practice.parquet")
    assert not practice.grows
    assert practice.version == 1


def test_the_list_is_priced_and_graphs_captured_before_a_stretch_take_memory_in_it():
    practice = ROOT / "sample_traces" / "practice.parquet"
    first = found(practice).first_ns
    some = found(practice, window=TimeRange(first + 10 * 10**9, first + 20 * 10**9))
    now, then = some.buckets.priced(some.buckets.current), some.buckets.priced([1, 4, 8, 12, 32])
    assert some.buckets.current == [1, 4, 8, 16, 32]
    assert then.plan.memory_mib == pytest.approx(now.plan.memory_mib)
    assert then.flags["vllm"] == "--cudagraph-capture-sizes 1 4 8 12 32"
    assert some.buckets.most_padded(2) == sorted(some.buckets.most_padded(2))
    told = words.edited(now, then, some.buckets.notes)
    assert "not identifiable" not in told
    assert "eager step costs" in told
    empty = some.buckets.priced([])
    assert (empty.plan.buckets, empty.flags) == ([], {})
    assert empty.remarks


def test_a_recording_that_has_only_begun_is_waited_for(tmp_path):
    path = folder(tmp_path / "t", tail_a=b"")
    with watching([str(path)]) as watcher:
        (source,) = watcher.sources
        assert source.version == 0
        assert "Waiting" in words.status(source.name, None, None, grows=source.grows)
        write_part(path / "part-b.parquet", table([step(9, 16, dur_ns=MS)]).to_batches())
        source.refresh()
        assert (source.version, source.error) == (1, None)
        (path / "part-b.parquet").rename(tmp_path / "elsewhere")
        (path / "_tail-a.arrow").unlink()
        source.refresh()
        assert source.error
        assert source.error in words.status(source.name, None, source.error, grows=True)


def test_a_log_is_read_once(tmp_path):
    log = ROOT / "tests" / "data" / "logs" / "sglang_0.5.9.log"
    with watching([str(log)]) as watcher:
        assert not watcher.sources[0].grows
        assert watcher.sources[0].version == 1
        assert "read once" in words.status("x", found(log), None, grows=False)


def test_what_is_no_source_is_refused_before_a_page_is_served(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.txt").write_text("no trace")
    for path in ("nothing.parquet", "other"):
        with pytest.raises(GraphdiagError), watching([str(tmp_path / path)]):
            pass


def test_an_empty_folder_waits_for_a_recording(tmp_path):
    with watching([str(tmp_path)]) as watcher:
        (source,) = watcher.sources
        assert (source.version, source.error) == (0, None)
        write_part(tmp_path / "part-a.parquet", table([step(9, 16, dur_ns=MS)]).to_batches())
        source.refresh()
        assert source.version == 1
