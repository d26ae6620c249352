import os
from math import nan

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from graphdiag import parts, places
from graphdiag.errors import SourceError
from graphdiag.summary import summarize
from graphdiag.timerange import TimeRange
from graphdiag.trace import open_trace
from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import FORMAT_KEY, column_names
from tests.build import START_NS, event, step, table, trace, write
from tests.recordings import folder, is_trace, requested, sentence

ROWS = [event("run", config={"engine": "vllm"}), step(3, 4, 1.0), step(9, None, 2.0)]


# --- a file -----------------------------------------------------------------------------------


def test_file_has_every_column_in_order(tmp_path):
    opened = open_trace(write(ROWS, tmp_path / "trace.parquet"))
    assert opened.frame.collect_schema().names() == column_names()
    assert requested(opened) == [3, 9]
    assert opened.source == str(tmp_path / "trace.parquet")
    assert opened.notes == ()


def test_file_as_the_recorder_seals_it(tmp_path):
    path = tmp_path / "part-1.parquet"
    write_part(path, table(ROWS).to_batches())
    assert requested(open_trace(path)) == [3, 9]


def test_events_are_the_other_rows_by_time(tmp_path):
    rows = [event("mark", 5.0, kind="late"), step(1, 1), event("run", 2.0), event("memory", 2.0)]
    events = open_trace(write(rows, tmp_path / "t.parquet")).events()
    assert events["event"].to_list() == ["run", "memory", "mark"]


def test_missing_columns_are_null_and_unknown_ones_left_out(tmp_path):
    few = table(ROWS).select(["event", "t_ns", "requested"])
    few = few.append_column("mine", pa.array([[1], [2], [3]]))
    pq.write_table(few.replace_schema_metadata({FORMAT_KEY: b"1"}), tmp_path / "t.parquet")
    opened = open_trace(tmp_path / "t.parquet")
    frame = opened.frame.collect()
    assert frame.columns == column_names()
    assert frame["bucket"].null_count() == 3
    assert frame.schema["artifact"] == pl.String
    assert requested(opened) == [3, 9]
    batch = pl.concat(opened.batches(["requested", "bucket", "artifact"]))
    assert batch["bucket"].null_count() == batch["artifact"].null_count() == 3


@pytest.mark.parametrize("window", [None, TimeRange(0, 2 * START_NS)])
def test_columns_that_statistics_tell_are_as_if_read(tmp_path, window):
    sizes = [step(4, 4, float(i), loras=i // 3, padding_ratio=[0.0, nan][i % 2]) for i in range(6)]
    pq.write_table(table(sizes), tmp_path / "told.parquet", row_group_size=3)
    plain = pq.read_table(tmp_path / "told.parquet")
    pq.write_table(plain, tmp_path / "untold.parquet", write_statistics=False)
    read = []
    for name in ("told", "untold"):
        opened = open_trace(tmp_path / f"{name}.parquet")
        opened = opened if window is None else opened.within(window)
        read.append(pl.concat(opened.batches(column_names()[1:])))
    assert_frame_equal(read[0], read[1])
    assert read[0]["padding_ratio"].is_nan().sum() == 3
    assert read[0]["loras"].to_list() == [0, 0, 0, 1, 1, 1]


def test_other_types_of_the_same_values_are_taken(tmp_path):
    rows = table(ROWS)
    fields = {
        "event": pa.dictionary(pa.int8(), pa.string()),
        "run": pa.large_string(),
        "artifact": pa.null(),
        "requested": pa.int64(),
        "t_ns": pa.uint64(),
        "padding_ratio": pa.float32(),
        "loras": pa.null(),
    }
    columns = [
        rows[f.name].cast(fields.get(f.name, f.type))
        if fields.get(f.name) != pa.null()
        else pa.nulls(3)
        for f in rows.schema
    ]
    other = pa.table(columns, names=rows.schema.names).replace_schema_metadata({FORMAT_KEY: b"1"})
    pq.write_table(other, tmp_path / "t.parquet")
    opened = open_trace(tmp_path / "t.parquet")
    assert opened.frame.collect_schema() == trace(ROWS).frame.collect_schema()
    assert requested(opened) == [3, 9]
    assert summarize(opened).groups["t_min"].min() == rows["t_ns"][1].as_py()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("t_ns", pa.array([1, 2, 3], pa.timestamp("us"))),
        ("requested", pa.array([1.5, 2.0, 3.0])),
        ("event", pa.array([1, 2, 3])),
        ("fallback", pa.array([0, 1, 0])),
        ("weight", pa.array(["1", "1", "1"])),
    ],
)
def test_other_values_are_refused_by_column(tmp_path, column, values):
    rows = table(ROWS)
    rows = rows.set_column(rows.schema.get_field_index(column), column, values)
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=f"t.parquet: column {column} holds .* and not "):
        open_trace(tmp_path / "t.parquet")


