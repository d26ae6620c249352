from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphdiag_collectors import Recorder
from graphdiag_collectors.files import Tail
from graphdiag_collectors.pack import pack
from graphdiag_collectors.schema import FORMAT_KEY
from tests.collectors.test_files import batch, sizes


@pytest.fixture
def recorded(folder: Path) -> Path:
    """A folder with two sealed parts and a torn live tail."""
    for size in (1, 2):
        with Recorder(folder) as recorder:
            recorder.record(requested=size)
    tail = Tail(folder / "_tail-zz-1-1-000000.arrow")
    tail.append(batch(3, 4))
    tail.append(batch(5))
    tail.close()
    tail.path.write_bytes(tail.path.read_bytes()[:-9])
    return folder


def test_parts_and_tails_become_one_file(recorded: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in recorded.iterdir())
    target = tmp_path / "packed.parquet"
    assert pack(recorded, target) == 6  # two runs with a step each, and a batch of two
    assert [size for size in sizes(target) if size is not None] == [1, 2, 3, 4]
    assert pq.read_metadata(target).metadata[FORMAT_KEY] == b"1"
    assert sorted(path.name for path in recorded.iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed.parquet", "trace.parquet"]


def test_a_damaged_tail_is_named(recorded: Path, tmp_path: Path) -> None:
    (tail,) = recorded.glob("_tail-*")
    tail.write_bytes(tail.read_bytes() + b"more than a torn batch")
    with pytest.raises(ValueError, match="damaged after 2 rows; the rows after that are") as caught:
        pack(recorded, tmp_path / "packed.parquet")
    assert tail.name in str(caught.value)
    assert not (tmp_path / "packed.parquet").exists()


def test_paths_that_are_not_utf8(recorded: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        recorded.rename(odd)
    except OSError:
        pytest.skip("this file system takes no names that are not UTF-8")
    target = tmp_path / os.fsdecode(b"p\xe9.parquet")
    assert pack(odd, target) == 6
    target.rename(tmp_path / "packed.parquet")
    assert pq.read_metadata(tmp_path / "packed.parquet").num_rows == 6


def test_what_may_not_be_read_is_named(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = min(recorded.glob("part-*"))
    opened = Path.open

    def refuse(path: Path, *arguments: str) -> IO[Any]:
        if path == part:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ValueError, match="you may not read it; check its permissions") as caught:
        pack(recorded, tmp_path / "packed.parquet")
    assert str(caught.value).startswith(f"{part}: ")

    def refuse_folder(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse_folder)
    with pytest.raises(ValueError, match="you may not read it; check its permissions") as caught:
        pack(recorded, tmp_path / "packed.parquet")
    assert str(caught.value).startswith(f"{recorded}: ")


def test_a_folder_still_being_recorded_into(recorder: Recorder, folder: Path) -> None:
    recorder.record(requested=7)
    recorder.flush()
    assert pack(folder, folder.parent / "packed.parquet") == 2


def test_a_part_of_an_older_writer_gets_the_columns_it_lacks(
    recorded: Path, tmp_path: Path
) -> None:
    table = pa.table({"event": ["step"], "requested": pa.array([8], pa.int64()), "extra": [1]})
    table = table.replace_schema_metadata({FORMAT_KEY: b"1"})
    pq.write_table(table, recorded / "part-a-0-0-000000.parquet")
    target = tmp_path / "packed.parquet"
    assert pack(recorded, target) == 7
    assert sizes(target)[0] == 8


def test_bad_input_is_one_sentence(tmp_path: Path, recorded: Path) -> None:
    target = tmp_path / "packed.parquet"
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no such folder; name the one"):
        pack(tmp_path / "nowhere", target)
    with pytest.raises(ValueError, match="not a folder"):
        pack(next(recorded.glob("part-*")), target)
    with pytest.raises(ValueError, match="no rows to pack"):
        pack(tmp_path / "empty", target)
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        pack(recorded, tmp_path / "nowhere" / "packed.parquet")
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has zero bytes; remove it from the folder to pack the rest"),
        (b"PAR1 and no more", "damaged, it is no whole Parquet"),
        (None, "no part of a trace"),
        (b"2", "trace format 2 is not format 1"),
    ],
)
def test_a_bad_part_is_named(
    recorded: Path, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    part = recorded / "part-a-0-0-000000.parquet"
    if content is not None and len(content) != 1:
        part.write_bytes(content)
    else:
        metadata = {FORMAT_KEY: content} if content else None
        pq.write_table(pa.table({"event": ["step"]}).replace_schema_metadata(metadata), part)
    with pytest.raises(ValueError, match=sentence) as caught:
        pack(recorded, tmp_path / "packed.parquet")
    assert part.name in str(caught.value)
    assert not (tmp_path / "packed.parquet").exists()
