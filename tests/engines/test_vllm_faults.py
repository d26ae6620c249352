"""Faults in the collector's surroundings, in the real vLLM: the engine must not notice any."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from graphdiag import cli
from graphdiag.trace import open_trace
from tests.collectors.rows import Row, read, steps
from tests.engines.vllm_lab import Lab, logged

pytestmark = pytest.mark.slow

Found = dict[str, Any]


class Faults:
    """What one engine did while the collector was broken in every way, and the traces."""

    def __init__(self, folder: Path, found: Found) -> None:
        self.folder = folder
        self.found = found

    def of(self, fault: str) -> tuple[Found, Path]:
        """Return what was noted of a fault, and its trace; the tokens must have been right."""
        if fault not in self.found:
            pytest.skip("needs to be allowed to mount a small file system (root)")
        noted: Found = self.found[fault]
        assert noted["same"], "the engine's tokens changed"
        assert all(noted["steps"]), "the engine ran no steps"
        return noted, self.folder / f"{fault}.parquet"


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A disk of 256 KiB and one that is read-only, where they may be mounted; else nothing."""
    places = [tmp_path_factory.mktemp(name) for name in ("small", "closed")]
    done = []
    try:
        for place in places:
            command = ["mount", "-t", "tmpfs", "-o", "size=256k", "graphdiag-test", str(place)]
            if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
                yield []
                return
            done.append(place)
        (places[1] / "there").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", str(places[1])], check=True)
        yield places
    finally:
        for place in done:
            subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def faults(vllm_lab: Lab, mounted: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Faults:
    folder = tmp_path_factory.mktemp("faults")
    return Faults(folder, vllm_lab.run("vllm_faults.py", folder, *mounted))


def real(trace: Path) -> list[int]:
    """Sizes of the steps that served requests, in the order they were written."""
    return [row["requested"] for row in steps(trace) if row["kind"] is None]


def joined(runs: list[list[int]]) -> list[int]:
    return [size for run in runs for size in run]


def drops(trace: Path) -> list[tuple[int, str]]:
    """What the trace says was lost."""
    marks = [row for row in read(trace, "mark") if row["kind"] == "dropped"]
    return [(mark["weight"], json.loads(mark["config"])["why"]) for mark in marks]


def test_the_disk_is_full_for_a_while(faults: Faults) -> None:
    found, trace = faults.of("full")
    before, *during, after = found["steps"]
    recorded = real(trace)
    assert recorded[: len(before)] == before
    assert recorded[-len(after) :] == after
    lost = sum(map(len, found["steps"])) - len(recorded)
    assert lost > len(during[0])  # a small batch may still find room in a block
    assert sum(rows for rows, _ in drops(trace)) == lost == found["dropped"]
    assert {why for _, why in drops(trace)} == {"OSError: [Errno 28] No space left on device"}


def test_the_disk_is_full_to_the_end(faults: Faults) -> None:
    found, _ = faults.of("full_to_the_end")
    assert found["files"] == []
    (said,) = re.findall(
        r"^graphdiag: ([\d,]+) rows could not be recorded in .*never\.parquet \((.*)\)$",
        faults.found["stderr"],
        re.MULTILINE,
    )
    assert said[1] == "OSError: [Errno 28] No space left on device"
    assert int(said[0]) == found["dropped"] >= len(found["steps"][0])


def test_a_file_may_not_grow(faults: Faults) -> None:
    found, trace = faults.of("limited")
    before, during, after = found["steps"]
    assert real(trace) == before + after
    assert drops(trace) == [(len(during), "OSError: [Errno 27] File too large")]


def test_the_folder_is_deleted(faults: Faults) -> None:
    found, trace = faults.of("deleted")
    before, during, after = found["steps"]
    assert real(trace) == during + after
    ((lost, why),) = drops(trace)
    assert len(before) < lost < len(before) + 5  # with the run events of the beginning
    assert re.fullmatch(r"_tail-\S+\.arrow was removed while it was written", why)
    assert json.loads(read(trace, "run")[-1]["config"])["max_num_seqs"] == 48
    assert steps(trace)[0]["step"] == len(before)


def test_a_slow_disk_takes_no_time_from_the_engine(faults: Faults) -> None:
    found, trace = faults.of("slow")
    assert real(trace) == joined(found["steps"])
    assert (found["dropped"], drops(trace)) == (0, [])
    assert found["during"] > 100  # steps that ran while the writer slept, two seconds a time
    assert found["longest_s"]["slow"] < 1.0
    assert found["median_s"]["slow"] < 2 * found["median_s"]["plain"]


def test_rows_that_do_not_fit_into_memory_are_counted(faults: Faults) -> None:
    found, trace = faults.of("behind")
    before, *_, after = found["steps"]
    recorded = real(trace)
    assert recorded[: len(before)] == before
    assert recorded[-len(after) :] == after
    lost = sum(map(len, found["steps"])) - len(recorded)
    assert lost > 0
    assert sum(rows for rows, _ in drops(trace)) == lost == found["dropped"]
    assert {why for _, why in drops(trace)} == {"the writer fell behind: no block was free"}
    assert steps(trace)[-1]["step"] == sum(map(len, found["steps"])) - 1  # lost ones count along


def test_a_fork_in_the_middle_of_a_step(faults: Faults) -> None:
    found, trace = faults.of("fork")
    assert found["codes"] == {"leaves": 0, "records": 0, "closes": 0}
    rows = steps(trace)
    parent = [row["requested"] for row in rows if row["pid"] == found["parent"]]
    assert [parent] == found["steps"]
    child = [row["requested"] for row in rows if row["pid"] == found["children"]["records"]]
    assert child == [7, 7, 7]
    assert files_of(trace) == {found["parent"]: 1, found["children"]["records"]: 1}


def test_the_plugin_is_loaded_again(faults: Faults) -> None:
    found, trace = faults.of("twice")
    *recorded, _ = found["steps"]
    assert real(trace) == joined(recorded)
    assert files_of(trace).keys() == {read(trace)[0]["pid"]}


def test_a_hook_that_raises_now_and_then_stays_on(faults: Faults) -> None:
    found, trace = faults.of("raising")
    first, sometimes, good, _, _ = found["steps"]
    assert found["sometimes"] == {}  # nothing had switched itself off
    kept = sometimes[::3]
    assert real(trace) == first + kept + good
    told = drops(trace)
    assert sum(rows for rows, _ in told) == len(sometimes) - len(kept) + 3
    assert told[0][1] == "vllm.v1.step raised RuntimeError: injected now and then"
    assert told[-1][1] == "vllm.v1.step raised RuntimeError: injected always"
    (off,) = [row for row in read(trace, "mark") if row["kind"] == "hook_off"]
    assert json.loads(off["config"])["last"] == "RuntimeError: injected always"


def test_garbage_collection(faults: Faults) -> None:
    found, trace = faults.of("garbage")
    assert real(trace) == joined(found["steps"])
    assert drops(trace) == []


def test_each_process_that_records_has_files_of_its_own(faults: Faults) -> None:
    found, trace = faults.of("spawned")
    assert found["codes"] == [0, 0]
    assert files_of(trace) == {found["parent"]: 1, found["children"]["loads_and_records"]: 1}
    parent = [row["requested"] for row in steps(trace) if row["pid"] == found["parent"]]
    assert parent == joined(found["steps"])
    assert {row["run"] for row in read(trace)} == {"one"}


def test_another_run_in_the_folder_is_kept(faults: Faults) -> None:
    found, _ = faults.of("another_run")
    trace = faults.folder / "runs.parquet"
    assert found["kept"]
    assert len(list(trace.iterdir())) == 2
    for run, sizes in zip(("first", "second"), found["steps"], strict=True):
        assert [row["requested"] for row in steps(trace) if row["run"] == run] == sizes


def test_a_file_is_in_the_place_of_the_folder(faults: Faults) -> None:
    found, _ = faults.of("a_file")
    assert found["text"] == "mine"
    said = r"graphdiag: not recording \(\[Errno 17\] File exists: '\S+/file\.parquet'\)"
    assert len(re.findall(said, faults.found["stderr"])) == 1


def test_a_place_nobody_may_write_into(faults: Faults) -> None:
    found, _ = faults.of("read_only")
    stderr = faults.found["stderr"]
    missing = r"graphdiag: not recording \(\[Errno 30\] Read-only file system: '\S+/missing'\)"
    assert len(re.findall(missing, stderr)) == 1
    there = r"graphdiag: ([\d,]+) rows could not be recorded in \S+/there \(OSError: \[Errno 30\]"
    (lost,) = re.findall(there, stderr)
    assert int(lost) >= len(found["steps"][1])


def test_the_worker_is_killed_while_it_steps(
    vllm_lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, log = tmp_path / "trace.parquet", tmp_path / "log"
    found = vllm_lab.run("vllm_faults.py", tmp_path, trace=trace, STEP_LOG=log, STEP_PARTS=30)
    assert found["error"] == "EngineDeadError"
    worker, ran = logged(log)
    rows = [row for row in steps(trace) if row["kind"] is None]
    sizes = [size for _, size in ran]
    assert ran[-1][0] > found["killed_ns"] - 5e8  # it was stepping when it was killed
    assert [row["requested"] for row in rows] == sizes[: len(rows)]
    early = sum(time < found["killed_ns"] - 1e9 for time, _ in ran)
    assert 100 < early <= len(rows)
    assert {row["pid"] for row in rows} == {worker}
    parts = list(trace.glob("part-*.parquet"))
    assert len(parts) >= 2
    assert all(pq.read_table(part).num_rows >= 30 for part in parts)
    assert open_trace(trace).steps().collect().height == len(steps(trace))
    assert cli.run(["report", str(trace), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] == len(rows)
    assert report["engine"]["name"] == "vllm"


def files_of(trace: Path) -> dict[int, int]:
    """Number of files of each process, each with rows of that process only."""
    counts: dict[int, int] = {}
    for path in trace.iterdir():
        rows: list[Row] = pq.read_table(path).to_pylist()
        (pid,) = {row["pid"] for row in rows}
        assert f"-{pid}-" in path.name
        counts[pid] = counts.get(pid, 0) + 1
    return counts
