import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.tables import is_size_table, parse_size_table, read_size_table
from graphdiag.errors import SourceError


def read(text: str) -> dict[int, float]:
    table = parse_size_table(text, "sizes.csv")
    return dict(zip(table.sizes.tolist(), table.weights.tolist(), strict=True))


def refused(text: str) -> str:
    with pytest.raises(SourceError) as error:
        parse_size_table(text, "sizes.csv")
    sentence = str(error.value)
    assert sentence.startswith("sizes.csv")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    "text",
    [
        "requested,count\n8,120\n9,3\n",
        "size,count\r\n8,120\r\n9,3\r\n",
        "\ufeffRequested, Count\n 8 , 120 \n\n# a comment\n9,3 # the odd one\n",
        "8,120\n9,3",
        "8\t120\n9\t3\n",
        "batch_size;steps\n8;120\n9;3\n",
        '"8","100"\n9,3\n8,20\n',
        '{"8": 120, "9": 3}',
        '{"8": 100, "9": 3, "8": 20}',
        '[{"requested": 8, "count": 120}, {"requested": 9, "count": 3}]',
        "[[8, 120], [9, 3]]",
        "[[8.0, 120.0], [9, 3]]",
    ],
)
def test_a_table_in_any_of_its_forms(tmp_path, text):
    assert read(text) == {8: 120, 9: 3}
    table = parse_size_table(text, "x")
    assert table.total == 123
    assert not table.is_share
    assert table.spread == ()
    path = tmp_path / "any.txt"
    path.write_bytes(text.encode())
    assert is_size_table(str(path))
    assert read_size_table(str(path)).weights.tolist() == [120, 3]


def test_thousands_in_quotes():
    assert read('"1,024","12,345"\n') == {1024: 12345}


@pytest.mark.parametrize("dash", ["-", "\u2013", " - "])
def test_a_range_is_spread_evenly_and_said_so(dash):
    table = parse_size_table(f"requested,count\n5{dash}8,40\n8,2\n", "x")
    assert table.sizes.tolist() == [5, 6, 7, 8]
    assert table.weights.tolist() == [10, 10, 10, 12]
    assert table.total == 42
    assert table.spread == (f"5{dash}8",)


def test_percentages_become_shares():
    table = parse_size_table("1-4,9%\n5-8,31%\n9-16, 44 %\n17-32,16%\n", "x")
    assert table.is_share
    assert table.total == 1
    assert table.weights.sum() == pytest.approx(1)
    assert table.weights[table.sizes == 6] == pytest.approx(0.31 / 4)
    assert table.spread == ("1-4", "5-8", "9-16", "17-32")


@pytest.mark.parametrize("shares", [("0.25", "0.75"), ("25", "75"), ("25%", "75%")])
def test_a_column_of_shares(shares):
    table = parse_size_table(f"requested,share\n8,{shares[0]}\n9,{shares[1]}\n", "x")
    assert table.is_share
    assert table.weights.tolist() == [0.25, 0.75]


def test_percentages_rounded_by_hand_still_sum_to_one():
    table = parse_size_table("1,33.3%\n2,33.3%\n3,33.3%\n", "x")
    assert table.weights.sum() == pytest.approx(1)


def test_json_objects_with_percentages_and_ranges():
    assert read('{"1-2": "50%", "4": "50%"}') == {1: 0.25, 2: 0.25, 4: 0.5}
    assert read('[{"size": 4, "share": 1.0}]') == {4: 1}


def test_a_size_that_never_came_is_left_out():
    assert read("8,120\n9,0\n") == {8: 120}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n \n# nothing\n", "has no sizes"),
        ("requested,count\n", "has no sizes"),
        ("{}", "has no sizes"),
        ("8,0\n9,0\n", "all counts are zero"),
        ("8,-1\n", "line 1: the number '-1' is negative"),
        ("requested,count\n8,nan\n", "line 2: 'nan' is no number"),
        ("8,inf\n", "'inf' is no number"),
        ("8,1e400\n", "larger than 2**53"),
        ("8,many\n", "'many' is no number"),
        ("8,\n", "'' is no number"),
        ("8;31,5\n", "'31,5' is no number"),
        ("8,9e15\n9,9e15\n", "sum to more than 2**53"),
        ("0,5\n", "the size '0' is not between 1"),
        ("-3,5\n", "'-3' is no positive whole number"),
        ("8.5,5\n", "'8.5' is no positive whole number"),
        ("3000000000,5\n", "is not between 1 and 2**31 - 1"),
        ("8-5,5\n", "the range '8-5' runs backwards; write 5-8"),
        ("0-5,5\n", "the size '0' is not between 1"),
        ("1-2000000,5\n", "more than 1,000,000 sizes"),
        ("1-900000,5\n1-900000,5\n", "its ranges have 1,800,000 sizes"),
        ("8,30%\n9,60%\n", "sum to 90 %, not to 100 %"),
        ("requested,share\n8,0.3\n9,0.3\n", "sum to 60 %, not to 100 %"),
        ("8,30%\n9,70\n", "percentages and other numbers"),
        ("8,1,2\n", "line 1: has 3 columns"),
        ("8\n", "line 1: has 1 column,"),
        ("8,120\n9\n", "line 2: has 1 column,"),
        ("8,120\n9,3\n\nnine,3\n", "line 4: the size 'nine'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n", "line 1: a list of requests"),
        ("\x00\x01\x02", "no text"),
        ('{"8": 120', "line 1: no JSON"),
        ('{"8": true}', "'true' is no number"),
        ('{"8": NaN}', "'nan' is no number"),
        ('{"8": {"9": 1}}', "is no number"),
        ('[{"requested": 8}]', "entry 1: is not a size and its count"),
        ("[[8, 1], [9]]", "entry 2: is no pair"),
        ("[8, 9]", "entry 1: is no pair"),
        ('[{"size": 8, "count": 1}, {"size": 9, "share": 0.5}]', "counts and shares"),
        ("[" * 100_000, "no histogram"),
        ('{"8": ' + "9" * 5000 + "}", "no histogram"),
    ],
)
def test_what_is_no_table_gets_a_sentence(text, said):
    assert said in refused(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello\n",
        b"a,b\n1,2\n",
        b"1,2,3\n",
        b"PAR1\x15\x04\x15\x00\x00\x00",
        b'{"traceEvents": [], "schemaVersion": 1}',
        b'[{"ph": "X", "name": "step", "size": 3, "count": 1}]',
        b'[{"ph": "X", "args": {"size": 3}}]',
        b"[2026-01-05 10:00:00] Decode batch, #running-req: 8, #token: 900\n",
        b"INFO 03-04 10:11:12 [cuda_graph.py:123] | 5 | 8 | 3 | FULL | 41 |\n",
        b"\xde\xad\xbe\xef" * 100,
    ],
)
def test_other_files_are_no_tables(tmp_path, data):
    path = tmp_path / "other"
    path.write_bytes(data)
    assert not is_size_table(str(path))
    with pytest.raises(SourceError):
        read_size_table(str(path))


