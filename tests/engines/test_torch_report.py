"""Reports on recordings that the torch collector made of the real torch, on the CPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from graphdiag.diagnosis import diagnose
from graphdiag.findings import AuditFinding, Case, Report
from graphdiag.trace import open_trace
from tests.engines.test_torch import PYTHON, ROOT, STEP, folder, pytestmark, run

__all__ = ["folder", "pytestmark"]  # pytest takes them from here

LOOP_HEAD = """
import json, os, time
from graphdiag_collectors import Recorder, torch_hooks
recorder = Recorder(os.environ["GRAPHDIAG_TRACE"])
torch_hooks.install(recorder)
import torch
"""
LOOP = (
    STEP
    + """
def decode(sizes):
    for rows in sizes:
        before = torch_hooks.compiles()
        with recorder.step(requested=rows) as one:
            compiled(torch.randn(rows, 4))
            one.set(compile_ns=torch_hooks.compiles_since(before)[1])
"""
)


def report(folder: Path) -> Report:
    return diagnose(open_trace(folder))


def finding(found: Report, kind: str) -> AuditFinding:
    (one,) = [each for each in found.audit if each.kind == kind]
    return one


def case(found: Report, name: str) -> Case:
    (one,) = [each for each in found.cases if each.case == name]
    return one


def test_a_plain_program_at_its_limit(folder: Path) -> None:
    run(folder, STEP + "\nfor rows in range(1, 13):\n    compiled(torch.randn(rows))\n")
    found = report(folder)
    assert found.steps == 0
    assert found.engine["name"] == "torch"
    assert found.verdict.case == "fallback"
    assert "step <string>:7 reached torch's recompile_limit at" in found.verdict.sentence
    assert case(found, "shapes").evidence == [
        "Recompiled 7 times: step <string>:7, such as for tensor 'x' size mismatch at index 0. "
        "expected 7, actual 8"
    ]
    assert finding(found, "recompile_limit").severity == "warn"
    assert found.metrics.compile_count == 8


def test_what_was_compiled_before_the_limit_still_runs_compiled(folder: Path) -> None:
    script = """
    ran = []
    def backend(graph, inputs):
        def compiled(*arguments):
            ran.append(len(arguments[0]))
            return graph(*arguments)
        return compiled
    def step(x):
        return x * 2 + 1
    compiled = torch.compile(step, dynamic=False, backend=backend)
    for rows in (*range(1, 13), 3, 12):
        compiled(torch.randn(rows))
    print(json.dumps(ran))
    """
    assert run(folder, script) == [1, 2, 3, 4, 5, 6, 7, 8, 3]
    assert "what its compiled versions do not fit runs eager" in report(folder).verdict.sentence


def loop(folder: Path, script: str) -> Report:
    run(folder, LOOP + script + "\nrecorder.close()\n", head=LOOP_HEAD)
    return report(folder)


def test_a_loop_counts_the_steps_after_the_limit(folder: Path) -> None:
    script = """
decode(1 + i % 4 for i in range(300))
decode(1 + i % 13 for i in range(300))
decode(1 + i % 4 for i in range(300))
"""
    found = loop(folder, script)
    assert found.steps == 900
    one = finding(found, "recompile_limit")
    assert one.severity == "error"
    # Size 9 comes ninth of the second three hundred, and is refused in its own step.
    assert one.data["frames"][0]["steps_after"] == 900 - 309
    # Of the eight versions, the first came before the first step had ended.
    assert found.verdict.case in ("shapes", "compile")
    (told,) = [text for text in case(found, "shapes").evidence if text.startswith("Recompiled")]
    assert told.startswith("Recompiled 7 times: step <string>:8, such as for tensor 'x' size")
    assert any("mark_dynamic" in text for text in case(found, "fallback").advice)


def test_a_reset_ends_the_limit(folder: Path) -> None:
    script = """
decode(range(1, 11))
time.sleep(0.01)
torch._dynamo.reset()
decode([4] * 50)
"""
    found = loop(folder, script)
    (frame,) = finding(found, "recompile_limit").data["frames"]
    assert frame["until_ns"] is not None
    assert frame["steps_after"] == 1  # size 10; size 9 reached the limit


def test_graphs_replayed_outside_steps_are_told(folder: Path) -> None:
    script = """
    class Graph:  # a real one needs a device: our wrapper around a method that does nothing
        replay = torch_hooks._installed.graphs._wrap_replay(lambda graph: None)
    graph = Graph()
    torch_hooks.name_graph(graph, "decode/16", size=16)
    for _ in range(40):
        graph.replay()
    """
    run(folder, script)
    found = report(folder)
    assert found.verdict.sentence == (
        "No verdict: the source holds no step, only 40 graph replays."
    )
    assert [(row.artifact, row.replays) for row in found.artifacts] == [("decode/16", 40)]
    assert any(note.startswith("40 graph replays happened outside") for note in found.notes)


def test_inductor_without_cuda_graphs_is_told(folder: Path) -> None:
    script = """
    compiled = torch.compile(lambda x: (x * 2).sum(), mode="reduce-overhead")
    compiled(torch.randn(8))
    """
    run(folder, script)
    one = finding(report(folder), "cudagraph_skip")
    assert one.severity == "warn"
    assert one.data["times"] == 1


def test_the_example_is_recorded_whole(tmp_path: Path) -> None:
    out = tmp_path / "recorded.parquet"
    example = ROOT / "examples" / "decode_loop.py"
    options = ["--how", "compile", "--backend", "eager", "--steps", "300", "-o", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collectors"), "OMP_NUM_THREADS": "1"}
    environment.pop("GRAPHDIAG_TRACE", None)
    done = subprocess.run(
        [PYTHON, str(example), *options], env=environment, capture_output=True, timeout=170
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = report(out)
    assert found.metrics.eligible_steps > 250
    # What an eager step costs beside a compiled one is a matter of microseconds here: the rates are
    # what is certain, and the ceiling.
    assert found.metrics.fallback_rate > 0
    assert found.metrics.padding_ratio > 0
    assert finding(found, "ceiling").data["largest_bucket"] == 16
    assert not [one for one in found.audit if one.kind == "recompile_limit"]
