"""What happens to a recording when the world around it does not behave."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdiag_collectors import Recorder
from graphdiag_collectors.schema import DROPPED
from tests.collectors.rows import read, steps


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(script: str, *arguments: object) -> str:
    process = start(script, *arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output


def names(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


_TWO = """
    import sys
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1], rank=int(sys.argv[2]))
    for size in range(1, 1001):
        with recorder.step(requested=size) as step:
            step.replayed(bucket=1024, artifact="decode/1024")
"""


def test_two_processes_record_into_one_folder_and_seal_at_exit(folder: Path) -> None:
    processes = [start(_TWO, folder, rank) for rank in (0, 1)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert names(folder) == ["part", "part"]
    for rank, process in enumerate(processes):
        rows = [row for row in steps(folder) if row["rank"] == rank]
        assert [row["requested"] for row in rows] == list(range(1, 1001))
        assert {row["pid"] for row in rows} == {process.pid}
    assert {row["run"] for row in read(folder)} == {"run-of-the-tests"}


_KILLED = """
    import sys, time
    from graphdiag_collectors import Recorder, writer
    writer.PART_ROWS = 800
    recorder = Recorder(sys.argv[1])
    print("recording", flush=True)
    while True:
        with recorder.step(requested=9) as step:
            step.replayed(bucket=16, artifact="decode/16")
            time.sleep(0.001)
"""


def test_kill_9_loses_at_most_the_last_second(folder: Path) -> None:
    process = start(_KILLED, folder)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while "_tail" not in names(folder) or "part" not in names(folder):
        assert time.monotonic() < deadline, names(folder)
        time.sleep(0.05)
    time.sleep(1.2)
    sealed = {path: path.read_bytes() for path in folder.glob("part-*")}
    killed = time.time_ns()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert all(path.read_bytes() == data for path, data in sealed.items())
    rows = steps(folder)
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert killed - rows[-1]["t_ns"] < 1_300_000_000
    assert {row["outcome"] for row in rows} == {"padded"}


_FORKED = """
    import os, sys
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1], {"engine": "mine"})
    draft = recorder.channel(runner="draft")
    with recorder.step(requested=1) as step:
        step.replayed(1, "before")
    child = os.fork()
    name = "parent" if child else "child"
    for size in range(2, 5):
        with recorder.step(requested=size) as step:
            step.replayed(size, name)
    with draft.step(requested=9) as step:
        step.replayed(9, name)
    recorder.mark(name)
    recorder.close()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    print(child)
"""


def test_a_forked_child_has_files_of_its_own(folder: Path) -> None:
    child = int(run(_FORKED, folder))
    assert names(folder) == ["part", "part"]
    of_child = [row for row in steps(folder) if row["pid"] == child]
    of_parent = [row for row in steps(folder) if row["pid"] != child]
    assert sorted((row["artifact"], row["requested"]) for row in of_parent) == [
        ("before", 1),
        *(("parent", size) for size in (2, 3, 4, 9)),
    ]
    assert sorted((row["artifact"], row["runner"], row["step"]) for row in of_child) == [
        ("child", "draft", 0),
        *(("child", "target", index) for index in (0, 1, 2)),
    ]
    assert sorted(row["kind"] for row in read(folder, "mark")) == ["child", "parent"]
    configs = [json.loads(row["config"])["engine"] for row in read(folder, "run")]
    assert configs == ["mine", "mine"]


_IDLE_FORK = """
    import os, sys
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1])
    if os.fork() == 0:
        sys.exit(0)  # atexit runs here too
    os.wait()
    recorder.record(requested=1)
"""


def test_a_forked_child_that_records_nothing_leaves_nothing(folder: Path) -> None:
    run(_IDLE_FORK, folder)
    assert names(folder) == ["part"]
    assert len(steps(folder)) == 1


_POOL = """
    import multiprocessing, sys
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1])
    def work(size):
        recorder.record(requested=size)
    process = multiprocessing.get_context("fork").Process(target=work, args=(7,))
    process.start()
    process.join()
"""


def test_a_child_of_multiprocessing_seals_although_it_skips_atexit(folder: Path) -> None:
    run(_POOL, folder)
    assert names(folder) == ["part", "part"]
    assert [row["requested"] for row in steps(folder)] == [7]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "graphdiag-test", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_drops_rows_counts_them_and_recovers(small_disk: Path) -> None:
    folder = small_disk / "trace.parquet"
    recorder = Recorder(folder)
    recorder.record(requested=1)
    recorder.flush()
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    for size in range(2, 10_002):
        recorder.record(requested=size, num_tokens=size * size % 1013, kv_tokens=size**2)
    recorder.flush()
    lost = recorder.status().dropped
    assert lost == 10_000
    assert "No space" in (recorder.status().error or "")
    ballast.unlink()
    recorder.record(requested=10_002)
    recorder.close()
    assert names(folder) == ["part"]
    rows = steps(folder)
    assert [row["requested"] for row in rows] == [1, 10_002]
    assert [row["step"] for row in rows] == [0, 10_001]
    (mark,) = read(folder, "mark")
    assert (mark["kind"], mark["weight"]) == (DROPPED, lost)
    assert "No space" in json.loads(mark["config"])["why"]


_LIMITED = """
    import resource, sys
    from graphdiag_collectors import Recorder
    recorder = Recorder(sys.argv[1])
    recorder.record(requested=1)
    recorder.flush()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    for size in range(10_000):
        recorder.record(requested=size, kv_tokens=size * size)
    recorder.flush()
    assert recorder.status().dropped == 10_000, recorder.status()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    recorder.record(requested=2)
"""


def test_a_file_that_may_not_grow_is_like_a_full_disk(folder: Path) -> None:
    run(_LIMITED, folder)
    assert names(folder) == ["part"]
    assert [row["requested"] for row in steps(folder)] == [1, 2]
    assert [row["weight"] for row in read(folder, "mark")] == [10_000]


def test_a_removed_folder_costs_its_rows_and_comes_back(folder: Path) -> None:
    with Recorder(folder, {"engine": "mine"}) as recorder:
        recorder.record(requested=1)
        recorder.flush()
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        recorder.record(requested=2)
        recorder.flush()
        recorder.record(requested=3)
    assert [row["requested"] for row in steps(folder)] == [2, 3]
    assert sum(row["weight"] for row in read(folder, "mark")) == 2  # the run event and a step
    (again,) = read(folder, "run")
    assert json.loads(again["config"])["engine"] == "mine"


def test_a_folder_that_cannot_come_back_is_only_counted(folder: Path) -> None:
    recorder = Recorder(folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    recorder.record(requested=1)
    recorder.flush()
    recorder.record(requested=2)
    recorder.close()
    assert recorder.status().dropped == 3
    assert recorder.status().rows == 0
    assert folder.read_text() == "in the way"


_MEMORY = """
    import resource, sys
    from graphdiag_collectors import Recorder, writer
    writer.PART_ROWS = 200_000
    recorder = Recorder(sys.argv[1])
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    peaks = []
    for _ in range(30):
        for _ in range(50_000):
            with recorder.step(requested=9) as step:
                step.replayed(bucket=16, artifact="decode/16")
        recorder.flush()
        peaks.append(resident())
    assert recorder.status().dropped == 0, recorder.status()
    print(max(peaks[:15]), max(peaks[15:]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc/self/statm")
def test_a_million_and_a_half_steps_do_not_grow_memory(folder: Path) -> None:
    first, second = map(int, run(_MEMORY, folder).split())
    assert second - first < 60_000_000
    assert len(list(folder.glob("part-*"))) == 8
