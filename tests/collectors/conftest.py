"""A recorder into a temporary folder, with a run id of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdiag_collectors import Recorder


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHDIAG_TRACE", raising=False)
    monkeypatch.setenv("GRAPHDIAG_RUN", "run-of-the-tests")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


@pytest.fixture
def recorder(folder: Path) -> Iterator[Recorder]:
    with Recorder(folder, {"engine": "test"}, phase="decode", rank=3) as recorder:
        yield recorder
