import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphdiag import places
from graphdiag.errors import SourceError
from graphdiag.summary import summarize
from graphdiag.trace import open_trace
from tests.build import event, step, table, write
from tests.recordings import folder, is_trace, requested, sentence, tail

ROWS = [event("run", config={"engine": "vllm"}), step(3, 4, 1.0), step(9, None, 2.0)]


def test_list_reads_each_once(tmp_path):
    one, two = (write([step(n, 8)], tmp_path / f"{n}.parquet") for n in (1, 2))
    assert requested(open_trace([one, str(two)])) == [1, 2]
    assert requested(open_trace([one, one, two])) == [1, 2]
    assert open_trace([one, two]).source == f"{one}, {two}"


def test_list_with_something_missing(tmp_path):
    with pytest.raises(SourceError, match=r"2\.parquet: no such file"):
        open_trace([write(ROWS, tmp_path / "1.parquet"), tmp_path / "2.parquet"])


def test_glob_of_files_and_of_folders(tmp_path):
    write([step(1, 1)], tmp_path / "1.parquet")
    write([step(2, 2)], tmp_path / "2.parquet")
    folder(tmp_path / "3.parquet", part_a=[step(3, 3)])
    assert requested(open_trace(str(tmp_path / "*.parquet"))) == [1, 2, 3]
    assert requested(open_trace(str(tmp_path / "[12].parquet"))) == [1, 2]
    assert is_trace(str(tmp_path / "*.parquet"))


def test_glob_without_matches(tmp_path):
    pattern = str(tmp_path / "*.parquet")
    with pytest.raises(SourceError, match="no file matches; check the pattern") as error:
        open_trace(pattern)
    sentence(error)
    assert not is_trace(pattern)


def test_name_that_looks_like_a_glob(tmp_path):
    assert requested(open_trace(write(ROWS, tmp_path / "run[1]?.parquet"))) == [3, 9]


def test_relative_path(tmp_path, monkeypatch):
    write(ROWS, tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    opened = open_trace("t.parquet")
    assert opened.source == "t.parquet"
    assert requested(opened) == [3, 9]


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    """The URL of an empty folder in a store, and the store."""
    filesystem = fsspec.filesystem(request.param)
    root = f"/{tmp_path.name}" if request.param == "memory" else str(tmp_path)
    yield f"{request.param}://{root}", filesystem
    if filesystem.exists(root):
        filesystem.rm(root, recursive=True)


def put(store, name, content):
    url, filesystem = store
    filesystem.makedirs(f"{url}/{name}".rpartition("/")[0], exist_ok=True)
    with filesystem.open(f"{url}/{name}", "wb") as file:
        file.write(content)
    return f"{url}/{name}"


def as_parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(table(rows), sink)
    return sink.getvalue().to_pybytes()


def test_url_of_a_file(store):
    url = put(store, "t.parquet", as_parquet(ROWS))
    assert is_trace(url)
    opened = open_trace(url)
    assert requested(opened) == [3, 9]
    assert opened.events()["event"].to_list() == ["run"]
    assert summarize(opened).groups["weight"].sum() == 2


def test_url_of_a_folder_with_a_tail_and_an_empty_part(store):
    put(store, "t/part-a.parquet", as_parquet([step(1, 1)]))
    put(store, "t/part-b.parquet", b"")
    put(store, "t/_tail-a.arrow", tail([step(1, 1)], whole=False))
    put(store, "t/_tail-c.arrow", tail([step(3, 3)], whole=False))
    url = f"{store[0]}/t"
    assert is_trace(url)
    for given_url in (url, f"{url}/"):
        opened = open_trace(given_url)
        assert requested(opened) == [1, 3]
        assert "part-b.parquet has zero bytes" in opened.notes[0]


def test_url_of_a_glob(store):
    for size in (1, 2):
        put(store, f"{size}.parquet", as_parquet([step(size, 8)]))
    assert requested(open_trace(f"{store[0]}/*.parquet")) == [1, 2]
    with pytest.raises(SourceError, match="no file matches"):
        open_trace(f"{store[0]}/*.nothing")


def test_url_of_nothing(store):
    url = f"{store[0]}/nothing.parquet"
    with pytest.raises(SourceError, match=r"nothing\.parquet: no such file") as error:
        open_trace(url)
    sentence(error)
    assert not is_trace(url)


def test_url_of_a_truncated_file(store):
    url = put(store, "t.parquet", as_parquet(ROWS)[:-20])
    with pytest.raises(SourceError, match=r"t\.parquet: damaged"):
        open_trace(url)


@pytest.mark.parametrize("url", ["nosuchscheme://a/b.parquet", "http://127.0.0.1:9/t.parquet"])
def test_url_that_cannot_be_reached(url):
    with pytest.raises(SourceError, match=r"cannot be reached|no such file") as error:
        open_trace(url)
    sentence(error)
    assert not is_trace(url)


def test_url_whose_packages_are_missing(monkeypatch):
    def missing(url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    for url, way_out in (
        ("https://host/t.parquet", "pip install requests aiohttp"),
        ("s3://bucket/t.parquet", "Install s3fs to access S3"),
    ):
        with pytest.raises(SourceError, match=rf"packages .* are missing; {way_out}\.") as error:
            open_trace(url)
        sentence(error)


def test_question_mark_of_a_web_address_is_no_wildcard(monkeypatch):
    asked = []

    class Web:
        def exists(self, path):
            asked.append(path)
            return True

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Web(), url))
    (place,) = places.resolve("https://host/t.parquet?signature=1")
    assert place.path == "https://host/t.parquet?signature=1"
    assert asked == [place.path]
