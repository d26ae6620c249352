from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Run = Callable[..., tuple[int, str, str]]
Pack = Callable[[str, str], int]


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pack], None]:
    """Put a function in the place of the collectors' ``pack``."""

    def use(pack: Pack) -> None:
        module = ModuleType("graphdiag_collectors.pack")
        module.pack = pack  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "graphdiag_collectors.pack", module)

    return use


def test_says_what_was_written_and_what_to_run_next(
    run: Run, packing: Callable[[Pack], None]
) -> None:
    packing(lambda folder, file: 7)
    assert run("pack", "recording.parquet", "out.parquet") == (
        0,
        "Wrote 7 rows to out.parquet.\nNext: graphdiag report out.parquet\n",
        "",
    )


@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError])
def test_a_bad_folder_is_one_sentence(
    run: Run, packing: Callable[[Pack], None], kind: type[Exception]
) -> None:
    def pack(folder: str, file: str) -> int:
        raise kind(f"{folder}: holds no part; give the folder that a recorder wrote.")

    packing(pack)
    code, out, err = run("pack", "folder", "out.parquet")
    assert (code, out) == (2, "")
    assert err == "graphdiag: folder: holds no part; give the folder that a recorder wrote.\n"


def test_what_cannot_be_written_is_one_sentence(run: Run, packing: Callable[[Pack], None]) -> None:
    def pack(folder: str, file: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "_x.parquet.tmp")

    packing(pack)
    sentence = "x.parquet: you may not write there; name a file in another folder."
    assert run("pack", "folder", "x.parquet") == (2, "", f"graphdiag: {sentence}\n")


def test_an_empty_string_is_no_folder(run: Run, packing: Callable[[Pack], None]) -> None:
    packing(lambda folder, file: pytest.fail("must not pack"))
    for arguments in (["", "x.parquet"], ["folder", ""]):
        code, _, err = run("pack", *arguments)
        assert (code, "an empty string names no file" in err) == (2, True)


def test_refuses_to_write_into_the_folder_or_over_a_file(
    run: Run, packing: Callable[[Pack], None], tmp_path: Path
) -> None:
    packing(lambda folder, file: pytest.fail("must not pack"))
    folder, file = tmp_path / "recording", tmp_path / "out.parquet"
    folder.mkdir()
    file.write_text("old")
    code, _, err = run("pack", str(folder), str(folder / "out.parquet"))
    assert (code, "lies in the folder to pack" in err) == (2, True)
    code, _, err = run("pack", str(folder), str(file))
    assert (code, "exists already" in err) == (2, True)
    code, _, err = run("pack", str(folder), str(folder), "--force")
    assert (code, "is the source itself" in err) == (2, True)
