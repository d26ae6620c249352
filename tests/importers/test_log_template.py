"""Reading alike lines by column gives what matching each of them gives, or nothing."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.importers.log_sglang_lines import DECODE
from graphdiag.importers.log_template import read_alike

WORDS = st.sampled_from(["True", "False", "Maybe", "", "é"])
NUMBERS = st.one_of(st.integers(-3, 10**12).map(str), st.floats(0, 1e6).map("{:.2f}".format))
EXTRAS = st.sampled_from(["", "accept len: 2.50, ", "mamba num: 3, ", "[1, 2], "])


@st.composite
def decode_lines(draw: st.DrawFn) -> str:
    return (
        f"Decode batch, #running-req: {draw(NUMBERS)}, #token: {draw(NUMBERS)}, "
        f"{draw(EXTRAS)}cuda graph: {draw(WORDS)}, gen throughput (token/s): {draw(NUMBERS)}, "
        f"#queue-req: {draw(NUMBERS)}{draw(st.sampled_from(['', ', ']))}\n"
    )


ALIKE = st.builds(
    lambda running, rate, graph: (
        f"Decode batch, #running-req: {running}, #token: 7, accept len: 2.50, cuda graph: {graph}, "
        f"gen throughput (token/s): {rate:.2f}, #queue-req: 0, \n"
    ),
    st.integers(0, 10**6),
    st.floats(0, 1e5),
    st.booleans(),
)


def groups(pattern: re.Pattern[bytes], line: str) -> tuple[str, ...] | None:
    match = pattern.search(line.encode())
    return match and tuple(group.decode() for group in match.groups(b""))


@given(st.lists(decode_lines(), max_size=6))
def test_never_something_else_than_the_expression_gives(lines):
    found = read_alike(DECODE.tail, pa.array([line.encode() for line in lines], pa.binary()))
    if found is not None:
        columns = [column.to_pylist() for column in found]
        assert list(zip(*columns, strict=True)) == [groups(DECODE.tail, line) for line in lines]


@given(st.lists(ALIKE, min_size=1, max_size=6))
def test_lines_of_one_format_are_read_by_column(lines):
    assert read_alike(DECODE.tail, pa.array([line.encode() for line in lines], pa.binary()))


def test_a_format_whose_groups_share_a_field_is_left_to_the_expression():
    assert read_alike(re.compile(rb"(\d) (\d)"), pa.array([b"1 2"], pa.binary())) is None