def test_what_cannot_be_looked_at_is_left_to_the_next_reader(tmp_path):
    assert not is_size_table("-")
    assert not is_size_table(str(tmp_path))
    assert not is_size_table(str(tmp_path / "absent.csv"))
    assert not is_size_table("nowhere://bucket/x.csv")
    assert not is_size_table("a\x00b")
    with pytest.raises(SourceError, match="no such file"):
        read_size_table(str(tmp_path / "absent.csv"))


def test_a_list_of_arrivals_is_told_at_once(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n")
    with pytest.raises(SourceError, match="line 1: a list of requests"):
        is_size_table(str(path))


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_what_spreadsheets_write(tmp_path, encoding):
    path = tmp_path / "sheet.csv"
    path.write_bytes("requested;count\r\n5\u20138;40\r\n".encode(encoding))
    assert is_size_table(str(path))
    assert read_size_table(str(path)).weights.tolist() == [10, 10, 10, 10]


def test_a_compressed_table(tmp_path):
    path = tmp_path / "sizes.csv.gz"
    path.write_bytes(gzip.compress(b"8,120\n"))
    assert is_size_table(str(path))
    assert read_size_table(str(path)).total == 120


def test_the_real_histograms(shared):
    path = str(shared / "traffic" / "azure_conv_x9_histogram.csv")
    assert is_size_table(path)
    table = read_size_table(path)
    assert table.sizes[:3].tolist() == [1, 2, 3]
    assert table.weights[:3].tolist() == [55, 42, 69]
    with pytest.raises(SourceError, match="a list of requests"):
        is_size_table(str(shared / "traffic" / "AzureLLMInferenceTrace_conv.csv"))


tables = st.dictionaries(st.integers(1, 2**31 - 1), st.integers(1, 2**40), min_size=1, max_size=30)


@given(tables, st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n", "\r"]))
def test_csv_comes_back_as_it_was(counts, separator, end):
    lines = [f"requested{separator}count", *(f"{n}{separator}{c}" for n, c in counts.items())]
    assert read(end.join(lines)) == counts
    assert read(end.join(lines[1:])) == counts


@given(tables)
def test_json_comes_back_as_it_was(counts):
    assert read(json.dumps(counts)) == counts
    assert read(json.dumps(list(counts.items()))) == counts
    assert read(json.dumps([{"requested": n, "count": c} for n, c in counts.items()])) == counts


ranges = st.tuples(st.integers(1, 500), st.integers(0, 60), st.integers(0, 10**6))


@given(st.lists(ranges, min_size=1, max_size=20))
def test_spreading_keeps_every_step(rows):
    expected = np.zeros(600)
    for first, more, steps in rows:
        expected[first : first + more + 1] += steps / (more + 1)
    text = "\n".join(f"{first}-{first + more},{steps}" for first, more, steps in rows)
    if not expected.any():
        assert "all counts are zero" in refused(text)
        return
    table = parse_size_table(text, "x")
    found = np.zeros(600)
    found[table.sizes] = table.weights
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert table.total == sum(steps for _, _, steps in rows)
    assert table.weights.sum() == pytest.approx(table.total)


@given(st.text(max_size=60) | st.text('0123456789,-.%{}[]":# \n\t;e', max_size=60))
def test_any_text_is_a_table_or_a_sentence(text):
    try:
        table = parse_size_table(text, "x")
    except SourceError:
        refused(text)
        return
    assert (table.sizes > 0).all()
    assert (np.diff(table.sizes) > 0).all()
    assert (table.weights > 0).all()
    assert np.isfinite(table.weights).all()
