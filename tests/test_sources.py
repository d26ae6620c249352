import gzip
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from graphdiag import sources
from graphdiag.errors import SourceError
from graphdiag.importers import rows as importer_rows
from graphdiag.sources import import_source, open_source
from graphdiag.trace import open_trace
from graphdiag_collectors.schema import column_names
from tests.build import event, step, write

SGLANG = (
    "[2025-07-01 12:00:0{second}] Decode batch. #running-req: {size}, #token: 900, "
    "token usage: 0.01, cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 0\n"
)


def sglang(*sizes):
    return "".join(SGLANG.format(second=i, size=size) for i, size in enumerate(sizes))


def requested(paths):
    with open_source(paths) as opened:
        return opened.steps().select("requested").collect()["requested"].to_list()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(sglang(3, 5))
    return str(path)


class FakeImporter:
    """An importer of files that start with ``FAKE``: a step for each byte after it."""

    NAME = "fake log"

    def __init__(self, then=None):
        self.then = then

    def recognises(self, head):
        return head.startswith(b"FAKE")

    def read(self, given):
        for source in given:
            with source.open() as stream:
                for size in stream.read()[4:]:
                    yield importer_rows.batch({"event": ["step"], "requested": [size]}, 1)
        if self.then is not None:
            raise self.then


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Make ``recognise`` know the fake importer, and write one of its files."""
    importer = FakeImporter()
    recognise = sources.recognise

    def also_fake(source):
        return importer if importer.recognises(source.head()) else recognise(source)

    monkeypatch.setattr(sources, "recognise", also_fake)
    path = tmp_path / "fake.log"
    path.write_bytes(b"FAKE\x01\x02\x03\x04")
    return importer, str(path)


# --- opened where it is a trace ---------------------------------------------------------------


def test_trace_is_opened(tmp_path):
    path = str(write([event("run"), step(3, 4)], tmp_path / "t.parquet"))
    with open_source([path]) as opened:
        assert opened.source == path
        assert opened.frame.collect_schema().names() == column_names()
        assert len(opened.events()) == 1


def test_several_traces_are_one(tmp_path):
    one, two = (str(write([step(n, 8)], tmp_path / f"{n}.parquet")) for n in (1, 2))
    assert requested([one, two]) == [1, 2]
    assert requested([str(tmp_path / "*.parquet")]) == [1, 2]


def test_folder_of_something_else(tmp_path):
    (tmp_path / "server.log").write_text(sglang(3))
    with pytest.raises(SourceError, match="no rows to read"), open_source([str(tmp_path)]):
        pass


def test_text_that_is_called_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text(sglang(3, 5))
    assert requested([str(path)]) == [3, 5]


# --- imported where it is none ----------------------------------------------------------------


def test_log_is_imported(log):
    assert requested([log]) == [3, 5]
    with open_source([log]) as opened:
        assert opened.source == log
        assert opened.frame.collect_schema().names() == column_names()


def test_log_of_any_name(tmp_path):
    for name in ("server.parquet.txt", "out", "run[1].log", "läuft.log"):
        (tmp_path / name).write_text(sglang(3))
        assert requested([str(tmp_path / name)]) == [3]


def test_gzip_is_recognised_by_its_content(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(gzip.compress(sglang(3, 5).encode()))
    assert requested([str(path)]) == [3, 5]


@pytest.mark.parametrize("glob", [False, True])
def test_rotated_logs_are_one(tmp_path, glob):
    paths = [tmp_path / "server.log.1", tmp_path / "server.log.2"]
    paths[0].write_text(sglang(3))
    paths[1].write_text(sglang(5))
    given = [str(tmp_path / "server.log.*")] if glob else [str(path) for path in paths]
    assert requested(given) == [3, 5]


def test_url_of_a_log_is_imported(tmp_path):
    store = fsspec.filesystem("memory")
    store.pipe(f"/{tmp_path.name}/server.log", sglang(3, 5).encode())
    url = f"memory://{tmp_path.name}/server.log"
    try:
        assert requested([url]) == [3, 5]
        assert requested([f"memory://{tmp_path.name}/*.log"]) == [3, 5]
    finally:
        store.rm(f"/{tmp_path.name}", recursive=True)


def test_file_url_of_a_log_is_imported(log):
    assert requested([f"file://{log}"]) == [3, 5]


# --- what cannot be read ----------------------------------------------------------------------


def refused(paths):
    with pytest.raises(SourceError) as error, open_source([str(path) for path in paths]):
        pytest.fail("opened")
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


def test_missing_file_is_named_whatever_stands_beside_it(tmp_path, log):
    there = write([step(3, 4)], tmp_path / "t.parquet")
    gone = tmp_path / "gone.log"
    for paths in ([gone], [log, gone], [there, gone], [gone, there]):
        assert refused(paths) == f"{gone}: no such file; check the path."


def test_missing_url():
    assert "nothing.log: no such file" in refused(["memory://nowhere/nothing.log"])


def test_glob_without_matches(tmp_path):
    assert "no file matches" in refused([tmp_path / "*.log"])


@pytest.mark.parametrize("content", [b"", b"  \n\n", gzip.compress(b"", mtime=0)])
def test_empty_file(tmp_path, content):
    (tmp_path / "server.log").write_bytes(content)
    assert "server.log: the file is empty" in refused([tmp_path / "server.log"])


@pytest.mark.parametrize(
    "content", [b"hello\n" * 50, bytes(range(256)) * 9, b"\x1f\x8b\x08\x00abc"]
)
def test_file_that_is_no_source(tmp_path, content):
    (tmp_path / "photo.jpg").write_bytes(content)
    assert refused([tmp_path / "photo.jpg"]).startswith(str(tmp_path / "photo.jpg"))


def test_trace_and_log_together(tmp_path, log):
    there = write([step(3, 4)], tmp_path / "t.parquet")
    for paths in ([there, log], [log, there]):
        assert refused(paths).startswith(f"{there}: a trace among files to import")


def test_folder_and_log_together(tmp_path, log):
    (tmp_path / "t").mkdir()
    assert refused([tmp_path / "t", log]).startswith(f"{tmp_path / 't'}: a trace among files")


def test_file_that_is_given_twice(tmp_path, log):
    there = write([step(3, 4)], tmp_path / "t.parquet")
    (tmp_path / "link.log").symlink_to(log)
    for paths in ([log, log], [log, tmp_path / "s*.log"], [there, f"{tmp_path}/./t.parquet"]):
        assert refused(paths).endswith(": given twice; name each source once.")
    assert refused([log, tmp_path / "link.log"]).startswith(f"{tmp_path / 'link.log'}: given twice")


def test_kinds_of_source_have_names(tmp_path, log):
    (tmp_path / "k.json").write_text(
        '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}'
    )
    expected = f"{log}: an SGLang log, but {tmp_path / 'k.json'} is a Kineto trace; "
    assert refused([tmp_path / "k.json", log]).startswith(expected)


def test_folder_of_logs_says_how_to_name_them(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text(sglang(3))
    expected = f"to read the files in it, give {tmp_path}/logs/*."
    assert refused([tmp_path / "logs"]).endswith(expected)
    assert requested([str(tmp_path / "logs" / "*")]) == [3]
    with pytest.raises(SourceError, match="no rows to read"):
        import_source([str(tmp_path / "logs")], str(tmp_path / "out.parquet"))


def test_trace_and_folder_without_rows_say_the_same(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (write([], tmp_path / "t.parquet"), tmp_path / "folder"):
        assert refused([path]).startswith(f"{path}: no rows to read: ")
        with pytest.raises(SourceError, match="no rows to read"):
            import_source([str(path)], str(tmp_path / "out.parquet"))


# --- pipes and odd names ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "trace"])
def test_named_pipe_is_read_once(tmp_path, log, kind, temporary):
    path = write([step(3, 4), step(5, 8)], tmp_path / "t.parquet") if kind == "trace" else log
    data = Path(path).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_bytes, data)
        with open_source([str(pipe)]) as opened:
            assert opened.source == str(pipe)
            assert opened.steps().collect()["requested"].to_list() == [3, 5]
        written.result()
    assert not list(temporary.iterdir())


UNDECODABLE = os.fsdecode(b"caf\xe9.h")


@pytest.fixture
def undecodable(tmp_path):
    """A path that is not UTF-8, where the file system takes one."""
    path = tmp_path / UNDECODABLE
    try:
        path.write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes no names that are not UTF-8")
    path.unlink()
    return path


def test_path_that_is_not_utf8(undecodable, log, tmp_path):
    shown = str(tmp_path / "caf\ufffd.h")
    assert import_source([log], str(undecodable)) > 0
    for path in (undecodable, tmp_path / "caf*.h"):
        with open_source([str(path)]) as opened:
            assert opened.steps().collect()["requested"].to_list() == [3, 5]
            assert sum(len(batch) for batch in opened.batches(["requested"])) > 0
    assert refused([undecodable, undecodable]) == f"{shown}: given twice; name each source once."
    undecodable.write_text(sglang(3, 5))
    assert requested([str(undecodable)]) == [3, 5]
    undecodable.unlink()
    assert refused([undecodable]) == f"{shown}: no such file; check the path."


def test_two_kinds_of_source(log, fake):
    assert "is a fake log; report on them one at a time" in refused([fake[1], log])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_log_without_permission(log):
    Path(log).chmod(0)
    assert refused([log]).startswith(log)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), EOFError("cut short")])
def test_what_an_importer_meets_is_a_sentence(fake, tmp_path, error):
    importer, path = fake
    importer.then = error
    assert refused([path]).startswith(f"{path}: reading it stopped (")
    with pytest.raises(SourceError, match="reading it stopped"):
        import_source([path], str(tmp_path / "out.parquet"))
    assert not list(tmp_path.glob("*out.parquet*"))


def test_source_error_of_an_importer_passes(fake, tmp_path):
    importer, path = fake
    importer.then = SourceError("fake.log: line 7 is damaged; cut it out.")
    assert refused([path]) == "fake.log: line 7 is damaged; cut it out."
    with pytest.raises(SourceError, match="line 7"):
        import_source([path], str(tmp_path / "out.parquet"))


# --- many rows --------------------------------------------------------------------------------


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sources, "_IN_MEMORY_ROWS", 2)
    return folder


def test_more_rows_than_memory_are_spooled_and_removed(fake, temporary):
    with open_source([fake[1]]) as opened:
        assert list(temporary.rglob("imported.parquet"))
        assert opened.source == fake[1]
        assert opened.steps().collect()["requested"].to_list() == [1, 2, 3, 4]
    assert not list(temporary.iterdir())


def test_spool_is_removed_when_the_body_fails(fake, temporary):
    with pytest.raises(ZeroDivisionError), open_source([fake[1]]):
        raise ZeroDivisionError
    assert not list(temporary.iterdir())


def test_no_room_for_the_spool(fake, temporary, monkeypatch):
    def full(path, batches):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sources, "write_part", full)
    text = refused([fake[1]])
    assert "No space left on device" in text
    assert "set TMPDIR to a folder with room" in text
    assert not list(temporary.iterdir())


# --- import -----------------------------------------------------------------------------------


def test_import_writes_a_trace(log, tmp_path):
    out = tmp_path / "out.parquet"
    with open_source([log]) as opened:
        expected = opened.frame.collect()
    assert import_source([log], str(out)) == len(expected)
    assert open_trace(out).frame.collect().equals(expected)
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == ["out.parquet"]


def test_import_of_a_trace_is_refused(tmp_path):
    path = write([step(3, 4)], tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: already a graphdiag trace"):
        import_source([str(path)], str(tmp_path / "out.parquet"))


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("nowhere/out.parquet", "its folder does not exist; make it first."),
        ("server.log/out.parquet", "its folder is a file; name a file in another folder."),
    ],
)
def test_import_to_where_nothing_can_be_written(log, tmp_path, out, why):
    with pytest.raises(SourceError) as error:
        import_source([log], str(tmp_path / out))
    assert str(error.value) == f"{tmp_path / out}: {why}"


@pytest.mark.parametrize("out", ["", ".", "/"])
def test_import_to_a_folder(log, out):
    with pytest.raises(SourceError, match="is a folder; name the file"):
        import_source([log], out)


def test_import_keeps_what_was_there_when_it_fails(fake, tmp_path):
    importer, path = fake
    out = tmp_path / "out.parquet"
    import_source([path], str(out))
    before = out.read_bytes()
    importer.then = EOFError("cut short")
    with pytest.raises(SourceError):
        import_source([path], str(out))
    assert out.read_bytes() == before
