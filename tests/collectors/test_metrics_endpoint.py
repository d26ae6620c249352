"""The Prometheus endpoint: what a scrape says while a recorder records, and what goes wrong."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from graphdiag_collectors import Recorder, metrics_endpoint
from graphdiag_collectors.live_totals import (
    METRICS,
    OTHER,
    REQUESTED,
    STEPS,
    SYNTHETIC,
    TIMES,
    LiveTotals,
    Metric,
)
from graphdiag_collectors.metrics_endpoint import Endpoint, parse_address, serve
from graphdiag_collectors.schema import HOOK_OFF, arrow_schema
from graphdiag_collectors.writer import Writer
from tests.collectors.rows import read, steps

pytest.importorskip("prometheus_client", reason="needs the extra [metrics]")
from prometheus_client.parser import text_string_to_metric_families

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana-dashboard.json"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def get(url: str | None) -> str:
    assert url is not None
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())


def scrape(endpoint: Endpoint | None) -> Series:
    """Every sample of a scrape, by name and labels."""
    assert endpoint is not None
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(endpoint.url))
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, frozenset({"rank": "3", **labels}.items())))


def named(series: Series, name: str) -> list[float]:
    return [value for (sample, _), value in series.items() if sample == name]


def by_label(totals: LiveTotals, metric: Metric) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in totals.read(metric)}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema())


def gone(url: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            get(url)
        except OSError:  # refused, or reset where it was being closed
            return True
        time.sleep(0.02)
    return False


def test_counters_are_exact_while_steps_are_recorded(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    draft = recorder.channel(runner="draft", phase="decode")
    for _ in range(1000):
        with recorder.step(requested=9) as step:
            step.replayed(bucket=16, artifact="decode/16", mode="full")
    recorder.record(8, 8, mode="full", dur_ns=4_000_000)
    recorder.record(700, outcome="fallback", reason="over_max", mode="eager", dur_ns=30_000_000)
    recorder.record(4, 8, mode="full", weight=10, dur_ns=50_000_000)
    draft.record(1, 2, mode="piecewise")
    recorder.flush()
    first = scrape(endpoint)
    ran = {"runner": "target", "phase": "decode"}
    name = "graphdiag_steps_total"
    full = {**ran, "mode": "full", "reason": ""}
    assert value(first, name, **full, outcome="padded") == 1010
    assert value(first, name, **full, outcome="exact") == 1
    fell = {**ran, "mode": "eager", "reason": "over_max", "outcome": "fallback"}
    assert value(first, name, **fell) == 1
    assert sum(named(first, name)) == 1013
    assert value(first, "graphdiag_requested_rows_total", **ran) == 9000 + 8 + 40
    assert value(first, "graphdiag_padded_rows_total", **ran) == 7000 + 40
    drafted = {"runner": "draft", "phase": "decode"}
    assert value(first, "graphdiag_padded_rows_total", **drafted) == 1
    assert value(first, "graphdiag_dropped_rows_total") == 0
    recorder.record(700, outcome="fallback", reason="over_max", mode="eager", dur_ns=30_000_000)
    recorder.record(requested=-1)
    recorder.flush()
    second = scrape(endpoint)
    assert value(second, name, **fell) == 2
    assert value(second, "graphdiag_dropped_rows_total") == 1


def test_step_times_are_a_histogram_of_steps_not_of_rows(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    for dur_ns in (4_000_000, 4_000_001, 2_000_000_000):
        recorder.record(8, 8, dur_ns=dur_ns)
    recorder.record(8, 8, weight=10, dur_ns=50_000_000)
    recorder.record(8, 8)  # how long it took is not known
    recorder.flush()
    series = scrape(endpoint)
    labels = {"runner": "target", "phase": "decode", "outcome": "exact"}

    def at(bound: str) -> float | None:
        return value(series, "graphdiag_step_seconds_bucket", **labels, le=bound)

    assert (at("0.003"), at("0.004"), at("0.005"), at("1.0"), at("+Inf")) == (0, 1, 12, 12, 13)
    assert value(series, "graphdiag_step_seconds_count", **labels) == 13
    total = value(series, "graphdiag_step_seconds_sum", **labels)
    assert total == pytest.approx(0.004 + 0.004000001 + 2 + 0.05)


def test_captures_compiles_and_hooks_that_switched_off(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    recorder.capture(artifact="a", size=8, dur_ns=500_000_000)
    recorder.capture(weight=0, dur_ns=1_500_000_000)
    recorder.compile(artifact="b", dur_ns=3_000_000_000, cache="miss")
    recorder.compile(artifact="c", cache="hit", weight=4)
    recorder.mark(HOOK_OFF, {"hook": "vllm.dispatch", "failures": 3, "last": "KeyError"})
    recorder.mark("weights reloaded")
    recorder.flush()
    series = scrape(endpoint)
    assert value(series, "graphdiag_captures_total") == 1
    assert value(series, "graphdiag_capture_seconds_total") == 2
    assert value(series, "graphdiag_compiles_total", cache="miss") == 1
    assert value(series, "graphdiag_compiles_total", cache="hit") == 4
    assert value(series, "graphdiag_compile_seconds_total") == 3
    assert value(series, "graphdiag_hook_failures_total") == 3


def test_failures_of_hooks_that_are_still_on_are_asked_for(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphdiag_collectors import control

    told = {"collectors": {"vllm": {"failures": {"a": 2, "b": 1}}, "sglang": {"error": "no"}}}
    monkeypatch.setattr(control, "answer", lambda question: {"ok": True, **told})
    endpoint = serve(recorder)
    assert value(scrape(endpoint), "graphdiag_hook_failures_total") == 3
    told["collectors"].clear()  # detached: a counter does not go down
    assert value(scrape(endpoint), "graphdiag_hook_failures_total") == 3


def test_synthetic_steps_are_counted_apart(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    recorder.record(9, 16, kind="dummy", dur_ns=5)
    recorder.record(9, 16, kind="warmup", dur_ns=5)
    recorder.record(9, 16, kind="warmup", dur_ns=5)
    recorder.flush()
    series = scrape(endpoint)
    name = "graphdiag_synthetic_steps_total"
    assert value(series, name, runner="target", kind="dummy") == 1
    assert value(series, name, runner="target", kind="warmup") == 2
    assert {sample for sample, _ in series if "step" in sample or "rows" in sample} == {
        name,
        "graphdiag_dropped_rows_total",
    }


def test_ten_thousand_artifacts_and_kinds_are_a_handful_of_series(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    before = len(scrape(endpoint))
    for index in range(10_000):
        recorder.record(9, 16, artifact=f'decode/{index}"\n\\')
    for index in range(1000):
        recorder.record(9, 16, kind=f'kind"{index}\n', reason=f'reason\\"{index}\n')
    recorder.flush()
    series = scrape(endpoint)
    assert len(series) - before == 4  # steps, synthetic steps, requested and padded rows
    steps_by_kind = named(series, "graphdiag_synthetic_steps_total")
    assert steps_by_kind == [1000]
    assert sum(named(series, "graphdiag_steps_total")) == 10_000


def test_no_hostile_word_becomes_a_label() -> None:
    totals = LiveTotals()
    evil = 'x"} 1\nother{a="'
    words = dict.fromkeys(("runner", "phase", "mode", "outcome", "reason"), evil)
    totals.add(batch({"event": "step", "weight": 2, "requested": 1, "bucket": 1, **words}))
    totals.add(batch({"event": "step", "kind": evil, "runner": evil}))
    assert by_label(totals, STEPS) == {(OTHER,) * 5: 2}
    assert by_label(totals, SYNTHETIC) == {(OTHER, OTHER): 1}


def test_counters_never_go_down_nor_become_nan() -> None:
    totals = LiveTotals()
    bad = {"event": "step", "runner": "target", "outcome": "exact"}
    totals.add(batch({**bad, "weight": -5, "dur_ns": -7, "requested": 8, "bucket": 8}))
    totals.add(batch({**bad, "weight": 0, "dur_ns": 10, "requested": 0, "bucket": 8}))
    totals.add(batch({**bad, "weight": 2**62, "dur_ns": 2**62, "requested": 8, "bucket": 8}))
    totals.add(batch({"event": "capture", "dur_ns": -5}, {"event": "mark", "kind": HOOK_OFF}))
    for metric in METRICS:
        for sample in totals.read(metric):
            assert sample.value >= 0
            assert all(count >= 0 for count in sample.counts)
    assert by_label(totals, STEPS) == {("target", "", "", "exact", ""): 2**62}
    assert by_label(totals, REQUESTED) == {("target", ""): 2**65}
    (timed,) = totals.read(TIMES)
    assert sum(timed.counts) == 2**62


def test_an_empty_batch_and_one_of_nothing_but_events() -> None:
    totals = LiveTotals()
    totals.add(batch())
    totals.add(batch({"event": "run", "config": "{}"}, {"event": "memory"}))
    assert by_label(totals, STEPS) == {}


def test_a_port_in_use_gives_the_next_one(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((metrics_endpoint.LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        endpoint = serve(recorder, taken)
        assert endpoint is not None
        assert endpoint.url is not None
        port = int(endpoint.url.split(":")[2].split("/")[0])
        assert taken < port <= taken + metrics_endpoint.MORE_PORTS
        assert "graphdiag_steps_total" in get(endpoint.url)
    said = capsys.readouterr().err
    assert said.startswith(f"graphdiag: metrics on {endpoint.url} (rank 3, pid ")


def test_no_port_free_is_one_sentence(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_endpoint, "MORE_PORTS", 0)
    with socket.create_server((metrics_endpoint.LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        assert serve(recorder, taken) is None
    assert capsys.readouterr().err == (
        f"graphdiag: no metrics endpoint (ports {taken} to {taken} of 127.0.0.1 are all in use); "
        "recording goes on\n"
    )


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.7", 0), ("no such host", 0)]
)
def test_an_address_that_cannot_be_had_is_one_sentence(
    recorder: Recorder, folder: Path, capsys: pytest.CaptureFixture[str], host: str, port: int
) -> None:
    assert serve(recorder, port, host) is None
    said = capsys.readouterr().err
    assert re.fullmatch(r"graphdiag: no metrics endpoint \([^\n]+\); recording goes on\n", said), (
        said
    )
    recorder.record(1, 1)
    recorder.flush()
    assert len(steps(folder)) == 1


def test_the_environment_opens_one_which_counts_from_the_first_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(metrics_endpoint.METRICS_VARIABLE, "localhost:0")
    with Recorder(folder, rank=3) as recorder:
        recorder.record(9, 16)
        recorder.flush()
        (endpoint,) = recorder._writer.observers
        assert isinstance(endpoint, Endpoint)
        deadline = time.monotonic() + 10
        while endpoint.url is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sum(named(scrape(endpoint), "graphdiag_steps_total")) == 1
        url = endpoint.url
    assert url is not None
    assert gone(url)
    assert f"metrics on {url}" in capsys.readouterr().err


@pytest.mark.parametrize("told", ["abc", "host:", ":9400", "1:2:3", "70000", "-1", "[::1", "9400x"])
def test_a_bad_setting_is_one_sentence_and_recording_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: str
) -> None:
    monkeypatch.setenv(metrics_endpoint.METRICS_VARIABLE, told)
    with Recorder(folder) as recorder:
        recorder.record(1, 1)
    assert len(steps(folder)) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"GRAPHDIAG_METRICS={told!r} is not [host:]port" in said


def test_addresses() -> None:
    assert parse_address("9400") == ("127.0.0.1", 9400)
    assert parse_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_address(" [::1]:0 ") == ("::1", 0)


def test_without_the_client_library_recording_goes_on(
    recorder: Recorder,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert serve(recorder, 0) is None
    assert recorder._writer.observers == []
    recorder.record(1, 1)
    recorder.flush()
    assert len(steps(folder)) == 1
    assert capsys.readouterr().err == (
        "graphdiag: no metrics endpoint (prometheus-client is not installed: "
        "pip install 'graphdiag[metrics]'); recording goes on\n"
    )


def test_an_observer_that_fails_is_dropped_and_its_port_freed(
    recorder: Recorder,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    endpoint = serve(recorder)
    assert endpoint is not None
    assert endpoint.url is not None

    def fail(batch: pa.RecordBatch) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(endpoint.totals, "add", fail)
    for size in (1, 2, 3):
        recorder.record(size, size)
        recorder.flush()
    assert [row["requested"] for row in steps(folder)] == [1, 2, 3]
    assert recorder.status().dropped == 0
    assert read(folder, "mark") == []
    assert gone(endpoint.url)
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == [
        "graphdiag: Endpoint was dropped (RuntimeError: no more); recording goes on"
    ]


def test_what_could_not_be_written_is_not_counted_as_a_step(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve(recorder)

    def full(self: Writer) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "_open_tail", full)
    recorder.record(1, 1)
    recorder.flush()
    series = scrape(endpoint)
    assert named(series, "graphdiag_steps_total") == []
    assert value(series, "graphdiag_dropped_rows_total") == 1


def test_a_scrape_that_hangs_up_or_asks_nonsense_does_not_stop_it(
    recorder: Recorder, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint = serve(recorder)
    assert endpoint is not None
    assert endpoint.url is not None
    address = ("127.0.0.1", int(endpoint.url.split(":")[2].split("/")[0]))
    capfd.readouterr()
    for question in (b"", b"\0\xff\n\n", b"GET /metrics HTTP/1.0\r\n", b"x" * 70_000):
        with socket.create_connection(address, timeout=5) as client:
            client.sendall(question)
    assert "graphdiag_steps_total" in get(endpoint.url)
    assert capfd.readouterr().err == ""


_FORKED = """
    import os, sys, time, urllib.request
    # A child that is slow to begin, as on a busy machine.
    os.register_at_fork(after_in_child=lambda: time.sleep(0.2))
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1], rank=0)
    def url():
        while recorder._writer.observers[0].url is None:
            time.sleep(0.01)
        return recorder._writer.observers[0].url
    def steps(url):
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        lines = [line for line in text.splitlines() if line.startswith("graphdiag_steps_total{")]
        return sum(float(line.split()[-1]) for line in lines)
    parent = url()
    recorder.record(1, 1)
    recorder.flush()
    told, tell = os.pipe()
    if os.fork() == 0:
        os.close(tell)
        os.read(told, 1)  # until the parent is done
        try:
            steps(parent)
            print("the parent's port is still open")
        except OSError:
            print("gone")
        for _ in range(3):
            recorder.record(1, 1)
        recorder.flush()
        print(steps(url()), flush=True)
        recorder.close()
        os._exit(0)
    print(steps(parent), flush=True)
    recorder.close()
    while True:
        try:
            steps(parent)
        except OSError:  # also a reset: the port is open until the child has let go of its copy
            break
    os.close(tell)
    os.wait()
