"""The collector in the real SGLang 0.5.23 on a CPU, in child processes.

``GRAPHDIAG_SGLANG_PYTHON`` is a Python that has SGLang, torch for CPUs and transformers. Each
engine takes half a minute to start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphdiag_collectors.profiler_window import PROFILE_WINDOW as PROFILED
from tests.collectors.rows import Row, read, steps

PLUG = Path(__file__).parent / "sglang_plug"
COLLECTORS = Path(__file__).parents[2] / "collectors"
START_SECONDS = 240
ENTRY_POINTS = """[sglang.srt.plugins]
graphdiag = graphdiag_collectors.plugin:sglang
gdtest = gdtest_engine:register
"""
MODEL = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512,
    bos_token_id=1, eos_token_id=2)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""

pytestmark = pytest.mark.slow


class Place(NamedTuple):
    """Where the engines of this module run."""

    python: str
    folder: Path
    model: Path


class Run(NamedTuple):
    """One engine, from start to end."""

    tokens: list[Any]
    truth: list[dict[str, Any]]
    trace: Path
    output: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    python = os.environ.get("GRAPHDIAG_SGLANG_PYTHON")
    if not python:
        pytest.skip("needs GRAPHDIAG_SGLANG_PYTHON, a Python that has SGLang 0.5.23 for CPUs")
    folder = tmp_path_factory.mktemp("sglang")
    info = folder / "plug" / "gdtest-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gdtest\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    model = folder / "model"
    subprocess.run([python, "-c", MODEL, str(model)], check=True, capture_output=True, cwd=folder)
    return Place(python, folder, model)


def start(place: Place, name: str, *task: str, recorded: bool = True, **more: str) -> Any:
    """Start an engine, with the collector loaded as SGLang loads its plugins."""
    paths = [place.folder / "plug", PLUG, COLLECTORS]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "HOME": str(place.folder),
        "GDTEST_OUT": str(place.folder / f"{name}.jsonl"),
        **more,
    }
    for variable in ("GRAPHDIAG_TRACE", "GRAPHDIAG_RUN"):
        environment.pop(variable, None)
    if recorded:
        environment["GRAPHDIAG_TRACE"] = str(place.folder / f"{name}.parquet")
    with (place.folder / f"{name}.out").open("w") as output:
        return subprocess.Popen(
            [place.python, str(PLUG / "gdtest_traffic.py"), str(place.model), *task],
            env=environment,
            cwd=place.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish(place: Place, name: str, process: Any) -> Run:
    """Wait for an engine's end, and return what it did."""
    try:
        code = process.wait(START_SECONDS)
    finally:
        end(process)
    output = (place.folder / f"{name}.out").read_text(errors="replace")
    assert code == 0, output[-3000:]
    (line,) = (line for line in output.splitlines() if line.startswith("TOKENS "))
    return Run(json.loads(line[7:]), truth(place, name), trace(place, name), output)


