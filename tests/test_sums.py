import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag import sums
from graphdiag.sums import Total, sum_by, sum_of, weight_of


def rows(**columns):
    frame = pl.DataFrame({"weight": [1, 2, 3], **columns})
    return frame.with_columns(pl.col(pl.String).cast(pl.Categorical))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7, 7, 7], [(7, 6)]),
        ([7, 8, 7], [(7, 4), (8, 2)]),
        ([7, None, 7], [(7, 4), (None, 2)]),
        ([None, None, None], [(None, 6)]),
        (["a", "a", "a"], [("a", 6)]),
        (["a", "b", None], [("a", 1), ("b", 2), (None, 3)]),
    ],
)
def test_keys_that_vary_and_keys_that_do_not(values, expected):
    table = sum_by(rows(key=values), ["key"], {"weight": pl.col("weight")})
    assert table.sort("key", nulls_last=True).rows() == expected
    assert table.columns == ["key", "weight"]
    if isinstance(values[0], str):
        assert table.schema["key"] == pl.Categorical


def test_keys_come_in_the_order_asked_for():
    table = sum_by(rows(a=[1, 1, 1], b=[1, 2, 3]), ["b", "a"], {"n": pl.lit(1)})
    assert table.columns == ["b", "a", "n"]


def test_no_rows_have_no_groups():
    table = sum_by(rows(a=[1, 2, 3]).clear(), ["a"], {"weight": pl.col("weight")})
    assert table.is_empty()
    assert table.schema == pl.Schema({"a": pl.Int64, "weight": pl.Int64})


@pytest.mark.parametrize(
    ("values", "summed", "weight"),
    [
        ([1, 2, 3], 6, 6),
        ([1, None, 3], 4, 4),
        ([None, None, None], 0, 0),
        ([5, 5, 5], 15, 6),
        ([2**31 - 1] * 3, 3 * (2**31 - 1), 6),
        ([2**31 - 1, 1, 2**31 - 1], 2**32 - 1, 6),
    ],
)
def test_measures_that_may_be_missing(values, summed, weight):
    frame = rows(x=pl.Series(values, dtype=pl.Int32), key=[1, 1, 1])
    table = sum_by(frame, ["key"], {"summed": sum_of("x"), "weight": weight_of(frame, "x")})
    assert table.select("summed", "weight").rows() == [(summed, weight)]
    assert table.schema["summed"] == table.schema["weight"] == pl.Int64


def test_ends_are_kept_and_missing_times_have_none():
    frame = pl.DataFrame(
        {"key": [1, 1, 1, 2, 2], "t": [9, 3, None, None, None]}, schema_overrides={"t": pl.Int64}
    )
    table = sum_by(frame, ["key"], {"t_min": pl.col("t"), "t_max": pl.col("t")})
    assert table.sort("key").rows() == [(1, 3, 9), (2, None, None)]


WORDS = st.sampled_from([None, "a", "b", "c"])
INT32 = st.none() | st.sampled_from([-(2**31), -1, 0, 1, 7, 2**31 - 1])
INT64 = st.none() | st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**62, 2**63 - 1])
UINT8 = st.sampled_from([0, 1, 2, 255])


@given(
    st.lists(
        st.tuples(WORDS, INT32, INT64, INT64, UINT8, st.none() | st.integers(0, 2**40)), max_size=60
    )
)
def test_sums_are_those_of_a_plain_loop_whatever_the_keys(cells):
    schema = {
        "word": pl.Categorical,
        "small": pl.Int32,
        "wide": pl.Int64,
        "wider": pl.Int64,
        "byte": pl.UInt8,
        "x": pl.Int64,
    }
    keys = list(schema)[:-1]
    table = sum_by(
        pl.DataFrame(cells, schema=schema, orient="row"),
        keys,
        {"x": pl.col("x"), "half": pl.col("x") / 2, "t_min": pl.col("x")},
    )
    expected = {}
    for *key, x in cells:
        expected.setdefault(tuple(key), []).append(x)
    assert len(table) == len(expected)
    for *key, total, half, least in table.iter_rows():
        told = [x for x in expected[tuple(key)] if x is not None]
        assert total == sum(told)
        assert half == pytest.approx(sum(told) / 2)
        assert least == min(told, default=None)


def test_total_adds_and_keeps_the_ends(monkeypatch):
    monkeypatch.setattr(sums, "_FOLD_ROWS", 3)
    total = Total(["key"])
    for i in range(10):
        key = ["b", None, "a"][i % 3]
        total.add(pl.DataFrame({"key": [key], "n": [i], "t_min": [i], "t_max": [i]}))
    assert total.table().rows() == [
        ("a", 2 + 5 + 8, 2, 8),
        ("b", 0 + 3 + 6 + 9, 0, 9),
        (None, 12, 1, 7),
    ]


@given(st.lists(st.tuples(WORDS, INT32, INT64, UINT8), max_size=60))
def test_a_total_is_sorted_by_key_with_nulls_last_however_far_keys_lie_apart(cells):
    schema = {"word": pl.String, "small": pl.Int32, "wide": pl.Int64, "byte": pl.UInt8}
    rows = pl.DataFrame(cells, schema=schema, orient="row").with_columns(n=pl.lit(1))
    total = Total(list(schema))
    total.add(rows)
    expected = rows.group_by(list(schema)).agg(pl.col("n").sum().cast(pl.Int64))
    assert total.table().rows() == expected.sort(list(schema), nulls_last=True).rows()
