from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from graphdiag_collectors import files
from graphdiag_collectors.columns import SCHEMA
from graphdiag_collectors.files import Tail, part_of, parts_and_tails, read_tail, seal
from graphdiag_collectors.schema import FORMAT_KEY
from graphdiag_collectors.tails import TailDamaged


def batch(*requested: int) -> pa.RecordBatch:
    columns = {"event": ["step"] * len(requested), "requested": list(requested)}
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(len(requested), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def sizes(path: Path) -> list[int]:
    if path.suffix == ".parquet":
        return pq.read_table(path)["requested"].to_pylist()
    return [size for found in read_tail(path) for size in found.column("requested").to_pylist()]


def test_a_tail_cut_anywhere_keeps_its_whole_batches(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "_tail-a-0.arrow")
    ends = [tail.path.stat().st_size]
    for place in range(3):
        tail.append(batch(place, place + 10))
        ends.append(tail.path.stat().st_size)
    tail.close()
    data = tail.path.read_bytes()
    cut = tmp_path / "_tail-cut.arrow"
    whole = [0, 10, 1, 11, 2, 12]
    for length in {*range(0, len(data), 97), *ends, *(end - 1 for end in ends), ends[1] + 3}:
        cut.write_bytes(data[:length])
        expected = 2 * sum(end <= length for end in ends[1:])
        assert sizes(cut) == whole[:expected]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("offset", [0, 4, 40, 2000])
def test_damage_within_a_tail_is_no_torn_batch(tmp_path: Path, place: int, offset: int) -> None:
    tail = Tail(tmp_path / "_tail-a-0.arrow")
    ends = [tail.path.stat().st_size]
    for size in range(3):
        tail.append(batch(size, size + 10))
        ends.append(tail.path.stat().st_size)
    tail.close()
    data = bytearray(tail.path.read_bytes())
    begin = ends[place] + offset
    data[begin : begin + 400] = b"\x7f" * 400
    tail.path.write_bytes(data)
    found: list[int] = []
    with pytest.raises(TailDamaged, match=f"damaged after {2 * place} rows; the rows") as damage:
        found.extend(rows.num_rows for rows in read_tail(tail.path))
    assert (damage.value.rows, sum(found)) == (2 * place, 2 * place)
    with pytest.raises(TailDamaged):
        seal(tail.path)
    assert [path.name for path in tmp_path.iterdir()] == ["_tail-a-0.arrow"]


def test_sealing_moves_the_rows_and_leaves_nothing_else(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "_tail-host-1-2-000003.arrow")
    tail.append(batch(1, 2))
    tail.append(batch(3))
    tail.close()
    seal(tail.path)
    part = tmp_path / "part-host-1-2-000003.parquet"
    assert part == part_of(tail.path)
    assert list(tmp_path.iterdir()) == [part]
    assert sizes(part) == [1, 2, 3]


def test_a_part_wins_over_its_tail(tmp_path: Path) -> None:
    for name, size in (("a", 1), ("b", 2)):
        tail = Tail(tmp_path / f"_tail-{name}.arrow")
        tail.append(batch(size))
        tail.close()
    before = (tmp_path / "_tail-a.arrow").read_bytes()
    seal(tmp_path / "_tail-a.arrow")
    (tmp_path / "_tail-a.arrow").write_bytes(before)
    (tmp_path / "_part-b.parquet.tmp").write_bytes(b"half")
    assert [path.name for path in parts_and_tails(tmp_path)] == ["part-a.parquet", "_tail-b.arrow"]


def test_a_failed_write_leaves_the_tail_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = Tail(tmp_path / "_tail-a.arrow")
    tail.append(batch(1))
    before = tail.path.read_bytes()
    write = files.os.write

    def half(file: int, data: memoryview) -> int:
        write(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "write", half)
    with pytest.raises(OSError, match="No space"):
        tail.append(batch(2))
    assert tail.path.read_bytes() == before
    monkeypatch.undo()
    tail.append(batch(3))
    tail.close()
    assert sizes(tail.path) == [1, 3]


def test_a_failed_seal_keeps_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Tail(tmp_path / "_tail-a.arrow")
    tail.append(batch(1))
    tail.close()

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(OSError, match="No space"):
        seal(tail.path)
    assert list(tmp_path.iterdir()) == [tail.path]


def test_many_batches_become_few_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP", 100)
    tail = Tail(tmp_path / "_tail-a.arrow")
    for place in range(25):
        tail.append(batch(*range(place * 10, place * 10 + 10)))
    tail.close()
    seal(tail.path)
    part = part_of(tail.path)
    assert pq.read_metadata(part).num_row_groups == 3
    assert sizes(part) == list(range(250))


def test_other_tools_read_a_part_with_plain_types(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "_tail-a.arrow")
    tail.append(batch(4, 5))
    tail.close()
    seal(tail.path)
    part = part_of(tail.path)
    assert pq.read_schema(part).equals(SCHEMA, check_metadata=False)
    assert pq.read_schema(part).metadata[FORMAT_KEY] == b"1"
    frame = pl.read_parquet(part)
    assert dict(frame.schema) == dict(pl.Schema(SCHEMA))
    assert frame["requested"].to_list() == [4, 5]
    (tmp_path / "_tail-b.arrow").write_bytes(b"live")
    assert pa.dataset.dataset(tmp_path, format="parquet").count_rows() == 2


def test_duckdb_reads_a_folder(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    tail = Tail(tmp_path / "_tail-a.arrow")
    tail.append(batch(4, 5))
    tail.close()
    seal(tail.path)
    (tmp_path / "_tail-b.arrow").write_bytes(b"live")
    found = duckdb.sql(
        f"select event, sum(requested), typeof(any_value(event)), typeof(any_value(t_ns)) "
        f"from '{tmp_path}/*.parquet' group by event"
    ).fetchall()
    assert found == [("step", 9, "VARCHAR", "BIGINT")]
    keys = duckdb.sql(f"select key, value from parquet_kv_metadata('{part_of(tail.path)}')")
    assert json.loads(dict(keys.fetchall())[FORMAT_KEY]) == 1