def end(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def truth(place: Place, name: str) -> list[dict[str, Any]]:
    path = place.folder / f"{name}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def trace(place: Place, name: str) -> Path:
    return place.folder / f"{name}.parquet"


def sizes(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter((row["phase"], row["requested"], row["bucket"]) for row in rows)


def true_sizes(truth: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    phase = {"DECODE": "decode", "EXTEND": "prefill"}
    return Counter((phase[one["mode"]], one["raw"], one["bucket"]) for one in truth)


@pytest.fixture(scope="module")
def runs(place: Place) -> dict[str, Run]:
    """The same traffic without the collector, with it, and with a collector full of faults."""
    plain = finish(place, "plain", start(place, "plain", recorded=False))
    recorded = finish(place, "recorded", start(place, "recorded"))
    moved = str(trace(place, "faults"))
    process = start(place, "faults", "move", moved, GDTEST_FAULTS="1")
    return {"plain": plain, "recorded": recorded, "faults": finish(place, "faults", process)}


def test_the_tokens_are_the_same(runs: dict[str, Run]) -> None:
    assert runs["recorded"].tokens == runs["plain"].tokens
    assert not runs["plain"].trace.exists()


def test_every_step_is_recorded_and_none_twice(runs: dict[str, Run]) -> None:
    run = runs["recorded"]
    found = steps(run.trace)
    assert sizes(found) == true_sizes(run.truth)
    assert {row["kind"] for row in found} == {None}
    assert {row["pid"] for row in found} == {one["pid"] for one in run.truth}
    assert [row["step"] for row in found] == list(range(len(found)))


def test_outcomes_reasons_and_artifacts(runs: dict[str, Run]) -> None:
    found = steps(runs["recorded"].trace)
    decode = [row for row in found if row["phase"] == "decode"]
    for row in decode:
        if row["requested"] > 8:
            told = ("fallback", "over_max", "eager", None, 0)
        else:
            outcome = "exact" if row["requested"] == row["bucket"] else "padded"
            told = (outcome, None, "full", f"decode/{row['bucket']}", 1)
        names = ("outcome", "reason", "mode", "artifact", "replays")
        assert tuple(row[name] for name in names) == told
    assert {row["outcome"] for row in decode} == {"exact", "padded", "fallback"}
    prefill = [row for row in found if row["phase"] == "prefill"]
    assert {(row["outcome"], row["axis"]) for row in prefill} == {("eager", "tokens")}
    tokens = sum(len(one) for batch in runs["recorded"].tokens for one in batch)
    assert sum(row["tokens_out"] for row in decode) >= tokens - 37  # 37 come from the prefills


def test_times_are_those_of_the_steps(runs: dict[str, Run]) -> None:
    found = steps(runs["recorded"].trace)
    assert all(0 < row["host_ns"] <= row["dur_ns"] for row in found)
    graphs = [row for row in found if row["bucket"] is not None]
    assert all(0 < row["graph_launch_ns"] <= row["host_ns"] for row in graphs)
    for before, after in pairwise(found):
        assert before["t_ns"] + before["dur_ns"] <= after["t_ns"] + 1_000_000


def test_captures_have_size_time_and_order(runs: dict[str, Run]) -> None:
    *graphs, rest = read(runs["recorded"].trace, "capture")
    assert [row["artifact"] for row in graphs] == [f"decode/{n}" for n in (8, 4, 2, 1)]
    assert all(row["dur_ns"] > 0 for row in graphs)
    assert (rest["weight"], rest["size"]) == (0, None)
    assert rest["dur_ns"] > 0


def test_the_run_event_tells_what_was_resolved(runs: dict[str, Run]) -> None:
    config = json.loads(read(runs["recorded"].trace, "run")[-1]["config"])
    expected = {
        "engine": "sglang",
        "axis": "requests",
        "mode": "full",
        "capture_sizes": [1, 2, 4, 8],
        "max_num_seqs": 16,
        "request_pool": 16,
        "kv_tokens": 4096,
        "graphs_off": ["prefill", "mixed"],
        "padding": True,
        "device": "cpu",
    }
    assert {name: config[name] for name in expected} == expected
    assert config["engine_version"]
    assert config["hooks"]["missing"] == {}
    assert config["hooks"]["failures"] == {}


def test_faults_change_nothing_for_the_engine(runs: dict[str, Run]) -> None:
    run = runs["faults"]
    assert run.tokens[: len(runs["plain"].tokens)] == runs["plain"].tokens
    assert len(run.tokens) == 2 * len(runs["plain"].tokens)  # it went on without its folder
    moved = run.trace.with_name(run.trace.name + ".moved")
    off = {json.loads(m["config"])["hook"] for m in read(moved, "mark") if m["kind"] == "hook_off"}
    assert off == {"sglang.forward", "sglang.can_run_graph", "sglang.capture"}


def test_a_killed_engine_loses_at_most_its_last_second(place: Place) -> None:
    process = start(place, "killed", "endless")
    try:
        output = place.folder / "killed.out"
        deadline = time.monotonic() + START_SECONDS
        while "GENERATING" not in output.read_text(errors="replace"):
            assert process.poll() is None, output.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        before = len(truth(place, "killed"))
        while len(truth(place, "killed")) < before + 60 and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(1.5)
        (pid,) = {one["pid"] for one in truth(place, "killed")}
        os.kill(pid, signal.SIGKILL)
        killed_ns = time.time_ns()
        time.sleep(0.2)
    finally:
        end(process)
    ran = truth(place, "killed")
    safe = [one for one in ran if one["t_ns"] < killed_ns - 1_000_000_000]
    assert len(safe) >= 60
    found = steps(trace(place, "killed"))
    assert len(safe) <= len(found) <= len(ran)
    expected = [(one["raw"], one["bucket"]) for one in ran]
    assert [(row["requested"], row["bucket"]) for row in found] == expected[: len(found)]


class Obeying:
    """An engine that was started with the plugin off and does what it is told."""

    def __init__(self, place: Place) -> None:
        self.name, self.place = "attached", place
        self.folder = place.folder / "orders"
        self.folder.mkdir()
        # The listening socket's path is short, whatever the temporary folder's is.
        self.sockets = tempfile.mkdtemp(prefix="gd")
        self.process = start(
            *(place, self.name, "obey", str(self.folder)),
            recorded=False,
            XDG_RUNTIME_DIR=self.sockets,
        )
        self._orders = 0
        self._until(lambda: "READY" in self.output())

    def output(self) -> str:
        return (self.place.folder / f"{self.name}.out").read_text(errors="replace")

    def order(self, what: str) -> Callable[[], None]:
        """Have something done, and return what waits for its end."""
        number, self._orders = self._orders, self._orders + 1
        new = self.folder / "new"
        new.write_text(what)
        new.rename(self.folder / f"do-{number}")
        return lambda: self._until((self.folder / f"done-{number}").exists)

    def do(self, what: str) -> list[dict[str, Any]]:
        """Have something done, and return the steps that ran meanwhile."""
        before = len(truth(self.place, self.name))
        self.order(what)()
        return truth(self.place, self.name)[before:]

    def graphdiag(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "graphdiag", *arguments],
            env={**os.environ, "XDG_RUNTIME_DIR": self.sockets},
            capture_output=True,
            text=True,
            check=False,
        )

    def _until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not happened():
            assert self.process.poll() is None, self.output()[-3000:]
            assert time.monotonic() < deadline, self.output()[-3000:]
            time.sleep(0.05)


@pytest.fixture
def obeying(place: Place) -> Iterator[Obeying]:
    engine = Obeying(place)
    try:
        yield engine
    finally:
        end(engine.process)
        shutil.rmtree(engine.sockets)


def test_attach_profile_and_detach(obeying: Obeying) -> None:
    pid = str(obeying.process.pid)
    ran = [obeying.do("generate")]
    done = obeying.graphdiag("attach", pid, "-o", str(trace(obeying.place, obeying.name)))
    assert done.returncode == 0, done.stderr
    ran.append(obeying.do("generate"))
    _profile(obeying, pid, ran)
    done = obeying.graphdiag("status", pid, "--json")
    told = [one for one in json.loads(done.stdout)["processes"] if one["rows"]]
    assert [(one["dropped"], one["last_error"]) for one in told] == [(0, None)]
    done = obeying.graphdiag("detach", pid)
    assert done.returncode == 0, done.stderr
    ran.append(obeying.do("generate"))
    obeying.order("end")
    run = finish(obeying.place, obeying.name, obeying.process)
    assert len(run.tokens) == len(ran)
    assert all(tokens == run.tokens[0] for tokens in run.tokens)
    hooked = [{name for one in phase for name in one["hooked"]} for phase in ran]
    assert hooked[0] == hooked[-1] == set()
    assert {"ModelRunner.forward", "Scheduler.run_batch"} <= hooked[1]
    found = steps(run.trace)
    assert sizes(found) == true_sizes([one for phase in ran[1:-1] for one in phase])
    assert {row["outcome"] for row in found} == {"exact", "padded", "fallback", "eager"}
    profiled = [row for row in found if row["launches"] is not None]
    assert len(profiled) == 7
    assert {(row["launches"], row["gpu_ns"]) for row in profiled} == {(0, None)}
    marks = [json.loads(m["config"]) for m in read(run.trace, "mark") if m["kind"] == PROFILED]
    assert [mark["steps"] for mark in marks] == [7, 0]


def _profile(obeying: Obeying, pid: str, ran: list[list[dict[str, Any]]]) -> None:
    """Profile a few steps; then, with the engine's own profiler on, nothing."""

    def profile(steps: int) -> subprocess.CompletedProcess[str]:
        return obeying.graphdiag("profile", pid, "--steps", str(steps), "--timeout", "60")

    with ThreadPoolExecutor() as pool:
        window = pool.submit(profile, 7)
        while not window.done():  # the first one loads Kineto, before which no step counts
            ran.append(obeying.do("generate"))
            time.sleep(3)
        assert window.result().returncode == 0, window.result().stderr
        obeying.do("start_profile")
        ran.append(obeying.do("generate"))
        refused = profile(7)
        assert refused.returncode == 2
        assert "another profiler runs in it" in refused.stderr
        obeying.do("stop_profile")
        window = pool.submit(profile, 500)
        time.sleep(3)
        obeying.do("start_profile")
        ran.append(obeying.do("generate"))
        assert window.result().returncode == 2
        assert "the engine's own profiler was started" in window.result().stderr
        obeying.do("stop_profile")
    assert len(list(obeying.folder.glob("*.trace.json.gz"))) == 2
