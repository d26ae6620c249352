"""What happens to logs on their way to us: colours, wrappers, cuts, rotation, block boundaries."""

from __future__ import annotations

import gzip
import json
import os

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphdiag.errors import SourceError
from graphdiag.importers import sglang_log, vllm_log
from graphdiag.importers.source import Source

from .log_tables import LOGS, configs, read, write

IMPORTERS = {"sglang": sglang_log, "vllm": vllm_log}
PATHS = sorted(LOGS.glob("*.log"))
CASES = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def importer_of(path):
    return IMPORTERS[path.stem.partition("_")[0]]


def content(frame: pl.DataFrame) -> list[dict]:
    """All rows but the run events, which may be told in more or fewer pieces."""
    return frame.filter(pl.col("event") != "run").to_dicts()


def alike(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert content(one) == content(other)
    assert configs(one) == configs(other)


def altered(tmp_path, path, change):
    """Read ``path`` and a changed copy that was modified at the same time."""
    copy = write(tmp_path, change(path.read_bytes()), path.name)
    times = path.stat()
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    return read(importer_of(path), path), read(importer_of(path), copy)


@CASES
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1000])
def test_block_boundaries_do_not_matter(path, block_bytes):
    whole = read(importer_of(path), path)
    alike(whole, read(importer_of(path), path, block_bytes=block_bytes))


@CASES
def test_windows_line_ends_do_not_matter(tmp_path, path):
    alike(*altered(tmp_path, path, lambda text: text.replace(b"\n", b"\r\n")))


@CASES
def test_colours_do_not_matter(tmp_path, path):
    def colour(text: bytes) -> bytes:
        text = text.replace(b"(APIServer pid=7)", b"\x1b[1;36m(APIServer pid=7)\x1b[0;0m")
        return text.replace(b"batch", b"\x1b[32mbatch\x1b[0m").replace(b"| FULL", b"| \x1b[1mFULL")

    alike(*altered(tmp_path, path, colour))


@CASES
@pytest.mark.parametrize(
    "prefix",
    [b"engine-1  | ", b"May 04 09:30:03 host engine[4242]: ", b"stderr F "],
    ids=["compose", "journald", "kubernetes"],
)
def test_a_prefix_of_whatever_carried_the_log_does_not_matter(tmp_path, path, prefix):
    lines = path.read_bytes().splitlines(keepends=True)
    alike(*altered(tmp_path, path, lambda _: b"".join(prefix + line for line in lines)))


@CASES
def test_noise_between_the_lines_does_not_matter(tmp_path, path):
    noise = b'INFO:     127.0.0.1:5 - "POST /v1 HTTP/1.1" 200 OK\n\xff\xfe\x00 not text\n\n'
    lines = path.read_bytes().splitlines(keepends=True)
    alike(*altered(tmp_path, path, lambda _: b"".join(line + noise for line in lines)))


@CASES
def test_a_cut_last_line_is_left_out(tmp_path, path):
    line = b"[2026-05-04 09:00:05] Decode batch, #running-req: 4, #token: 9, token us"
    row = b"INFO 05-04 09:30:58 [cuda_graph.py:123] | 5    | 8   | 3    | FU"
    alike(*altered(tmp_path, path, lambda text: text + (line if b"ServerArgs" in text else row)))


@CASES
def test_gzip_is_read_as_it_is(tmp_path, path):
    alike(*altered(tmp_path, path, lambda text: gzip.compress(text, mtime=0)))


