from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "reporters" / "golden"
Run = Callable[..., tuple[int, str, str]]
Serve = Callable[[str], None]


@pytest.fixture(autouse=True)
def _padding(diagnosed: Serve) -> None:
    diagnosed("padding")


def test_prints_the_text_report(run: Run) -> None:
    golden = (GOLDEN / "padding.txt").read_text(encoding="utf-8")
    assert run("report", "server.log") == (0, golden, "")


def test_prints_json(run: Run) -> None:
    code, out, err = run("report", "server.log", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((GOLDEN / "padding.json").read_text(encoding="utf-8"))


def test_prints_markdown(run: Run) -> None:
    golden = (GOLDEN / "padding.md").read_text(encoding="utf-8")
    assert run("report", "server.log", "--markdown") == (0, golden, "")


def test_several_sources_are_named_together(run: Run) -> None:
    _, out, _ = run("report", "server.log.1", "server.log", "--json")
    assert json.loads(out)["source"] == "server.log.1, server.log"


def test_a_path_that_is_no_utf8_can_be_printed(run: Run) -> None:
    code, out, _ = run("report", os.fsdecode(b"caf\xe9.log"), "--json")
    assert code == 0
    assert json.loads(out)["source"] == "caf�.log"


def test_a_source_is_required(run: Run) -> None:
    code, out, err = run("report")
    assert (code, out) == (2, "")
    assert "Missing argument 'SOURCE...'" in err


def test_writes_to_a_file_without_colour(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    assert run("report", "server.log", "-o", str(target)) == (0, "", "")
    assert target.read_text(encoding="utf-8") == (GOLDEN / "padding.txt").read_text(
        encoding="utf-8"
    )


def test_a_file_that_cannot_be_written_is_one_sentence(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "report.txt"
    expected = f"graphdiag: {target}: its folder does not exist; make it first.\n"
    assert run("report", "server.log", "-o", str(target)) == (2, "", expected)
    expected = f"graphdiag: {tmp_path}: is a folder; name the file to write in it.\n"
    assert run("report", "server.log", "-o", str(tmp_path)) == (2, "", expected)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_dash_is_standard_output(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", "server.log", *form, "-o", "-") == run("report", "server.log", *form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["report", "server.log"], ["schema"]])
def test_two_forms_are_a_usage_error(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments, "--json", "--markdown")
    assert (code, out) == (2, "")
    assert "Give --json or --markdown, not both." in err


@pytest.mark.parametrize("arguments", [["report"], ["check", "--max-fallback", "1%"]])
def test_an_empty_string_is_no_source(run: Run, arguments: list[str]) -> None:
    for sources in ([""], ["server.log", ""]):
        code, out, err = run(*arguments, *sources)
        assert (code, out) == (2, "")
        assert "an empty string names no file" in err


def test_never_overwrites_its_own_source(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("precious")
    code, _, err = run("report", str(log), "--json", "-o", str(log))
    assert code == 2
    assert err == f"graphdiag: {log}: is the source itself; name another output file.\n"
    assert log.read_text() == "precious"


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("20", 40), ("500", 100), ("x", 80)])
def test_columns_sets_the_width_within_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run("report", "server.log")
    longest = max(map(len, out.splitlines()))
    assert width - 12 < longest <= width


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_only_on_a_terminal_that_wants_it(
    diagnosed: Serve,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    coloured: bool,
) -> None:
    from graphdiag.commands import common

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    report = common.diagnose(["server.log"])
    names = {"markdown": "markdown", "text": "text"}
    assert ("\x1b[" in common.rendered(report, None, to_terminal=True, **names)) is coloured
    assert "\x1b[" not in common.rendered(report, None, to_terminal=False, **names)


def test_a_real_log_end_to_end(run: Run, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    log = shared / "cases" / "vllm_truncated_max" / "server.log"
    code, out, err = run("report", str(log))
    assert (code, err) == (0, "")
    assert out.startswith("Verdict: Case 3")
    assert "--cudagraph-capture-sizes" in out
    assert max(map(len, out.splitlines())) <= 80
