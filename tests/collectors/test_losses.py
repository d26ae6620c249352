"""What could not be recorded is told: in the trace where that can be written, else on stderr."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from graphdiag_collectors import Recorder
from graphdiag_collectors.files import Tail
from graphdiag_collectors.guard import Hooks
from tests.collectors.rows import read, steps


def test_losses_that_the_trace_cannot_tell_are_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path / "trace.parquet")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Tail, "_write", full)
    for _ in range(1200):
        recorder.record(requested=4)
    recorder.close()
    assert capsys.readouterr().err == (
        f"graphdiag: 1,200 rows could not be recorded in {tmp_path / 'trace.parquet'} "
        "(OSError: [Errno 28] No space left on device)\n"
    )


def test_losses_that_the_trace_tells_are_not_told_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path / "trace.parquet")
    recorder.record(requested=0)
    recorder.close()
    assert capsys.readouterr().err == ""
    assert [row["kind"] for row in read(tmp_path / "trace.parquet", "mark")] == ["dropped"]


def test_a_failure_of_a_hook_that_writes_rows_costs_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trace.parquet")
    hooks = Hooks(lambda: recorder)
    steps_hook, other = hooks.guard("mine.step", rows=True), hooks.guard("mine.keys")
    for guard in (steps_hook, other):
        guard.failed(ValueError("once"))
        guard.in_a_row = 0
        for _ in range(3):
            guard.failed(ValueError("always"))
    recorder.close()
    marks = read(tmp_path / "trace.parquet", "mark")
    (lost,) = [mark for mark in marks if mark["kind"] == "dropped"]
    assert lost["weight"] == 4
    assert json.loads(lost["config"])["why"] == "mine.step raised ValueError: always"
    off = [json.loads(mark["config"])["hook"] for mark in marks if mark["kind"] == "hook_off"]
    assert off == ["mine.step", "mine.keys"]
    assert steps(tmp_path / "trace.parquet") == []