@CASES
def test_a_log_in_two_files_in_any_order_is_one_log(tmp_path, path):
    text = path.read_bytes()
    middle = text.index(b"\n", len(text) // 3) + 1
    parts = [write(tmp_path, text[:middle], "log.1"), write(tmp_path, text[middle:], "log")]
    for part in parts:
        os.utime(part, ns=(0, path.stat().st_mtime_ns))
    alike(read(importer_of(path), path), read(importer_of(path), *reversed(parts)))


def test_a_cut_gzip_is_read_up_to_its_cut_and_says_so(tmp_path):
    line = (
        "[2026-05-04 09:00:%02d] Decode graph replay: worker=target key_size=%d (bs) "
        "mode=DECODE raw_bs=%d\n"
    )
    text = "".join(
        line % (i // 400 % 60, 1 + i * 7919 % 97, 1 + i * 7919 % 89) for i in range(20_000)
    )
    packed = gzip.compress(text.encode(), mtime=0)
    path = write(tmp_path, packed[: len(packed) // 2], "server.log.gz")
    frame = read(sglang_log, path)
    steps = frame.filter(pl.col("event") == "step")
    whole = read(sglang_log, write(tmp_path, text)).filter(pl.col("event") == "step")
    assert 5000 < len(steps) < 15_000
    assert steps["requested"].to_list() == whole["requested"].to_list()[: len(steps)]
    assert any("cut short" in note and str(path) in note for note in configs(frame)[0]["damage"])


def test_lines_of_a_json_formatter(tmp_path):
    message = (
        "Decode batch, #running-req: 4, #token: 9, token usage: 0.05, cuda graph: True, "
        "gen throughput (token/s): 100.00, #queue-req: 0"
    )
    line = {"timestamp": "2026-05-04T09:00:05.250Z", "level": "INFO", "message": message}
    frame = read(sglang_log, write(tmp_path, json.dumps(line) + "\n"))
    step = frame.filter(pl.col("event") == "step").row(0, named=True)
    assert (step["requested"], step["t_ns"] % 10**10) == (4, 5_250_000_000)


def test_a_line_without_a_time_gets_that_of_the_line_before(tmp_path):
    key = "Decode graph replay: worker=target key_size=8 (bs) mode=DECODE raw_bs=5\n"
    frame = read(sglang_log, write(tmp_path, key + f"[2026-05-04 09:00:05] {key}" + key))
    times = frame.filter(pl.col("event") == "step")["t_ns"].to_list()
    assert times == [times[1]] * 3  # the head of the file tells when it begins


def test_milliseconds_and_file_positions_in_the_prefix(tmp_path):
    key = "Decode graph replay: worker=target key_size=8 (bs) mode=DECODE raw_bs=5\n"
    prefixes = ("[2026-05-04 09:00:05.125 TP0] ", "[2026-05-04 09:00:05,250] INFO a.py:7: ")
    frame = read(sglang_log, write(tmp_path, "".join(prefix + key for prefix in prefixes)))
    steps = frame.filter(pl.col("event") == "step")
    assert [t % 10**9 for t in steps["t_ns"]] == [125_000_000, 250_000_000]
    assert steps["rank"].to_list() == [0, None]


def test_a_mixture_of_formats_is_read_line_by_line(tmp_path):
    text = (LOGS / "sglang_0.4.6.log").read_text() + (LOGS / "sglang_0.5.6.log").read_text()
    frame = read(sglang_log, write(tmp_path, text))
    apart = [read(sglang_log, LOGS / f"sglang_{version}.log") for version in ("0.4.6", "0.5.6")]
    columns = ("t_ns", "requested", "bucket", "outcome", "dur_ns")
    steps = [part.filter(pl.col("event") == "step").select(columns) for part in (frame, *apart)]
    assert steps[0].rows() == pl.concat(steps[1:]).rows()


@pytest.mark.parametrize("importer", IMPORTERS.values(), ids=IMPORTERS)
def test_a_foreign_log_gives_a_run_that_says_what_is_missing(tmp_path, importer):
    path = write(tmp_path, "2026-01-01 nothing of interest\n" * 3)
    assert not importer.recognises(Source(str(path)).head())
    (config,) = configs(read(importer, path))
    assert config["notes"]


@pytest.mark.parametrize("importer", IMPORTERS.values(), ids=IMPORTERS)
def test_a_missing_file_is_one_sentence(tmp_path, importer):
    with pytest.raises(SourceError, match="nowhere"):
        list(importer.read([Source(str(tmp_path / "nowhere.log"))]))


PIECES = [line for path in PATHS for line in path.read_bytes().splitlines(keepends=True)]
NOISE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(PIECES),
    st.tuples(st.sampled_from(PIECES), st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]]),
    st.tuples(st.sampled_from(PIECES), st.integers(0, 200), st.binary(max_size=3)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]
    ),
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pieces=st.lists(NOISE, max_size=12), block_bytes=st.sampled_from([5, 300, 1 << 16]))
def test_any_bytes_give_rows_or_one_sentence(tmp_path, pieces, block_bytes):
    path = write(tmp_path, b"".join(pieces))
    for importer in IMPORTERS.values():
        try:
            whole = read(importer, path)
        except SourceError:
            continue  # bytes that begin as a gzip does and are none
        alike(whole, read(importer, path, block_bytes=block_bytes))


# --- files that overlap -----------------------------------------------------------------------


def of_lines(path):
    return path.read_bytes().splitlines(keepends=True)


def refused(tmp_path, importer, *texts, block=1 << 22):
    """The sentences that refuse logs of these texts, given in either order."""
    paths = [tmp_path / name for name in ("a.log", "b.log")]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
        os.utime(path, (1_780_000_000, 1_780_000_000))
    told = set()
    for given_paths in (paths, paths[::-1]):
        with pytest.raises(SourceError) as error:
            list(importer.read([Source(str(path)) for path in given_paths], block))
        told.add(str(error.value).replace(f"{tmp_path}/", ""))
    return told


TWICE = (
    "b.log: its first lines are in a.log as well, so their steps would count twice; give only one "
    "of them, or parts that do not overlap."
)


@CASES
@pytest.mark.parametrize("block", [200, 5_000, 1 << 22])
def test_a_part_that_another_one_holds_whole_is_refused(tmp_path, path, block):
    lines = of_lines(path)
    whole, part = b"".join(lines), b"".join(lines[len(lines) // 2 :])
    assert refused(tmp_path, importer_of(path), whole, part, block=block) == {TWICE}


@CASES
@pytest.mark.parametrize("common", [4, 5])
def test_a_part_that_repeats_the_last_lines_of_the_one_before_is_refused(tmp_path, path, common):
    lines = of_lines(path)
    half = len(lines) // 2
    texts = b"".join(lines[: half + common]), b"".join(lines[half:])
    assert refused(tmp_path, importer_of(path), *texts, block=5_000) == {TWICE}


def test_a_copy_taken_earlier_is_refused(tmp_path):
    lines = of_lines(PATHS[0])
    grown, copy = b"".join(lines), b"".join(lines[: len(lines) - 2])
    assert all("as well" in told for told in refused(tmp_path, importer_of(PATHS[0]), grown, copy))


def test_colours_do_not_hide_an_overlap(tmp_path):
    lines = of_lines(PATHS[0])
    plain, coloured = b"".join(lines), b"".join(b"\x1b[32m" + line for line in lines)
    found = refused(tmp_path, importer_of(PATHS[0]), plain, coloured)
    assert all("as well" in told for told in found)


@CASES
def test_parts_that_do_not_overlap_are_read(tmp_path, path):
    lines = of_lines(path)
    parts = [tmp_path / f"{number}.log" for number in range(3)]
    third = len(lines) // 3
    for number, part in enumerate(parts):
        end = None if number == 2 else (number + 1) * third
        part.write_bytes(b"".join(lines[number * third : end]))
        os.utime(part, ns=(path.stat().st_mtime_ns,) * 2)
    list(importer_of(path).read([Source(str(part)) for part in parts]))
