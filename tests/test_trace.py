import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag import parts, places
from graphdiag.errors import SourceError
from graphdiag.summary import summarize
from graphdiag.trace import open_trace
from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import FORMAT_KEY, arrow_schema
from tests.build import event, step, table, write
from tests.recordings import folder, is_trace, requested, sentence, tail

ROWS = [event("run", config={"engine": "vllm"}), step(3, 4, 1.0), step(9, None, 2.0)]


# --- a folder that is being written -----------------------------------------------------------


def test_folder_of_parts_and_tails(tmp_path):
    path = folder(tmp_path / "t", part_a=[step(1, 1)], part_b=[step(2, 2)], tail_c=[step(3, 3)])
    assert requested(open_trace(path)) == [1, 2, 3]


def test_tail_whose_part_is_there_is_left_out(tmp_path):
    path = folder(tmp_path / "t", part_a=[step(1, 1)], tail_a=[step(1, 1)], tail_b=[step(2, 2)])
    assert requested(open_trace(path)) == [1, 2]
    assert sorted(requested(open_trace([*path.iterdir()]))) == [1, 2]
    assert sorted(requested(open_trace(str(path / "*")))) == [1, 2]


def test_unfinished_and_hidden_files_are_left_out(tmp_path):
    path = folder(tmp_path / "t", part_a=[step(1, 1)])
    (path / "_part-b.parquet.tmp").write_bytes(b"PAR1")
    (path / "_other.parquet").write_bytes(b"PAR1")
    (path / ".hidden.parquet").write_bytes(b"PAR1")
    (path / "README.txt").write_text("hello")
    opened = open_trace(path)
    assert requested(opened) == [1]
    assert opened.notes == ()


def test_tail_torn_at_every_byte_keeps_its_whole_batches():
    sizes = [len(tail([step(1, 1)] * n, whole=False)) for n in range(3)]
    data = tail([step(1, 1)] * 2, whole=False)
    for cut in [*range(0, sizes[1], 29), *range(sizes[1], len(data) + 1)]:
        whole = sum(cut >= size for size in sizes[1:])
        rows, note = parts.read_tail("tail", io.BytesIO(data[:cut]))
        assert (len(rows.rows), note) == (whole, None), cut


def test_torn_tail_of_a_folder(tmp_path):
    data = tail([step(1, 1), step(2, 2)], whole=False)
    path = folder(tmp_path / "t", part_a=[step(7, 8)], tail_b=data[:-1])
    opened = open_trace(path)
    assert requested(opened) == [7, 1]
    assert opened.notes == ()


def test_tail_with_zeroes_at_its_end(tmp_path):
    data = tail([step(1, 1), step(2, 2)], whole=False) + bytes(4096)
    opened = open_trace(folder(tmp_path / "t", tail_a=data))
    assert requested(opened) == [1, 2]
    assert "is damaged after 2 rows" in opened.notes[0]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_damage_in_a_tail_is_told(tmp_path, at):
    rows = [step(size, 8) for size in (1, 2, 3)]
    data = bytearray(tail(rows, whole=False))
    begin = len(tail(rows[:at], whole=False))
    data[begin : begin + 400] = b"\x55" * 400
    path = folder(tmp_path / "t", part_a=[step(7, 8)], tail_b=bytes(data))
    opened = open_trace(path)
    assert requested(opened) == [7, 1, 2][: at + 1]
    assert opened.notes == (
        f"{path / '_tail-b.arrow'} is damaged after {at} rows; the rows after that are missing.",
    )


def test_damaged_schema_of_a_tail_is_told(tmp_path):
    data = bytearray(tail([step(1, 8)], whole=False))
    data[100:300] = b"\x55" * 200
    path = folder(tmp_path / "t", part_a=[step(7, 8)], tail_b=bytes(data))
    assert "_tail-b.arrow is damaged after 0 rows" in open_trace(path).notes[0]


def test_damaged_tail_named_alone_is_told(tmp_path):
    path = folder(tmp_path / "t", tail_a=tail([step(1, 1), step(2, 2)], whole=False) + b"more")
    opened = open_trace(path / "_tail-a.arrow")
    assert requested(opened) == [1, 2]
    assert "_tail-a.arrow is damaged after 2 rows" in opened.notes[0]


@given(st.integers(0, 2000), st.integers(1, 255))
def test_damaged_tail_never_raises_anything_else(position, change):
    data = bytearray(tail([step(1, 1)] * 2, whole=False))
    position = position * len(data) // 2001
    data[position] ^= change
    try:
        rows = parts.read_tail("tail", io.BytesIO(data))[0].rows
    except SourceError:
        return
    assert len(rows) <= 2


def test_zero_byte_tail_beside_a_part(tmp_path):
    assert requested(open_trace(folder(tmp_path / "t", part_a=[step(1, 1)], tail_b=b""))) == [1]


@pytest.mark.parametrize("begun", [b"", tail([], whole=False)[:50], tail([], whole=False)])
def test_recording_that_has_only_begun(tmp_path, begun):
    path = folder(tmp_path / "t", tail_a=begun)
    with pytest.raises(SourceError, match="only begun; try again in a second") as error:
        open_trace(path)
    sentence(error)


def test_tail_that_becomes_a_part_while_we_look(tmp_path, monkeypatch):
    path = folder(tmp_path / "t", tail_a=[step(1, 1)], tail_b=[step(2, 2)])
    sealing = [path / "_tail-a.arrow"]
    opening = places.Place.open

    def seal_first(self):
        if sealing:
            write_part(path / "part-a.parquet", table([step(1, 1)]).to_batches())
            sealing.pop().unlink()
        return opening(self)

    monkeypatch.setattr(places.Place, "open", seal_first)
    assert requested(open_trace(path)) == [1, 2]


