"""Captures and replays of CUDA graphs, with stand-ins for torch's classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphdiag_collectors import Recorder, session, torch_hooks
from tests.collectors.rows import Row, read
from tests.collectors.torch_standins import Device, install, run_in


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    torch_hooks.uninstall()
    session.close()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, device: Device, folder: Path) -> ModuleType:
    """Torch 2.13's graphs, hooked, recording into the folder."""
    module = install(monkeypatch, device, official=False)
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    torch_hooks.install()
    return module


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch, device: Device, folder: Path) -> ModuleType:
    """Torch 2.14's graphs, with hooks of their own."""
    module = install(monkeypatch, device, official=True)
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    torch_hooks.install()
    return module


def finish() -> None:
    torch_hooks.uninstall()
    session.close()


def captures(folder: Path) -> list[Row]:
    finish()
    return read(folder, "capture")


def marks(folder: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    finish()
    return [
        (row["weight"], json.loads(row["config"]))
        for row in read(folder, "mark")
        if row["kind"] == kind
    ]


def test_a_capture_has_its_time_memory_pool_and_place(
    graphs: ModuleType, device: Device, folder: Path
) -> None:
    before = time.time_ns()
    for _ in range(2):
        with graphs.graph(graphs.CUDAGraph()):
            time.sleep(0.002)
            device.free -= 30
            device.reserved += 20
    after = time.time_ns()
    first, second = captures(folder)
    assert first["artifact"].startswith("test_a_capture_has_its_time_memory_pool_and_place ")
    assert first["artifact"].split(" ")[1].startswith("test_torch_graphs.py:")
    assert first["artifact"].endswith("#1")
    assert second["artifact"] == first["artifact"][:-1] + "2"
    assert (first["mem_before"], first["mem_after"], first["pool_bytes"]) == (1000, 970, 20)
    assert (second["mem_before"], second["mem_after"], second["pool_bytes"]) == (970, 940, 20)
    assert first["kind"] == "cuda_graph"
    assert first["weight"] == 1
    assert json.loads(first["identity"]) == {"pool": [0, 7], "nodes": None}
    assert before <= first["t_ns"] <= second["t_ns"] <= after
    assert 2_000_000 <= first["dur_ns"] <= after - before
    assert device.calls == ["empty_cache", "capture_begin", "capture_end"] * 2


def test_a_capture_without_its_block_is_one_too(graphs: ModuleType, folder: Path) -> None:
    graph = graphs.CUDAGraph()
    torch_hooks.name_graph(graph, "decode/16", 16, mode="full", key={"size": 16}, identity={"a": 1})
    for _ in range(2):
        graph.capture_begin(pool=(0, 7))
        graph.capture_end()
    rows = captures(folder)
    assert [(row["artifact"], row["size"]) for row in rows] == [("decode/16", 16)] * 2
    for row in rows:
        assert row["mode"] == "full"
        assert [json.loads(row[name]) for name in ("key", "identity")] == [{"size": 16}, {"a": 1}]


def test_without_a_device_memory_is_null(graphs: ModuleType, device: Device, folder: Path) -> None:
    device.ready = False
    with graphs.graph(graphs.CUDAGraph()):
        pass
    (row,) = captures(folder)
    assert (row["mem_before"], row["mem_after"], row["pool_bytes"]) == (None, None, None)
    assert json.loads(row["identity"])["pool"] is None


def test_the_sort_of_capture_is_who_made_it_and_a_keepalive_counts_for_nothing(
    graphs: ModuleType, folder: Path
) -> None:
    code = """
def {name}(graphs):
    with graphs.graph(graphs.CUDAGraph()):
        pass
"""
    trees = "/x/torch/_inductor/cudagraph_trees.py"
    for file, name in ((trees, "__init__"), (trees, "_record"), ("g.py", "make_graphed_callables")):
        run_in(file, code.format(name=name))[name](graphs)
    with graphs.graph(graphs.CUDAGraph()):
        pass
    rows = captures(folder)
    assert [(row["kind"], row["weight"]) for row in rows] == [
        ("pool_keepalive", 0),
        ("cudagraph_trees", 1),
        ("graphed_callable", 1),
        ("cuda_graph", 1),
    ]
    assert all(" test_torch_graphs.py:" in row["artifact"] for row in rows)  # not torch's own place


@pytest.mark.parametrize("where", ["body", "capture_begin", "capture_end"])
def test_a_capture_that_fails_raises_what_it_raised_and_is_a_mark(
    graphs: ModuleType, device: Device, folder: Path, where: str
) -> None:
    graph = graphs.CUDAGraph()
    error = RuntimeError("no capture today")
    with pytest.raises(RuntimeError) as caught:  # noqa: PT012
        device.fail = error if where == "capture_begin" else None
        with graphs.graph(graph):
            if where == "body":
                raise error
            device.fail = error
    assert caught.value is error
    device.fail = None
    with graphs.graph(graph):
        pass
    ((weight, details),) = marks(folder, "capture_failed")
    assert (weight, details["error"]) == (1, "RuntimeError: no capture today")
    (row,) = captures(folder)
    assert row["artifact"] == details["artifact"]


def test_what_a_capture_ran_into_is_told_not_what_came_of_it(
    graphs: ModuleType, device: Device, folder: Path
) -> None:
    block = graphs.graph(graphs.CUDAGraph())
    with pytest.raises(RuntimeError, match="invalidated"), block:  # noqa: PT012
        device.fail = RuntimeError("capture invalidated")
        raise ValueError("a sync in a capture")
    device.fail = None
    ((_, details),) = marks(folder, "capture_failed")
    assert details["error"] == "ValueError: a sync in a capture"


def test_replays_that_no_step_claims_are_told_by_artifact_and_add_up(
    graphs: ModuleType, folder: Path
) -> None:
    small, large = graphs.CUDAGraph(), graphs.CUDAGraph()
    torch_hooks.name_graph(small, "decode/1")
    torch_hooks.name_graph(large, "decode/8")
    assert [small.replay() for _ in range(5)] == ["replayed"] * 5
    for _ in range(3):
        large.replay()
    count, launch_ns = torch_hooks.replays()
    assert count == 8
    ((weight, details),) = marks(folder, "graph_replays")
    assert weight == 8
    assert details["artifacts"] == {"decode/1": 5, "decode/8": 3}
    assert details["launch_ns"] == launch_ns > 0


def test_claimed_replays_are_in_no_mark(graphs: ModuleType, folder: Path) -> None:
    graph = graphs.CUDAGraph()
    for _ in range(4):
        before = torch_hooks.replays()
        graph.replay()
        graph.replay()
        count, launch_ns = torch_hooks.replays_since(before)
        assert count == 2
        assert launch_ns is not None
        assert launch_ns > 0
    assert marks(folder, "graph_replays") == []


def test_of_claimed_and_unclaimed_replays_the_mark_counts_the_unclaimed(
    graphs: ModuleType, folder: Path
) -> None:
    graph = graphs.CUDAGraph()
    for _ in range(10):
        before = torch_hooks.replays()
        graph.replay()
        torch_hooks.replays_since(before)
        graph.replay()
    found = marks(folder, "graph_replays")
    assert sum(weight for weight, _ in found) == 10
    assert sum(sum(details["artifacts"].values()) for _, details in found) == 20


def test_marks_come_while_the_process_runs_and_replays_add_up_over_them(
    graphs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_hooks, "BEAT_SECONDS", 0.02)
    graph = graphs.CUDAGraph()
    replayed = 0
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        graph.replay()
        replayed += 1
        time.sleep(0.001)
        if replayed % 50 == 0 and replayed >= 100:
            recorder = session.current()
            assert recorder is not None
            recorder.flush()
            if len(read(folder, "mark")) >= 2:
                break
    found = marks(folder, "graph_replays")
    assert len(found) >= 2
    assert sum(weight for weight, _ in found) == replayed
    rows = [row for row in read(folder, "mark") if row["kind"] == "graph_replays"]
    ends = [row["t_ns"] + row["dur_ns"] for row in rows]
    assert all(end <= after["t_ns"] for end, after in zip(ends, rows[1:], strict=False))


def test_many_artifacts_are_told_by_their_most_replayed(graphs: ModuleType, folder: Path) -> None:
    for number in range(100):
        graph = graphs.CUDAGraph()
        torch_hooks.name_graph(graph, f"g{number}")
        for _ in range(1 + (number < 64)):
            graph.replay()
    ((weight, details),) = marks(folder, "graph_replays")
    assert weight == 164
    assert details["artifacts"] == {f"g{number}": 2 for number in range(64)}
    assert details["other_artifacts"] == 36


def test_graphs_without_end_are_told_under_one_name(
    graphs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphdiag_collectors.torch_replays.MOST_TALLIES", 2)
    for _ in range(5):
        graphs.CUDAGraph().replay()
    ((weight, details),) = marks(folder, "graph_replays")
    assert weight == 5
    assert details["artifacts"] == {
        "graph captured before recording#1": 1,
        "graph captured before recording#2": 1,
        "other graphs": 3,
    }


def test_a_replay_that_raises_passes_through_and_does_not_count(
    graphs: ModuleType, device: Device, folder: Path
) -> None:
    graph = graphs.CUDAGraph()
    device.fail = RuntimeError("lost device")
    with pytest.raises(RuntimeError) as caught:
        graph.replay()
    assert caught.value is device.fail
    device.fail = None
    graph.replay()
    assert [weight for weight, _ in marks(folder, "graph_replays")] == [1]


def test_a_graph_that_cannot_be_tallied_still_replays_and_switches_the_hook_off(
    graphs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(graphs.CUDAGraph):  # type: ignore[name-defined,misc]
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    graph = Closed()
    assert [graph.replay() for _ in range(5)] == ["replayed"] * 5
    ((_, details),) = marks(folder, "hook_off")
    assert details["hook"] == "torch.graphs.replay"
    assert details["failures"] == 3


def test_a_block_of_another_shape_captures_all_the_same(
    monkeypatch: pytest.MonkeyPatch, device: Device, folder: Path
) -> None:
    module = install(monkeypatch, device, official=False)

    class Block:
        def __enter__(self) -> str:
            return "entered"

        def __exit__(self, *_: object) -> None:
            device.call("exit")

    vars(module)["graph"] = Block
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    hooks = torch_hooks.install()
    for _ in range(4):
        with Block() as found:
            assert found == "entered"
    assert device.calls == ["exit"] * 4
    assert list(hooks.describe()["off"]) == ["torch.graphs.capture"]


def test_reset_says_which_graph_went(graphs: ModuleType, folder: Path) -> None:
    graph = graphs.CUDAGraph()
    graph.reset()  # never captured: nothing to say
    with graphs.graph(graph):
        pass
    graph.reset()
    ((_, details),) = marks(folder, "graph_reset")
    assert details == {"artifact": captures(folder)[0]["artifact"]}


def test_the_official_hooks_count_replays_and_the_class_stays_as_it_was(
    official: ModuleType, folder: Path
) -> None:
    assert not hasattr(official.CUDAGraph.replay, "__wrapped__")
    graph = official.CUDAGraph()
    replay = graph.replay  # a bound method taken early does not escape
    torch_hooks.name_graph(graph, "decode/4")
    before = torch_hooks.replays()
    for _ in range(3):
        replay()
    assert torch_hooks.replays_since(before) == (3, None)
    replay()
    assert marks(folder, "graph_replays") == [(1, {"artifacts": {"decode/4": 4}})]
    assert all(not registry for registry in official.registries.values())


@pytest.mark.parametrize(
    ("nodes", "kind", "weight"), [(0, "pool_keepalive", 0), (9, "cuda_graph", 1)]
)
def test_where_torch_lets_nodes_be_counted_an_empty_capture_is_flagged(
    official: ModuleType, folder: Path, nodes: int, kind: str, weight: int
) -> None:
    class Runtime:
        @staticmethod
        def cudaGraphGetNodes(raw: int, numNodes: int) -> tuple[int, list[int], int]:
            assert (raw, numNodes) == (4711, 0)
            return 0, [], nodes

    vars(official)["_cuda_runtime"] = Runtime
    with official.graph(official.CUDAGraph()):
        pass
    (row,) = captures(folder)
    assert (row["kind"], row["weight"]) == (kind, weight)
    assert json.loads(row["identity"])["nodes"] == nodes


def test_installing_twice_is_once_and_uninstalling_puts_everything_back(
    monkeypatch: pytest.MonkeyPatch, device: Device, folder: Path
) -> None:
    module = install(monkeypatch, device, official=False)
    before = dict(vars(module.CUDAGraph)), dict(vars(module.graph))
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    hooks = torch_hooks.install()
    assert torch_hooks.install() is hooks
    module.CUDAGraph().replay()
    assert torch_hooks.replays()[0] == 1
    torch_hooks.uninstall()
    torch_hooks.uninstall()
    after = dict(vars(module.CUDAGraph)), dict(vars(module.graph))
    assert after == before
    assert torch_hooks.replays() == (0, 0)
    assert torch_hooks.replays_since((0, 0)) == (None, None)


def test_without_a_place_to_record_nothing_is_hooked(
    monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    module = install(monkeypatch, device, official=False)
    hooks = torch_hooks.install()
    assert hooks.missing == {"torch": "GRAPHDIAG_TRACE is not set"}
    assert not hasattr(module.CUDAGraph.replay, "__wrapped__")
    assert torch_hooks.compiles_since((0, 0)) == (None, None)


def test_hooks_wait_for_torch_to_be_imported(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    for name in ("torch", "torch.cuda", "torch.cuda.graphs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package = tmp_path / "site" / "torch" / "cuda"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("from torch import cuda\n")
    (package / "__init__.py").write_text("from torch.cuda.graphs import CUDAGraph\n")
    (package / "graphs.py").write_text(
        "class CUDAGraph:\n    def replay(self): pass\n    def reset(self): pass\n"
        "class graph:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(package.parents[1]))
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    hooks = torch_hooks.install()
    assert hooks.missing == {}
    import torch  # type: ignore[import-not-found]

    torch.cuda.CUDAGraph().replay()
    assert torch_hooks.replays()[0] == 1
    assert set(hooks.missing) == {
        f"torch.cuda.graphs.{name}"
        for name in (
            "CUDAGraph.capture_begin",
            "CUDAGraph.capture_end",
            "graph.__enter__",
            "graph.__exit__",
        )
    }
    for name in ("torch", "torch.cuda", "torch.cuda.graphs"):
        del sys.modules[name]  # not by monkeypatch, which would put this torch back


def test_a_recorder_of_ones_own_gets_the_rows(
    monkeypatch: pytest.MonkeyPatch, device: Device, recorder: Recorder, folder: Path
) -> None:
    module = install(monkeypatch, device, official=False)
    torch_hooks.install(recorder, captures=False)
    graph = module.CUDAGraph()
    with module.graph(graph):
        pass
    graph.replay()
    assert [weight for weight, _ in marks(folder, "graph_replays")] == [1]
    assert read(folder, "capture") == []


def test_replays_of_several_threads_all_count(graphs: ModuleType, folder: Path) -> None:
    graph = graphs.CUDAGraph()
    graph.replay()
    threads = [
        threading.Thread(target=lambda: [graph.replay() for _ in range(2000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(weight for weight, _ in marks(folder, "graph_replays")) == 8001


@pytest.mark.parametrize("wait", [0, 0.3])
def test_a_process_that_just_ends_has_told_its_last_replays(folder: Path, wait: float) -> None:
    script = f"""
import sys, time, types
from graphdiag_collectors import torch_hooks
module = types.ModuleType("torch.cuda.graphs")
exec("class CUDAGraph:\\n def replay(self): pass\\nclass graph: pass", vars(module))
sys.modules[module.__name__] = module
torch_hooks.install()
graph = module.CUDAGraph()
for _ in range(7):
    graph.replay()
time.sleep({wait})
"""
    environment = {**os.environ, "GRAPHDIAG_TRACE": str(folder)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    (found,) = [row for row in read(folder, "mark") if row["kind"] == "graph_replays"]
    assert found["weight"] == 7
    (run,) = read(folder, "run")
    assert json.loads(run["config"])["engine"] == "torch"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_counts_its_own_replays_only(graphs: ModuleType, folder: Path) -> None:
    graph = graphs.CUDAGraph()
    for _ in range(3):
        graph.replay()
    while session.current() is None:  # the thread opens it; a fork meanwhile is another test's
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        graph.replay()
        finish()
        os._exit(0)
    os.waitpid(child, 0)
    finish()
    found = {
        row["pid"]: row["weight"] for row in read(folder, "mark") if row["kind"] == "graph_replays"
    }
    assert found == {os.getpid(): 3, child: 1}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_the_recorder_is_being_opened_leaves_the_child_free(
    graphs: ModuleType, folder: Path
) -> None:
    with session._lock:
        child = os.fork()
        if child == 0:
            graphs.CUDAGraph().replay()
            finish()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (found,) = [row for row in read(folder, "mark") if row["kind"] == "graph_replays"]
    assert (found["pid"], found["weight"]) == (child, 1)
