"""Running the command line in this process, with a hand-made report for every source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from graphdiag import cli
from graphdiag.buckets.setting import Setting
from graphdiag.diagnosis import Diagnosis
from graphdiag.findings import Report

GOLDEN = Path(__file__).parents[1] / "reporters" / "golden"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``graphdiag ARGUMENTS``; return its exit code, stdout and stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("GRAPHDIAG_DEBUG", raising=False)

    def run_command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(list(arguments))
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return run_command


@pytest.fixture
def diagnosed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make every source give the hand-made report of a name."""

    def serve(name: str) -> None:
        @contextmanager
        def open_source(paths: Sequence[str]) -> Iterator[str]:
            yield name

        def diagnosis_of(trace: str, source_name: str) -> Diagnosis:
            report = msgspec.json.decode((GOLDEN / f"{trace}.json").read_bytes(), type=Report)
            report = msgspec.structs.replace(report, source=source_name)
            return Diagnosis(report, cast(Setting, None))  # only a page is drawn from the setting

        monkeypatch.setattr("graphdiag.sources.open_source", open_source)
        monkeypatch.setattr("graphdiag.summary.summarize", lambda trace: trace)
        monkeypatch.setattr("graphdiag.diagnosis.diagnosis_of", diagnosis_of)

    return serve


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make opening any source raise."""

    def fail_with(error: BaseException) -> None:
        def open_source(paths: Sequence[str]) -> None:
            raise error

        monkeypatch.setattr("graphdiag.sources.open_source", open_source)

    return fail_with
