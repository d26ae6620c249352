"""``graphdiag record`` and ``graphdiag attach`` on a real ``vllm serve``, installed by pip."""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphdiag import cli
from tests.collectors.rows import Row, read, steps
from tests.engines.vllm_lab import Lab, logged
from tests.engines.vllm_server import Installed, Server

pytestmark = pytest.mark.slow

Start = Callable[..., Server]


@pytest.fixture(scope="module")
def installed(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(vllm_lab, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def start(installed: Installed, tmp_path: Path) -> Iterator[Start]:
    """Start servers whose sockets lie in a short folder of their own, and end them."""
    runtime = tempfile.mkdtemp(prefix="gd", dir="/tmp")
    servers: list[Server] = []

    def start(*before: object) -> Server:
        log = tmp_path / "steps.log"
        server = Server(installed, tmp_path, before, STEP_LOG=log, XDG_RUNTIME_DIR=runtime)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.kill()
    shutil.rmtree(runtime)


def requests(server: Server, seed: int) -> list[list[int]]:
    """Send requests that overlap, and return their tokens."""
    rng = random.Random(seed)
    work = [
        ([rng.randint(3, 500) for _ in range(rng.randint(4, 30))], rng.randint(5, 40))
        for _ in range(12)
    ]
    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(lambda each: server.complete(*each), work))


def real(trace: Path) -> list[Row]:
    return [row for row in steps(trace) if row["kind"] is None]


def test_record_a_server_until_it_is_interrupted(
    installed: Installed, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start(installed.graphdiag, "record", "-o", "trace.parquet", "--")
    answers = requests(server, 0)
    assert [len(tokens) > 0 for tokens in answers] == [True] * 12
    assert server.end(signal.SIGINT) in (0, 128 + signal.SIGINT)
    said = server.output.read_text()
    told = "graphdiag: recorded into trace.parquet\nNext: graphdiag report trace.parquet\n"
    assert said.count(told) == 1
    worker, ran = logged(tmp_path / "steps.log")
    trace = tmp_path / "trace.parquet"
    assert [row["requested"] for row in real(trace)] == [size for _, size in ran]
    assert sum(row["tokens_out"] for row in real(trace)) == sum(map(len, answers))
    assert len(list(trace.iterdir())) == 1  # the other processes of the engine opened nothing
    assert {row["pid"] for row in read(trace)} == {worker}
    assert cli.run(["report", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == len(ran)


def test_attach_to_a_running_server(installed: Installed, start: Start, tmp_path: Path) -> None:
    server = start()
    pid, log = server.process.pid, tmp_path / "steps.log"
    plain = requests(server, 1)
    before = len(logged(log)[1])
    worker = logged(log)[0]

    told = installed.run("attach", pid, "-o", tmp_path / "one.parquet")
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert [line for line in lines if line.startswith(f"{worker}  vllm 0.32.0")], lines
    assert requests(server, 1) == plain
    during = len(logged(log)[1])
    told = installed.run("status", pid, "--json")
    (status,) = [p for p in json.loads(told.stdout)["processes"] if p["pid"] == worker]
    assert status["trace"] == str(tmp_path / "one.parquet")
    assert status["dropped"] == 0
    told = installed.run("detach", pid)
    assert (told.returncode, told.stderr) == (0, "")
    assert requests(server, 1) == plain
    after = len(logged(log)[1])

    # A second recording, which a SIGTERM ends.
    assert installed.run("attach", pid, "-o", tmp_path / "two.parquet").returncode == 0
    assert requests(server, 1) == plain
    server.end(signal.SIGTERM)
    _until_gone(worker)
    sizes = [size for _, size in logged(log)[1]]
    one, two = (real(tmp_path / f"{name}.parquet") for name in ("one", "two"))
    assert [row["requested"] for row in one] == sizes[before:during]
    assert [row["requested"] for row in two] == sizes[after:]
    assert len(two) > 20
    assert {row["pid"] for row in one + two} == {worker}
    assert {row["run"] for row in one} != {row["run"] for row in two}
    config = json.loads(read(tmp_path / "one.parquet", "run")[-1]["config"])
    assert config["engine"] == "vllm"
    assert config["engine_version"].startswith("0.32")
    assert config["hooks"]["missing"] == {}


def _until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