"""


def test_a_forked_child_leaves_the_parents_port_and_serves_its_own_rows(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FORKED), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"GRAPHDIAG_METRICS": "0"},
        check=True,
    )
    assert done.stdout.splitlines() == ["1.0", "gone", "3.0"]
    assert done.stderr.count("metrics on http://127.0.0.1:") == 2


def _exported() -> set[str]:
    """Every sample name that a scrape may have."""
    names = {metric.name for metric in METRICS if not metric.timed}
    for metric in METRICS:
        if metric.timed:
            names |= {metric.name + suffix for suffix in ("_bucket", "_count", "_sum")}
    return names


def test_a_scrape_has_the_names_that_the_table_has(recorder: Recorder) -> None:
    endpoint = serve(recorder)
    recorder.record(9, 16, dur_ns=5)
    recorder.record(9, 16, kind="dummy")
    recorder.compile()
    recorder.flush()
    assert {name for name, _ in scrape(endpoint)} == _exported()


def test_the_dashboard_uses_only_what_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 38
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += [v["definition"] for v in variables.values() if v["type"] == "query"]
    used = {name for text in expressions for name in re.findall(r"graphdiag_\w+", text)}
    assert used <= _exported()
    assert {metric.name.removesuffix("_bucket") for metric in METRICS} - used == {TIMES.name}
    labels = {label for metric in METRICS for label in metric.labels} | {"rank", "le", "job"}
    for text in expressions:
        assert text.count("(") == text.count(")")
        grouped = re.findall(r"\bby \(([^)]*)\)", text)
        named_labels = {name.strip() for group in grouped for name in group.split(",")}
        named_labels |= set(re.findall(r'(\w+)=~?"', text))
        assert named_labels <= labels, text
        asked = set(re.findall(r"\$(\w+)", text)) - {"__rate_interval"}
        assert asked <= set(variables), text
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"


def test_the_page_names_every_metric_with_its_labels() -> None:
    page = (DOCS / "prometheus.md").read_text()
    for metric in METRICS:
        labels = f"`{', '.join(metric.labels)}`" if metric.labels else ""
        assert re.search(rf"^\| `{metric.name}` \| {re.escape(labels)} *\|", page, re.M), (
            metric.name
        )
