"""The examples of the pages in ``docs`` are what this version prints."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest

from tests.conftest import ROOT

Run = Callable[..., tuple[int, str, str]]


def _examples(page: str) -> list[tuple[str, str]]:
    """Return (command, output) of each block of a page that shows both."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```\n\$ (graphdiag [^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "examples"),
    [("report.md", 1), ("check.md", 4), ("buckets.md", 1), ("compare.md", 1)],
)
def test_the_examples_are_real(
    page: str, examples: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = _examples(page)
    assert len(found) == examples
    for command, shown in found:
        _, out, err = run(*shlex.split(command)[1:])
        at = 0
        for excerpt in shown.split("...\n"):
            at = (out + err).find(excerpt, at)
            assert at >= 0, f"{page}: `{command}` does not print:\n{excerpt}"
            at += len(excerpt)


def test_the_json_example_is_real(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ((command, shown),) = _examples("json.md")
    _, out, _ = run(*shlex.split(command.split("|")[0])[1:])
    report = json.loads(out)
    wanted = [report["verdict"]["case"], report["metrics"]["padding_ratio"]]
    assert [json.loads(line) for line in shown.splitlines()] == wanted
