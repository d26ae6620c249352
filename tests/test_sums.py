import polars as pl
import pytest

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
    table = sum_by(rows(key=values), ["key"], {"weight": pl.col("weight").sum()})
    assert table.sort("key", nulls_last=True).rows() == expected
    assert table.columns == ["key", "weight"]
    if isinstance(values[0], str):
        assert table.schema["key"] == pl.String


def test_keys_come_in_the_order_asked_for():
    table = sum_by(rows(a=[1, 1, 1], b=[1, 2, 3]), ["b", "a"], {"n": pl.len()})
    assert table.columns == ["b", "a", "n"]


def test_no_rows_have_no_groups():
    table = sum_by(rows(a=[1, 2, 3]).clear(), ["a"], {"weight": pl.col("weight").sum()})
    assert table.is_empty()
    assert table.schema == pl.Schema({"a": pl.Int64, "weight": pl.Int64})


@pytest.mark.parametrize(
    ("values", "summed", "weight"),
    [
        ([1, 2, 3], 6, 6),
        ([1, None, 3], 4, 4),
        ([None, None, None], 0, 0),
        ([2**31 - 1] * 3, 3 * (2**31 - 1), 6),
    ],
)
def test_measures_that_may_be_missing(values, summed, weight):
    frame = rows(x=pl.Series(values, dtype=pl.Int32))
    table = frame.group_by(pl.lit(1)).agg(summed=sum_of(frame, "x"), weight=weight_of(frame, "x"))
    assert table.select("summed", "weight").rows() == [(summed, weight)]
    assert table.schema["summed"] == table.schema["weight"] == pl.Int64


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