def test_column_that_is_there_twice(tmp_path):
    rows = table(ROWS)
    pq.write_table(rows.append_column("bucket", rows["requested"]), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: column bucket is there twice"):
        open_trace(tmp_path / "t.parquet")


def test_numbers_too_large_for_their_column_are_no_silent_null(tmp_path):
    rows = table(ROWS)
    where = rows.schema.get_field_index("requested")
    rows = rows.set_column(where, "requested", pa.array([None, 2**40, 1], pa.int64()))
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: damaged"):
        summarize(open_trace(tmp_path / "t.parquet"))


def test_files_without_rows(tmp_path):
    empty, full = write([], tmp_path / "t.parquet"), write(ROWS, tmp_path / "u.parquet")
    assert requested(open_trace([empty, full])) == requested(open_trace(full))
    with pytest.raises(SourceError, match=r"t\.parquet: no rows to read: the trace is empty\.$"):
        open_trace(empty)
    (tmp_path / "folder").mkdir()
    write([], tmp_path / "folder" / "part-a.parquet")
    with pytest.raises(SourceError, match=r"folder: no rows to read: the trace is empty\.$"):
        open_trace(tmp_path / "folder")


# --- what is no trace -------------------------------------------------------------------------


def test_missing_file(tmp_path):
    with pytest.raises(
        SourceError, match=r"nothing\.parquet: no such file; check the path"
    ) as error:
        open_trace(tmp_path / "nothing.parquet")
    sentence(error)


def test_nothing_given():
    with pytest.raises(SourceError, match="no trace given"):
        open_trace([])


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_empty_file(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(SourceError, match=f"{name}: .*folder") as error:
        open_trace(tmp_path / name)
    sentence(error)


def test_text_file(tmp_path):
    (tmp_path / "t.parquet").write_text("INFO 07-10 12:00:00 engine started\n" * 100)
    with pytest.raises(SourceError, match=r"t\.parquet: damaged") as error:
        open_trace(tmp_path / "t.parquet")
    sentence(error)


def test_parquet_of_somebody_else(tmp_path):
    pq.write_table(pa.table({"event": ["step"]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"no graphdiag trace.*record or import") as error:
        open_trace(tmp_path / "t.parquet")
    sentence(error)


@pytest.mark.parametrize(
    ("told", "way_out"),
    [
        (b"2", "newer than format 1.*upgrade"),
        (b"12", "newer than format 1.*upgrade"),
        (b"banana\nsplit", "is no trace format.*write the trace again"),
        (b"\xff\xfe", "is no trace format"),
        (b"0", "is no trace format"),
        (b"-1", "is no trace format"),
        (b"1.5", "is no trace format"),
        (b"", "is no trace format"),
        (b"9" * 5000, "newer than format 1"),
    ],
)
def test_other_formats(tmp_path, told, way_out):
    rows = table(ROWS).replace_schema_metadata({FORMAT_KEY: told})
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=way_out) as error:
        open_trace(tmp_path / "t.parquet")
    assert len(sentence(error)) < 300


@pytest.mark.parametrize("kept", [1, 3, 4, 8, 100, 0.3, 0.9, -1])
def test_truncated_file(tmp_path, kept):
    data = write(ROWS, tmp_path / "t.parquet").read_bytes()
    kept = int(kept * len(data)) if isinstance(kept, float) else kept
    (tmp_path / "t.parquet").write_bytes(data[:kept])
    with pytest.raises(SourceError, match=r"t\.parquet: damaged") as error:
        open_trace(tmp_path / "t.parquet")
    sentence(error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(tmp_path):
    path = write(ROWS, tmp_path / "t.parquet")
    path.chmod(0)
    with pytest.raises(SourceError, match="permissions") as error:
        open_trace(path)
    sentence(error)


def test_permission_is_named(monkeypatch, tmp_path):
    path = write(ROWS, tmp_path / "t.parquet")

    def forbidden(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(places.Place, "open", forbidden)
    with pytest.raises(
        SourceError, match=r"t\.parquet: you may not read it; check its permissions"
    ):
        open_trace(path)
    assert not is_trace(str(path))


def damaged_in_the_middle(path):
    """A trace whose footer is whole and whose ``requested`` column is not."""
    rows = [step(1 + i % 7, 8, i, dur_ns=10**6 + i) for i in range(5000)]
    write_part(path, table(rows).to_batches())
    columns = pq.read_metadata(path).row_group(0)
    names = [columns.column(i).path_in_schema for i in range(columns.num_columns)]
    column = columns.column(names.index("requested"))
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xee" * column.total_compressed_size
    path.write_bytes(data)
    return path


def test_damage_found_late_is_a_sentence_too(tmp_path):
    opened = open_trace(damaged_in_the_middle(tmp_path / "t.parquet"))
    with pytest.raises(SourceError, match=r"t\.parquet: damaged, it cannot be read") as error:
        summarize(opened)
    sentence(error)
    with pytest.raises(SourceError, match=r"t\.parquet: damaged"):
        list(opened.batches(["event", "requested"]))
    with pytest.raises(SourceError, match=r"t\.parquet: damaged"):
        opened.collect(opened.steps().select("requested"))


def test_damage_found_late_names_the_part(tmp_path):
    path = folder(tmp_path / "trace.parquet", part_a=ROWS, part_c=ROWS)
    damaged_in_the_middle(path / "part-b.parquet")
    opened = open_trace(path)
    with pytest.raises(SourceError, match=r"part-b\.parquet: damaged"):
        opened.collect(opened.steps().select("requested"))


def test_file_that_vanishes_after_it_was_opened(tmp_path):
    path = write(ROWS, tmp_path / "t.parquet")
    opened = open_trace(path)
    path.unlink()
    with pytest.raises(SourceError, match=r"t\.parquet: no such file"):
        summarize(opened)


# --- batches ----------------------------------------------------------------------------------


def test_batches_have_bounded_size_and_small_ones_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "BATCH_ROWS", 100)
    rows = [step(i, None, i) for i in range(730)]
    write(rows[:500], tmp_path / "1.parquet")
    for i in range(23):
        write(rows[500 + 10 * i : 510 + 10 * i], tmp_path / f"2-{i:02}.parquet")
    opened = open_trace(str(tmp_path / "*.parquet"))
    batches = list(opened.batches(["requested"]))
    assert batches[0].is_empty()
    assert [len(batch) for batch in batches[1:6]] == [100] * 5
    assert all(50 <= len(batch) <= 100 for batch in batches[1:-1])
    assert pl.concat(batches)["requested"].to_list() == list(range(730))


def test_batches_of_columns_that_hold_nothing(tmp_path):
    opened = open_trace(write([*ROWS, step(1, None)], tmp_path / "t.parquet"))
    for columns in (["kind"], ["loras", "artifact"], ["bucket"]):
        batch = pl.concat(opened.batches(columns))
        assert batch.columns == columns
        assert len(batch) == 4
    assert batch["bucket"].to_list() == [None, 4, None, None]


def test_batches_of_rows_in_memory(monkeypatch):
    monkeypatch.setattr(parts, "BATCH_ROWS", 100)
    opened = trace([step(i, None, i) for i in range(250)])
    batches = list(opened.batches(["requested", "run", "bucket"]))
    assert [len(batch) for batch in batches] == [0, 100, 100, 50]
    assert batches[1].dtypes == [pl.Int32, pl.Categorical, pl.Int32]


def test_map_keeps_the_order_and_passes_errors_on(monkeypatch):
    monkeypatch.setattr(parts, "BATCH_ROWS", 10)
    opened = trace([step(i, None, i) for i in range(200)])
    firsts = list(opened.map(["requested"], lambda batch: batch["requested"].min()))
    assert firsts == [None, *range(0, 200, 10)]

    def fails(batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(opened.map(["requested"], fails))


def test_many_small_parts(tmp_path):
    path = tmp_path / "t"
    path.mkdir()
    for i in range(60):
        write_part(path / f"part-{i:03}.parquet", table([step(i, None, i)]).to_batches())
    opened = open_trace(path)
    assert requested(opened) == list(range(60))
