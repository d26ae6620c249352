"""The dispatcher's contract: exact, larger, none; the strictest first; keys late and once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.experiment.engine.dispatcher import EAGER, FULL, PIECEWISE, Choice, Dispatcher

SIZES = st.sets(st.integers(1, 200), max_size=12)


def made(full: set[int], piecewise: set[int]) -> Dispatcher:
    dispatcher = Dispatcher()
    dispatcher.initialize(full, piecewise)
    return dispatcher


def up(sizes: set[int], tokens: int) -> int | None:
    return min((size for size in sizes if size >= tokens), default=None)


@given(SIZES, SIZES, st.integers(1, 300), st.booleans())
def test_it_rounds_up_and_relaxes_in_one_direction(
    full: set[int], piecewise: set[int], tokens: int, uniform: bool
) -> None:
    choice = made(full, piecewise).dispatch(tokens, uniform)
    strict, relaxed = up(full, tokens), up(piecewise, tokens)
    if uniform and strict is not None:
        assert choice == Choice(FULL, strict, None)
    elif relaxed is not None:
        assert choice == Choice(PIECEWISE, relaxed, None)
    else:
        assert choice[:2] == (EAGER, None)
        assert choice.reason in ("over_max", "mode_excluded", "no_key")


def test_it_says_why_nothing_fits() -> None:
    assert made({1, 4}, {16}).dispatch(17, True).reason == "over_max"
    assert made({1, 4}, set()).dispatch(3, False).reason == "mode_excluded"
    assert made({32}, {16}).dispatch(20, False).reason == "over_max"
    assert made(set(), set()).dispatch(1, True).reason == "no_key"


def test_its_keys_come_late_and_once() -> None:
    dispatcher = Dispatcher()
    assert dispatcher.dispatch(4, True) == Choice(EAGER, None, "not_captured")
    dispatcher.initialize([4], [])
    assert dispatcher.dispatch(4, True) == Choice(FULL, 4, None)
    with pytest.raises(RuntimeError, match="keys already"):
        dispatcher.initialize([8], [])
