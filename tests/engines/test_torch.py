"""The torch collector in child processes that run the real torch on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.rows import Row, read

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("GRAPHDIAG_TORCH_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="GRAPHDIAG_TORCH_PYTHON names no python that has torch and pyarrow"
    ),
]

HEAD = """
import json, sys
from graphdiag_collectors import torch_hooks
hooks = torch_hooks.install()
import torch
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


def run(folder: Path, script: str, head: str = HEAD, **variables: str) -> Any:
    """Run ``script`` after installing the hooks; return what it printed last, as JSON."""
    environment = {
        **os.environ,
        "GRAPHDIAG_TRACE": str(folder),
        "GRAPHDIAG_RUN": "run-of-the-tests",
        "PYTHONPATH": str(ROOT / "collectors"),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    done = subprocess.run(
        [PYTHON, "-c", head + textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "graphdiag" not in done.stderr
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else None


def marks(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(row["config"]) for row in read(folder, "mark") if row["kind"] == kind]


def compiles(folder: Path) -> list[Row]:
    return read(folder, "compile")


def key(row: Row) -> dict[str, str]:
    found: dict[str, str] = json.loads(row["key"])
    return found


STEP = """
def step(x):
    return x * 2 + 1
compiled = torch.compile(step, dynamic=False, backend="eager")
"""


def test_each_new_shape_is_one_compile_with_its_reason_and_known_shapes_are_none(
    folder: Path,
) -> None:
    script = (
        STEP
        + """
import time
before = time.time_ns()
for rows in (1, 2, 4, 1, 2, 8):
    compiled(torch.randn(rows, 4))
now = time.time_ns()
since = torch_hooks.compiles_since((0, 0))
told = {"before": before, "now": now, "since": since, "torch": torch.__version__}
print(json.dumps(told))
"""
    )
    told = run(folder, script)
    rows = compiles(folder)
    assert [row["reason"] for row in rows] == [
        None,
        "0/0: tensor 'x' size mismatch at index 0. expected 1, actual 2",
        "0/1: tensor 'x' size mismatch at index 0. expected 2, actual 4",
        "0/1: tensor 'x' size mismatch at index 0. expected 2, actual 8",  # the last one that ran
    ]
    assert [key(row)["compile_id"] for row in rows] == ["0/0", "0/1", "0/2", "0/3"]
    assert {row["artifact"] for row in rows} == {"step <string>:7"}
    assert {row["kind"] for row in rows} == {"dynamo"}
    assert {row["cache"] for row in rows} == {"none"}  # the eager backend has no cache
    assert [row["weight"] for row in rows] == [1] * 4
    starts = [row["t_ns"] for row in rows]
    assert starts == sorted(starts)
    assert told["before"] - 1000 <= starts[0]
    assert all(row["dur_ns"] > 0 for row in rows)
    assert rows[-1]["t_ns"] + rows[-1]["dur_ns"] <= told["now"]
    assert told["since"] == [4, sum(row["dur_ns"] for row in rows)]
    config = json.loads(read(folder, "run")[0]["config"])
    assert config["engine"] == "torch"
    assert config["torch"] == config["engine_version"] == told["torch"]
    assert "device" not in config or config["device"] is None
    assert {"torch.compile", "torch.compile.callbacks"} <= set(config["hooks"]["on"])
    assert config["hooks"]["missing"] == {}


def test_the_recompile_limit_is_latched_until_dynamo_is_reset(folder: Path) -> None:
    script = (
        STEP
        + """
def shapes(sizes):
    for rows in sizes:
        compiled(torch.randn(rows))
shapes(range(1, 13))
torch._dynamo.reset()
shapes((50, 51))
"""
    )
    run(folder, script)
    rows = compiles(folder)
    assert [row["weight"] for row in rows] == [1] * 8 + [0] + [1, 1]
    assert {row["artifact"] for row in rows} == {"step <string>:7"}
    (limit,) = marks(folder, "recompile_limit")
    assert limit == {
        "frame": "step <string>:7",
        "compile_id": "0/8",
        "effect": "eager",
        "limit": "recompile_limit",
        "reason": "0/7: tensor 'x' size mismatch at index 0. expected 8, actual 9",
    }
    assert marks(folder, "dynamo_reset") == [{"frames": ["step <string>:7"]}]
    assert [key(row)["compile_id"] for row in rows[-2:]] == ["0/0", "0/1"]


def test_the_limit_with_fullgraph_is_an_error_and_passes_through(folder: Path) -> None:
    script = """
    compiled = torch.compile(lambda x: x + 1, dynamic=False, backend="eager", fullgraph=True)
    raised = []
    for rows in range(1, 12):
        try:
            compiled(torch.randn(rows))
        except Exception as error:
            raised.append(type(error).__name__)
    print(json.dumps(raised))
    """
    assert run(folder, script) == ["FailOnRecompileLimitHit"] * 3
    (limit,) = marks(folder, "recompile_limit")
    assert limit["effect"] == "error"
    assert limit["frame"].startswith("<lambda> ")


def test_what_a_compile_raises_reaches_the_caller_and_is_a_mark(folder: Path) -> None:
    script = """
    def wrong(x):
        return x @ x
    def backend(graph, inputs):
        raise RuntimeError("the backend's own")
    raised = []
    for function, how in ((wrong, "eager"), (lambda x: x + 1, backend)):
        try:
            torch.compile(function, backend=how)(torch.randn(2, 3))
        except Exception as error:
            raised.append([type(error).__name__, "the backend's own" in str(error)])
    again = torch.compile(lambda x: x + 2, backend="eager")(torch.zeros(1)).item()
    print(json.dumps([raised, again]))
    """
    raised, again = run(folder, script)
    assert raised == [["TorchRuntimeError", False], ["BackendCompilerFailed", True]]
    assert again == 2.0
    assert [row["weight"] for row in compiles(folder)] == [0, 0, 1]
    assert [row["cache"] for row in compiles(folder)] == [None, None, "none"]
    failed = marks(folder, "compile_failed")
    assert [mark["type"] for mark in failed] == ["TorchRuntimeError", "BackendCompilerFailed"]
    assert failed[0]["frame"] == "wrong <string>:7"


def test_graph_breaks_and_the_backward_pass_name_their_frame(folder: Path) -> None:
    script = """
    def broken(x):
        x = x + 1
        print("between")
        return x * 2
    torch.compile(broken, backend="eager")(torch.randn(3))
    def loss(x):
        return (x * x).sum()
    x = torch.randn(4, requires_grad=True)
    torch.compile(loss, backend="aot_eager")(x).backward()
    print(json.dumps("done"))
    """
    assert run(folder, script) == "done"
    rows = compiles(folder)
    assert [(row["artifact"], row["kind"]) for row in rows] == [
        ("broken <string>:7", "dynamo"),
        ("torch_dynamo_resume_in_broken_at_9 <string>:9", "dynamo"),
        ("loss <string>:12", "dynamo"),
        ("loss <string>:12", "backward"),
    ]
    assert key(rows[2])["compile_id"] == key(rows[3])["compile_id"]
    (found,) = marks(folder, "graph_break")
    assert found["frame"] == "broken <string>:7"
    assert "`print`" in found["reason"]


def test_a_late_install_records_what_dynamo_still_remembers(folder: Path) -> None:
    head = "import json, torch\nfrom graphdiag_collectors import torch_hooks\n"
    script = (
        STEP
        + """
for rows in range(1, 11):
    compiled(torch.randn(rows))
torch_hooks.install()
torch_hooks.install()
@torch.compile(backend="eager")
def late(x):
    return x + 1
late(torch.randn(3))
torch_hooks.uninstall()
torch_hooks.install()
late(torch.randn(3, 3))
"""
    )
    run(folder, script, head)
    rows = compiles(folder)
    assert [key(row)["compile_id"] for row in rows] == [
        *(f"0/{number}" for number in range(9)),
        "1/0",
        "1/1",
    ]
    assert len(marks(folder, "recompile_limit")) == 1


def test_threads_and_a_process_that_is_uninstalled(folder: Path) -> None:
    script = """
    import threading, torch._dynamo
    from torch._dynamo import callback, utils
    original = utils.log_compilation_event.__wrapped__
    def work(number):
        function = eval(f"lambda x: x + {number}")
        torch.compile(function, backend="eager")(torch.randn(number + 1))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch_hooks.uninstall()
    torch.compile(lambda x: x - 1, backend="eager")(torch.randn(2))
    handler = callback.callback_handler
    print(json.dumps([
        utils.log_compilation_event is original,
        len(handler.start_callbacks) + len(handler.end_callbacks),
        hasattr(type(handler).clear, "__wrapped__"),
        hasattr(torch.cuda.CUDAGraph.replay, "__wrapped__"),
        torch_hooks.compiles_since((0, 0)),
    ]))
    """
    assert run(folder, script) == [True, 0, False, False, [None, None]]
    rows = compiles(folder)
    assert len(rows) == 4
    assert sorted(key(row)["compile_id"] for row in rows) == ["0/0", "1/0", "2/0", "3/0"]


def test_the_callbacks_survive_a_reset_and_say_what_runs(folder: Path) -> None:
    script = """
    import torch._dynamo
    from torch._dynamo import callback
    watch = torch_hooks._installed.compiles
    seen = []
    def backend(graph, inputs):
        seen.append(watch.running[1])
        return graph
    for _ in range(2):
        torch.compile(lambda x: x + 1, backend=backend)(torch.randn(2))
        torch._dynamo.reset()
    print(json.dumps([seen, watch.running, len(callback.callback_handler.start_callbacks)]))
    """
    assert run(folder, script) == [["DYNAMO 0/0", "DYNAMO 0/0"], None, 1]


def test_a_compile_in_which_the_process_dies_is_on_record(folder: Path) -> None:
    script = """
    import os, time
    def backend(graph, inputs):
        time.sleep(3)
        print(json.dumps("gone"), flush=True)
        os._exit(0)
    torch.compile(lambda x: x + 1, backend=backend)(torch.randn(2))
    """
    assert run(folder, script) == "gone"
    assert marks(folder, "compiling") == [{"compile": "DYNAMO 0/0"}]
    assert compiles(folder) == []


def test_a_hook_that_fails_leaves_the_compile_alone_and_switches_itself_off(folder: Path) -> None:
    script = """
    from graphdiag_collectors import torch_compile
    def broken(*_):
        raise RuntimeError("ours")
    torch_compile.time_of = broken
    total = 0
    for number in range(5):
        function = eval(f"lambda x: x + {number}")
        total += torch.compile(function, backend="eager")(torch.zeros(1)).item()
    print(json.dumps([total, hooks.describe()["off"]]))
    """
    total, off = run(folder, script)
    assert total == 10.0
    assert off == {"torch.compile": "RuntimeError: ours"}
    assert [mark["hook"] for mark in marks(folder, "hook_off")] == ["torch.compile"]


def test_a_compiled_function_may_replay_a_graph_and_our_wrapper_is_not_compiled(
    folder: Path,
) -> None:
    script = """
    import torch._dynamo
    class Graph:  # a real one needs a device: our wrapper around a method that does nothing
        replay = torch_hooks._installed.graphs._wrap_replay(lambda graph: None)
    torch_hooks._installed.graphs._hide(torch._dynamo.eval_frame)
    graph = Graph()
    def step(x):
        y = x + 1
        graph.replay()
        return y * 2
    out = torch.compile(step, backend="eager")(torch.ones(2)).tolist()
    print(json.dumps([out, torch_hooks.replays()[0]]))
    """
    assert run(folder, script) == [[4.0, 4.0], 1]
    assert not any("replay" in row["artifact"] for row in compiles(folder))


@pytest.mark.parametrize("how", ["eager", "compile"])
def test_the_example_records_itself(folder: Path, how: str) -> None:
    example = ROOT / "examples" / "decode_loop.py"
    options = ["--how", how, "--backend", "eager", "--steps", "120", "-o", str(folder)]
    command = [PYTHON, str(example), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collectors")}
    environment.pop("GRAPHDIAG_TRACE", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = read(folder, "step")
    assert len(rows) == 119  # no request runs yet in the first
    sizes = [row["requested"] for row in rows]
    assert max(sizes) > 16  # more than the largest bucket
    if how == "eager":
        assert {(row["outcome"], row["bucket"]) for row in rows} == {("eager", None)}
        assert compiles(folder) == []
        return
    for row in rows:
        bucket = next((size for size in (1, 2, 4, 8, 16) if size >= row["requested"]), None)
        assert row["bucket"] == bucket
        if bucket is None:
            assert (row["outcome"], row["reason"], row["artifact"]) == (
                "fallback",
                "over_max",
                None,
            )
        else:
            assert row["outcome"] == ("exact" if bucket == row["requested"] else "padded")
    made = compiles(folder)
    assert len(made) == 5
    assert {row["artifact"] for row in made} == {row["artifact"] for row in rows} - {None}


@pytest.fixture(scope="module")
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inductor")


def test_inductor_says_whether_its_cache_served(tmp_path: Path, inductor_cache: Path) -> None:
    script = """
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x).sum(-1), dynamic=False)
    for rows in (2, 3, 2):
        compiled(torch.randn(rows, 16))
    """
    found = []
    for part in ("cold", "warm"):
        folder = tmp_path / part
        run(folder, script, TORCHINDUCTOR_CACHE_DIR=str(inductor_cache))
        found.append([row["cache"] for row in compiles(folder)])
    assert found == [["miss", "miss"], ["hit", "hit"]]


def test_torch_graphs_are_patched_on_a_cpu_build_and_put_back(folder: Path) -> None:
    script = """
    patched = [
        hasattr(vars(torch.cuda.CUDAGraph)[name], "__wrapped__")
        for name in ("replay", "reset", "capture_begin", "capture_end")
    ] + [hasattr(vars(torch.cuda.graph)[name], "__wrapped__") for name in ("__enter__", "__exit__")]
    try:
        torch.cuda.CUDAGraph()
    except RuntimeError as error:
        words = str(error)
    torch_hooks.uninstall()
    print(json.dumps([patched, words, hasattr(torch.cuda.CUDAGraph.replay, "__wrapped__")]))
    """
    patched, words, after = run(folder, script)
    assert all(patched)
    assert "dummy base class" in words
    assert not after
    assert not folder.exists()  # nothing happened, so nothing was opened
