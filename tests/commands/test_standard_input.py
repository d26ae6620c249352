"""Standard input as a source, in a process of its own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphdiag.trace import open_trace
from tests.build import step, write

LOG = b"".join(
    b"[2025-07-01 12:00:0%d] Decode batch. #running-req: %d, #token: 900, token usage: 0.01, "
    b"cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 0\n" % (second, second + 3)
    for second in range(5)
)


def graphdiag(*arguments: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "graphdiag", *arguments],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
@pytest.mark.parametrize("data", [LOG, gzip.compress(LOG)], ids=["plain", "gzip"])
def test_a_log(source: str, data: bytes) -> None:
    result = graphdiag("report", source, "--json", given=data)
    assert (result.returncode, result.stderr) == (0, b"")
    report = json.loads(result.stdout)
    assert report["source"] == {"-": "standard input"}.get(source, source)
    assert report["metrics"]["steps"] == 5


def test_a_trace(tmp_path: Path) -> None:
    data = write([step(8, 8)] * 3, tmp_path / "t.parquet").read_bytes()
    result = graphdiag("report", "-", "--json", given=data)
    assert json.loads(result.stdout)["metrics"]["steps"] == 3


def test_import(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    result = graphdiag("import", "-", "-o", str(out), given=LOG)
    assert (result.returncode, result.stderr) == (0, b"")
    assert len(open_trace(out).steps().collect()) == 5


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    nothing = graphdiag("report", "-", given=b"")
    assert nothing.returncode == 2
    expected = b"graphdiag: standard input: the file is empty; there is nothing to read.\n"
    assert nothing.stderr == expected
    twice = graphdiag("report", "-", "-", given=LOG)
    assert twice.stderr == b"graphdiag: standard input: given twice; name each source once.\n"