def test_tail_that_becomes_a_part_between_the_two_listings(tmp_path, monkeypatch):
    path = folder(tmp_path / "t", tail_a=[step(1, 1)])
    listing = places.Place.children
    looks = []

    def seal_after_first(self):
        found = listing(self)
        looks.append(found)
        if len(looks) == 1:
            write_part(path / "part-a.parquet", table([step(1, 1)]).to_batches())
            (path / "_tail-a.arrow").unlink()
        return found

    monkeypatch.setattr(places.Place, "children", seal_after_first)
    assert requested(open_trace(path)) == [1]


def test_tails_that_vanish_again_and_again(tmp_path, monkeypatch):
    path = folder(tmp_path / "t", tail_a=[step(1, 1)])

    def gone(self):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(places.Place, "open", gone)
    with pytest.raises(SourceError, match="its tails change too fast; try again"):
        open_trace(path)


def test_part_of_zero_bytes_is_a_note(tmp_path):
    opened = open_trace(folder(tmp_path / "t", part_a=[step(1, 1)], part_b=b""))
    assert requested(opened) == [1]
    (note,) = opened.notes
    assert note.endswith("part-b.parquet has zero bytes; the rows it should hold are missing.")
    assert summarize(opened).notes == opened.notes


def test_truncated_part_is_a_note(tmp_path):
    data = write([step(2, 2)], tmp_path / "x.parquet").read_bytes()
    opened = open_trace(folder(tmp_path / "t", part_a=[step(1, 1)], part_b=data[: len(data) // 2]))
    assert requested(opened) == [1]
    (note,) = opened.notes
    assert note.startswith("The rows of a part are missing: ")
    assert "part-b.parquet: damaged" in note


def test_folder_that_may_not_be_listed(tmp_path, monkeypatch):
    path = folder(tmp_path / "t", part_a=[step(1, 1)])

    def forbidden(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(places.Place, "children", forbidden)
    with pytest.raises(SourceError, match="you may not read it"):
        open_trace(path)


def test_tail_that_may_not_be_read(tmp_path, monkeypatch):
    path = folder(tmp_path / "t", part_a=[step(1, 1)], tail_b=[step(2, 2)])
    opening = places.Place.open

    def forbidden(self):
        if self.path.endswith(".arrow"):
            raise PermissionError(13, "Permission denied")
        return opening(self)

    monkeypatch.setattr(places.Place, "open", forbidden)
    with pytest.raises(SourceError, match=r"_tail-b\.arrow: you may not read it"):
        open_trace(path)


def test_folder_whose_parts_are_all_damaged(tmp_path):
    path = folder(tmp_path / "t", part_a=b"", part_b=b"PAR1")
    with pytest.raises(SourceError, match=r"no rows to read: .*part-a\.parquet has zero bytes"):
        open_trace(path)


@pytest.mark.parametrize("files", [{}, {"README.txt": b"hi"}, {"server.log": b"INFO"}])
def test_folder_without_rows(tmp_path, files):
    path = folder(tmp_path / "t")
    for name, content in files.items():
        (path / name).write_bytes(content)
    with pytest.raises(SourceError, match=r"holds no part-.*\.parquet and no live tail") as error:
        open_trace(path)
    sentence(error)


def test_newer_format_within_a_folder_is_refused(tmp_path):
    path = folder(tmp_path / "t", part_a=[step(1, 1)])
    rows = table(ROWS).replace_schema_metadata({FORMAT_KEY: b"2"})
    pq.write_table(rows, path / "part-b.parquet")
    with pytest.raises(SourceError, match=r"part-b\.parquet: trace format 2 is newer"):
        open_trace(path)


def test_newer_format_of_a_tail_is_refused(tmp_path):
    schema = arrow_schema().with_metadata({FORMAT_KEY: b"2"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table(ROWS).cast(schema))
    path = folder(tmp_path / "t", tail_a=sink.getvalue().to_pybytes())
    with pytest.raises(SourceError, match=r"_tail-a\.arrow: trace format 2 is newer"):
        open_trace(path)


def test_folder_within_a_folder_is_a_note(tmp_path):
    path = folder(tmp_path / "t", part_a=[step(1, 1)])
    folder(path / "inner.parquet", part_a=[step(2, 2)])
    opened = open_trace(path)
    assert requested(opened) == [1]
    assert "inner.parquet is a folder and was not read" in opened.notes[0]


def test_tail_given_itself(tmp_path):
    path = folder(tmp_path / "t", tail_a=[step(1, 1)]) / "_tail-a.arrow"
    assert is_trace(str(path))
    assert requested(open_trace(path)) == [1]
    path.write_bytes(b"nonsense")
    with pytest.raises(SourceError, match="no whole batch of rows is in it; give its folder"):
        open_trace(path)


# --- recognition ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.parquet", b"PAR1....", True),
        ("t.log", b"PAR1....", True),
        ("t.parquet", b"", True),
        ("t.log", b"", False),
        ("t.parquet", b"INFO 12:00", False),
        ("t.json", b'{"traceEvents"', False),
        ("t.json.gz", b"\x1f\x8b\x08\x00", False),
        ("_tail-a.arrow", b"\xff\xff\xff\xff\x10", True),
    ],
)
def test_recognised_by_content(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert is_trace(str(tmp_path / name)) is expected
    assert is_trace(f"file://{tmp_path / name}") is expected


def test_folder_is_a_trace_and_nothing_is_none(tmp_path):
    assert is_trace(str(tmp_path))
    assert not is_trace(str(tmp_path / "nothing"))
