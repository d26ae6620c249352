"""``graphdiag profile`` on the real vLLM on a CPU, under ``graphdiag record``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attachable import until
from tests.collectors.rows import read, steps
from tests.engines.vllm_lab import COLLECTORS, HERE, Lab, logged

pytestmark = pytest.mark.slow

GRAPHDIAG = (sys.executable, "-m", "graphdiag")


@pytest.fixture
def runtime() -> Iterator[str]:
    """A folder whose path is short enough for a socket's."""
    folder = tempfile.mkdtemp(prefix="gd", dir="/tmp")
    yield folder
    shutil.rmtree(folder)


def test_five_steps_of_a_recorded_engine(vllm_lab: Lab, tmp_path: Path, runtime: str) -> None:
    trace, stop, log = tmp_path / "trace.parquet", tmp_path / "stop", tmp_path / "steps.log"
    script = (vllm_lab.python, str(HERE / "vllm_profiled.py"), str(vllm_lab.home / "tiny"))
    folders = (vllm_lab.home / "collector", COLLECTORS)
    variables = vllm_lab.environment(*folders, STEP_LOG=log, XDG_RUNTIME_DIR=runtime)
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        engine = subprocess.Popen(
            [*GRAPHDIAG, "record", "-o", str(trace), "--", *script, str(stop)],
            env=variables,
            stdout=out,
            stderr=err,
        )
    try:
        said = lambda: (tmp_path / "out").read_text()  # noqa: E731
        until(lambda: "ready" in said() or engine.poll() is not None, 300)
        assert engine.poll() is None, (tmp_path / "err").read_text()[-3000:]
        command = [*GRAPHDIAG, "profile", str(engine.pid), "--steps", "5"]
        told = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        assert (told.returncode, told.stderr) == (0, "")
        assert "5 steps profiled" in told.stdout
        stop.touch()
        assert engine.wait(120) == 0
    finally:
        engine.kill()
        engine.wait()
    answer = json.loads(next(line for line in said().splitlines() if line.startswith("{")))
    assert answer["same"]
    assert answer["rounds"] > 1
    worker, ran = logged(log)
    rows = [row for row in steps(trace) if row["kind"] is None]
    assert [row["requested"] for row in rows] == [size for _, size in ran]
    assert sorted(row["step"] for row in rows) == [row["step"] for row in rows]
    assert {row["pid"] for row in rows} == {worker}
    assert sum(row["tokens_out"] for row in rows) == answer["rounds"] * sum(
        map(len, answer["tokens"])
    )
    profiled = [place for place, row in enumerate(rows) if row["launches"] is not None]
    assert profiled == list(range(profiled[0], profiled[0] + 5))
    for place in profiled:
        row = rows[place]
        assert row["launches"] == 0  # on a CPU
        assert 0 < row["host_ns"] <= row["dur_ns"]
        assert row["dispatch_ns"] > 0
    (mark,) = [row for row in read(trace, "mark") if row["kind"] == "profile_window"]
    assert json.loads(mark["config"])["steps"] == 5
    run = json.loads(read(trace, "run")[1]["config"])
    assert run["hooks"]["failures"] == {}
