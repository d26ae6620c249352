"""The bundled engine on the real torch: its modes agree, and reports name its faults.

All plans run in one process, one after the other, on compilers that generate no code: what is to be
seen is how the engine dispatches and records. Only the fallback trap needs code that is faster than
eager, and so a real compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphdiag.diagnosis import diagnose
from graphdiag.findings import AuditFinding, Report
from graphdiag.trace import open_trace
from tests.collectors.rows import Row, read
from tests.engines.test_torch import PYTHON, ROOT, pytestmark

__all__ = ["pytestmark"]  # pytest takes it from here

SIZE = {
    **{"layers": 2, "hidden": 32, "heads": 2, "words": 128, "max_context": 64},
    **{"max_requests": 16, "token_budget": 48, "block_tokens": 8},
}
SCRIPT = """
import os, signal, sys, threading, torch
from graphdiag.experiment.engine.__main__ import main
for name in sys.argv[1:]:
    torch._dynamo.reset()
    path = os.environ["PATH"]
    if name == "no_compiler":
        os.environ["PATH"] = ""
    if name == "stopped":
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    if name.startswith("cuda"):  # the last ones
        from tests.engines import cuda_standin
        cuda_standin.install()
    code = main([name + ".json", name + ".result.json"])
    os.environ["PATH"] = path
    print(name, code, flush=True)
