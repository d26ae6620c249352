"""Values in configuration lines."""

from __future__ import annotations

import pytest

from graphdiag.importers import log_values as values

TEXT = (
    "server_args=ServerArgs(model_path='a, max_bs=9', max_bs=32, bs=[1, 2], name=None, on=True, "
    "config=Config(decode=Phase(bs=[4, 8], note='x)'), prefill={'bs': (3,)}), last=7)"
)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("bs", "[1, 2]"),
        ("name", "None"),
        ("last", "7"),
        ("config", "Config(decode=Phase(bs=[4, 8], note='x)'), prefill={'bs': (3,)})"),
        ("nothing", None),
        ("args", None),
    ],
)
def test_a_field_ends_where_its_value_does(name, raw):
    assert values.field(TEXT, name) == raw


def test_fields_within_fields_in_any_notation():
    config = values.field(TEXT, "config")
    assert config is not None
    assert values.field(values.field(config, "decode") or "", "bs") == "[4, 8]"
    assert values.sizes(values.field(values.field(config, "prefill") or "", "bs")) == [3]
    assert values.field('{"cudagraph_mode":[2,1],"x":1}', "cudagraph_mode") == "[2,1]"


def test_values_that_are_not_what_is_asked_for_are_none():
    assert values.integer("7") == 7
    assert [values.integer(text) for text in (None, "None", "7.5", "9" * 30)] == [None] * 4
    assert [values.boolean(text) for text in ("True", "false", "None")] == [True, False, None]
    assert [values.word(text) for text in ("'full'", "None", "''", None)] == ["full"] + [None] * 3
    assert values.sizes("[8, 1, 1, -4, 0, 99999999999]") == [1, 8]
    assert values.sizes("None") is None
