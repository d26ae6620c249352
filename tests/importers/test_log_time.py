"""Times in logs."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.importers.log_time import MISSING, YearClock, fill_forward, iso_ns, stamp_column

MOMENTS = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2199, 1, 1))


def ns(moment: datetime) -> int:
    return int(moment.replace(tzinfo=timezone.utc, microsecond=0).timestamp()) * 10**9


@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_a_column_of_stamps_is_read_like_each_of_them(moments):
    text = b"".join(f"[{moment:%Y-%m-%d %H:%M:%S}]".encode() for moment in moments)
    starts = np.arange(len(moments)) * 21 + 1
    found = stamp_column(np.frombuffer(text, np.uint8), starts, starts + 20)
    assert found.tolist() == [ns(moment) for moment in moments]
    assert iso_ns(text) == ns(moments[0])


@pytest.mark.parametrize(
    "text", [b"2026-02-30 09:30:00", b"2026-05-04 09:3x:00", b"2026/05/04 09:30:00", b"2026-05-04"]
)
def test_what_is_no_time_is_missing(text):
    letters = np.frombuffer(text, np.uint8)
    assert stamp_column(letters, np.array([0]), np.array([len(text)])).tolist() == [MISSING]
    assert iso_ns(text) == MISSING


def test_the_year_passes_new_year_both_ways():
    clock = YearClock(ns(datetime(2027, 1, 2)))
    moments = [b"12-31 23:59:59", b"01-01 00:00:00", b"12-31 23:59:58", b"01-01 00:00:01"]
    years = [1970 + clock.ns(text) / 10**9 / 86_400 / 365.2425 for text in moments]
    assert [round(year, 1) for year in years] == [2027.0] * 4
    assert clock.ns(b"13-01 00:00:00") == MISSING
    assert clock.ns(b"01-01 25:00:00") == MISSING


def test_times_are_filled_across_kinds_in_the_order_of_the_log():
    times = {"a": np.array([5, MISSING]), "b": np.array([MISSING, 7, MISSING, MISSING])}
    lines = {"a": np.array([1, 3]), "b": np.array([0, 2, 4, 6])}
    others = np.array([5]), np.array([8])
    filled = fill_forward(times, lines, 3, lambda: others)
    assert {kind: values.tolist() for kind, values in filled.items()} == {
        "a": [5, 7],
        "b": [3, 7, 7, 8],
    }