"""
CODES = {"no_gpu": 2, "no_compiler": 2, "no_backend": 2, "stopped": 130}


def requests(batches: list[int], output: int = 6, prompt: int = 9) -> list[dict[str, Any]]:
    """Batches of so many requests one after the other: each decodes ``output`` - 1 steps."""
    made, step = [], 0
    for batch in batches:
        made += [{"at": 0, "prompt_tokens": prompt, "output_tokens": output, "step": step}] * batch
        step += output + -(-batch * prompt // SIZE["token_budget"])
    return made


VARIED = requests([1, 2, 3, 5, 8, 9, 12, 16, 4, 7, 16, 1] * 4)


def plan(mode: str, **changes: Any) -> dict[str, Any]:
    base = {"mode": mode, "requests": VARIED, "buckets": [4, 16], "size": SIZE}
    return {**base, "compiler": "eager", **changes}


LONG = [{"at": 0, "prompt_tokens": 240, "output_tokens": 1, "step": 0}]


PLANS = {
    "eager": plan("eager"),
    "compiled": plan("compiled", piecewise=[16]),
    "graphs": plan("graphs"),
    "piecewise": plan("graphs", piecewise=[16, 48]),
    "aot": plan("graphs", compiler="aot_eager"),
    "crowded": plan("eager", size={**SIZE, "block_tokens": 4, "cache_blocks": 16}),
    "eager_reload": plan("eager", reload_step=100),
    "reload": plan("graphs", reload_step=100),
    "no_warmup": plan("graphs", faults=["no_warmup"]),
    "recompiling_shape": plan("compiled", faults=["recompiling_shape"]),
    "doubling_ladder": plan(
        "graphs",
        faults=["doubling_ladder"],
        size={**SIZE, "max_requests": 32, "hidden": 128, "max_context": 256},
        # One long request makes the block tables wide, and so a padded row dear.
        requests=[*LONG, *requests([17, 16, 17, 8, 17, 32, 17, 4] * 2, output=8)],
    ),
    "smallest_first": plan("graphs", faults=["smallest_first"]),
    "stale_key": plan("graphs", faults=["stale_key"], reload_step=100),
    "unwarmed_shape": plan(
        "graphs", faults=["unwarmed_shape"], requests=requests([3, 2, 4, 1] * 6 + [12, 16] * 4)
    ),
    "no_gpu": plan("graphs", device="cuda"),
    "no_compiler": plan("compiled", compiler="inductor"),
    "no_backend": plan("compiled", compiler="typo"),
    "stopped": plan(
        "eager", requests=[{**one, "at": 600 * (one["step"] > 0), "step": None} for one in VARIED]
    ),
    "cuda": plan("graphs", piecewise=[16, 48]),
    "cuda_stale": plan("graphs", faults=["stale_key"], reload_step=100),
    "cuda_reload": plan("graphs", piecewise=[48], reload_step=100),
}


def environment(folder: Path, **variables: str) -> dict[str, str]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "collectors")))
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    given = {**os.environ, **inductor, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}
    given.pop("GRAPHDIAG_TRACE", None)
    return given


class Ran:
    """What became of the plans, in a folder."""

    def __init__(self, folder: Path, plans: dict[str, dict[str, Any]], **variables: str) -> None:
        self.folder = folder
        self.reports: dict[str, Report] = {}
        for name, one in plans.items():
            told = {**one, "trace": str(folder / f"{name}.parquet")}
            (folder / f"{name}.json").write_text(json.dumps(told))
        done = subprocess.run(
            [PYTHON, "-c", SCRIPT, *plans],
            cwd=folder,
            env=environment(folder, **variables),
            capture_output=True,
            text=True,
            timeout=170,
        )
        codes = [f"{name} {CODES.get(name, 0)}" for name in plans]
        assert done.stdout.splitlines() == codes, done.stderr
        self.errors = done.stderr.splitlines()

    def result(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / f"{name}.result.json").read_text())
        return told

    def report(self, name: str) -> Report:
        if name not in self.reports:
            self.reports[name] = diagnose(open_trace(self.folder / f"{name}.parquet"))
        return self.reports[name]

    def rows(self, name: str, event: str) -> list[Row]:
        return [row for row in read(self.folder / f"{name}.parquet") if row["event"] == event]

    def finding(self, name: str, kind: str) -> AuditFinding:
        (one,) = [each for each in self.report(name).audit if each.kind == kind]
        return one


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("experiment"), PLANS)


def test_all_modes_sample_the_same_tokens(ran: Ran) -> None:
    names = ("eager", "compiled", "graphs", "piecewise", "aot", "crowded", "no_warmup", "cuda")
    digests = {name: ran.result(name)["tokens_digest"] for name in names}
    assert len(set(digests.values())) == 1, digests
    assert ran.result("graphs")["tokens_out"] == sum(one["output_tokens"] for one in VARIED)


def test_a_healthy_run_is_called_so(ran: Ran) -> None:
    for name in ("graphs", "piecewise"):
        found = ran.report(name)
        kinds = {one.kind for one in found.audit if one.severity != "info"}
        assert not kinds, found.audit
        assert found.metrics.fallback_rate == 0


def test_every_step_is_recorded_with_what_it_was(ran: Ran) -> None:
    steps = ran.rows("graphs", "step")
    result = ran.result("graphs")
    assert len(steps) == result["steps"]
    assert sum(step["tokens_out"] for step in steps) == result["tokens_out"]
    for step in steps:
        assert min(step["dispatch_ns"], step["host_ns"], step["kv_tokens"]) > 0
        assert step["mode"] == ("compiled" if step["phase"] == "decode" else "eager")
        if step["phase"] == "decode":
            assert step["artifact"] == f"full/{step['bucket']}"
            assert step["outcome"] in ("exact", "padded")
        else:
            assert step["outcome"] == "eager"
    assert {step["outcome"] for step in ran.rows("eager", "step")} == {"eager"}
    assert {step["mode"] for step in ran.rows("compiled", "step")} == {"compiled"}


def test_mixed_batches_replay_piecewise(ran: Ran) -> None:
    served = {step["artifact"] for step in ran.rows("piecewise", "step")}
    assert {"piecewise/16", "piecewise/48", "full/4"} <= served
    (config,) = [json.loads(row["config"]) for row in ran.rows("piecewise", "run")][-1:]
    assert config["mode"] == "FULL_AND_PIECEWISE"
    assert config["graphs_off"] == []


def test_captures_carry_key_and_identity_largest_first(ran: Ran) -> None:
    captures = ran.rows("graphs", "capture")
    assert [row["size"] for row in captures] == [16, 4]
    assert {row["kind"] for row in captures} == {"static_compile"}
    for row in captures:
        key, identity = json.loads(row["key"]), json.loads(row["identity"])
        assert key == {"mode": "full", "size": row["size"], **identity}
    for row in ran.rows("compiled", "compile"):
        assert json.loads(row["identity"])["weights"] == identity["weights"]
        assert json.loads(row["key"])["frame"]
    assert [row["pool_bytes"] for row in captures] == [16 * 32 * 4, 0]
    assert ran.result("graphs")["graph_bytes"] == 16 * 32 * 4


def test_requests_are_recorded(ran: Ran) -> None:
    found = ran.rows("crowded", "request")
    assert len(found) == len(VARIED)
    assert sum(step["preempted"] or 0 for step in ran.rows("crowded", "step")) > 0
    for row in found:
        assert row["tokens_in"] == 9
        assert row["tokens_out"] == 6
        assert 0 <= row["queued_ns"] <= row["ttft_ns"] <= row["dur_ns"]


def test_new_weights_get_new_artifacts(ran: Ran) -> None:
    assert ran.result("reload")["tokens_digest"] == ran.result("eager_reload")["tokens_digest"]
    assert ran.result("reload")["tokens_digest"] != ran.result("graphs")["tokens_digest"]
    assert len(ran.rows("reload", "capture")) == 4
    kinds = {one.kind for one in ran.report("reload").audit}
    assert not kinds & {"stale_artifact", "capture_order"}


def test_compile_inside_the_measurement(ran: Ran) -> None:
    assert ran.report("no_warmup").verdict.case == "compile"
    assert ran.finding("no_warmup", "never_warmed").severity == "error"


def test_a_recompiling_shape_at_its_limit(ran: Ran) -> None:
    assert ran.finding("recompiling_shape", "recompile_limit").severity == "error"
    assert ran.report("recompiling_shape").verdict.case in ("shapes", "fallback")


def test_a_doubling_ladder(ran: Ran) -> None:
    found = ran.report("doubling_ladder")
    assert found.verdict.case == "padding"
    (case,) = [one for one in found.cases if one.case == "padding"]
    assert any("asked for 17 and replayed 32" in text for text in case.evidence)


def test_captures_smallest_first(ran: Ran) -> None:
    one = ran.finding("smallest_first", "capture_order")
    assert one.data["sizes"] == [4, 16]
    assert ran.result("smallest_first")["graph_bytes"] == (4 + 16) * 32 * 4


def test_a_stale_artifact(ran: Ran) -> None:
    found = [one for one in ran.report("stale_key").audit if one.kind == "stale_artifact"]
    assert len(found) == 2
    assert all(one.severity == "error" for one in found)
    assert found[0].data["influences"] == ["weights"]
    assert ran.result("stale_key")["tokens_digest"] != ran.result("reload")["tokens_digest"]


def test_a_shape_that_warm_up_missed(ran: Ran) -> None:
    one = ran.finding("unwarmed_shape", "never_warmed")
    assert (one.severity, one.data["steps"]) == ("error", 1)
    assert "full/16" in {step["artifact"] for step in ran.rows("unwarmed_shape", "step")}


def test_what_a_machine_lacks_is_said_in_a_sentence(ran: Ran) -> None:
    told = [line for line in ran.errors if line.startswith("error: ")]
    assert len(told) == 3
    assert told[0].startswith("error: the plan asks for a GPU, and torch finds none")
    assert told[1].endswith("install g++ (Debian: apt-get install g++), or name one in CXX.")
    assert told[2].startswith("error: torch.compile with typo failed (Invalid backend: 'typo'")
    for name in ("no_gpu", "no_compiler"):
        assert not (ran.folder / f"{name}.parquet").exists()


def test_a_run_that_is_stopped_is_whole_so_far(ran: Ran) -> None:
    result = ran.result("stopped")
    assert result["interrupted"]
    assert len(ran.rows("stopped", "step")) == result["steps"] > 0
    assert not list((ran.folder / "stopped.parquet").glob("_*"))


def test_cuda_graphs_are_captured_and_replayed(ran: Ran) -> None:
    captures = ran.rows("cuda", "capture")
    # A piecewise artifact is a graph before, between and after the attention of two layers.
    assert [(row["artifact"], row["size"]) for row in captures] == [
        *[("piecewise/48", 48)] * 3,
        *[("piecewise/16", 16)] * 3,
        *[("full/16", 16), ("full/4", 4)],
    ]
    assert {row["kind"] for row in captures} == {"cuda_graph"}
    for row in captures:
        assert json.loads(row["key"])["size"] == row["size"]
        assert json.loads(row["identity"])["weights"]
    steps = ran.rows("cuda", "step")
    assert {(step["mode"], step["replays"]) for step in steps} == {("full", 1), ("piecewise", 3)}
    assert all(step["graph_launch_ns"] for step in steps)


def test_cuda_graphs_know_their_weights_by_address(ran: Ran) -> None:
    assert ran.result("cuda_reload")["tokens_digest"] == ran.result("reload")["tokens_digest"]
    assert ran.result("cuda_stale")["tokens_digest"] == ran.result("stale_key")["tokens_digest"]


TINY = {
    **{"layers": 2, "hidden": 16, "heads": 1, "words": 64, "max_context": 208},
    **{"max_requests": 32, "token_budget": 64},
}
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
OUTPUT = 200
LEVEL = 4.8
"""Batch that the traffic of the trap holds while it replays; the ceiling is 8."""


def trap_plan(requests: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{"mode": "graphs", "requests": requests, "buckets": [4, 8, 32], "size": TINY},
        "faults": ["low_ceiling"],
        "by_cpu_time": True,
    }


def arrivals(rate: float, burst_at: float, burst: int, seconds: float) -> list[dict[str, Any]]:
    times = [*np.arange(0, seconds, 1 / rate), *[burst_at] * burst]
    return [{"at": at, "prompt_tokens": 4, "output_tokens": OUTPUT} for at in sorted(times)]


def rate_that_holds(steps: list[Row]) -> float:
    """Requests per second at which a replaying engine runs LEVEL of them at once."""
    begun = np.array([step["t_ns"] for step in steps])
    replays = np.array([step["bucket"] == 8 for step in steps])
    step_s = float(np.median(np.diff(begun)[replays[:-1] & replays[1:]])) / 1e9
    return LEVEL / (OUTPUT * step_s)


def test_a_ceiling_below_the_batch_limit_and_a_burst(tmp_path: Path) -> None:
    fixed = [
        {"at": 0, "prompt_tokens": 4, "output_tokens": OUTPUT, "step": 0 if number < 8 else 300}
        for number in range(20)
    ]
    folder = tmp_path / "calibrated"
    folder.mkdir()
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **QUICK}
    calibrated = Ran(folder, {"fixed": trap_plan(fixed)}, **cache)
    rate = rate_that_holds(calibrated.rows("fixed", "step"))
    kinds: set[str] = set()
    for attempt in range(3):  # the machine may be faster or slower by now
        folder = tmp_path / str(attempt)
        folder.mkdir()
        one = Ran(folder, {"trap": trap_plan(arrivals(rate, 0.6, 14, 2.5))}, **cache)
        kinds = {each.kind for each in one.report("trap").audit if each.severity == "error"}
        if "fallback_trap" in kinds:
            break
    assert {"ceiling", "fallback_trap"} <= kinds
    assert one.report("trap").verdict.case == "fallback"
