import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.sizelist import MOST_SIZES, parse_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1,2,4", (1, 2, 4)),
        ("1 2  4", (1, 2, 4)),
        (" [1, 2, 4] ", (1, 2, 4)),
        ("4,1,4", (4, 1, 4)),
        ("8-64:8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("1,2,4-6", (1, 2, 4, 5, 6)),
        ("8-20:8", (8, 16)),
    ],
)
def test_lists_as_people_type_them(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the list is empty"),
        (" , ", "the list is empty"),
        ("1,two", "'two' is no size"),
        ("1.5", "'1.5' is no size"),
        ("-4", "'-4' is no size"),
        ("1,,2", "a comma with no size beside it"),
        ("1,2,", "a comma with no size beside it"),
        ("9" * 19, "is no size"),
        ("1-1000000000", f"more than {MOST_SIZES:,} sizes"),
        ("0", "a size is 1 or more"),
        ("0-8", "a size is 1 or more"),
        ("8-4", "a range goes up"),
        ("4-8:0", "a range goes up"),
        ("1-999999999", f"more than {MOST_SIZES:,} sizes"),
        ("٤", "is no size"),
    ],
)
def test_what_is_no_list_gets_a_sentence(text, said):
    with pytest.raises(ValueError, match=r"\.$") as error:
        parse_sizes(text)
    assert said in str(error.value)


@given(st.lists(st.integers(1, 999_999_999), min_size=1, max_size=50))
def test_what_was_written_is_read(sizes):
    assert parse_sizes(",".join(map(str, sizes))) == tuple(sizes)
