from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], str]]:
    """Calls of the importer, which writes a file and answers 12,034 rows."""
    calls: list[tuple[Sequence[str], str]] = []

    def import_source(paths: Sequence[str], out: str) -> int:
        calls.append((paths, out))
        Path(out).write_text("new")
        return 12034

    monkeypatch.setattr("graphdiag.sources.import_source", import_source)
    return calls


def test_says_what_was_written_and_what_to_run_next(
    run: Run, tmp_path: Path, imported: list[tuple[Sequence[str], str]]
) -> None:
    out = str(tmp_path / "my trace.parquet")
    assert run("import", "a.log", "b.log", "-o", out) == (
        0,
        f"Wrote 12,034 rows to {out}.\nNext: graphdiag report '{out}'\n",
        "",
    )
    assert imported == [(("a.log", "b.log"), out)]


def test_refuses_to_overwrite_without_force(
    run: Run, tmp_path: Path, imported: list[tuple[Sequence[str], str]]
) -> None:
    out = tmp_path / "trace.parquet"
    out.write_text("old")
    code, _, err = run("import", "a.log", "-o", str(out))
    assert code == 2
    assert err == f"graphdiag: {out}: exists already; name another file or give --force.\n"
    assert (out.read_text(), imported) == ("old", [])
    assert run("import", "a.log", "-o", str(out), "--force")[0] == 0
    assert out.read_text() == "new"


def test_force_never_overwrites_the_source(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(log)
    code, _, err = run("import", str(log), "-o", str(link), "--force")
    assert code == 2
    assert "is the source itself" in err
    assert log.read_text() == "precious"


def test_an_output_that_is_no_file_is_refused_at_once(
    run: Run, tmp_path: Path, imported: list[tuple[Sequence[str], str]]
) -> None:
    for output, why in (
        (str(tmp_path), "is a folder; name the file to write in it."),
        (str(tmp_path / "no" / "t.parquet"), "its folder does not exist; make it first."),
        ("-", "a trace is not written to standard output; name a file."),
    ):
        assert run("import", "a.log", "-o", output) == (2, "", f"graphdiag: {output}: {why}\n")
    code, _, err = run("import", "a.log", "-o", "")
    assert (code, "an empty string names no file" in err) == (2, True)
    assert imported == []


def test_an_output_is_required(run: Run) -> None:
    code, _, err = run("import", "a.log")
    assert code == 2
    assert "Missing option '-o' / '--output'" in err
