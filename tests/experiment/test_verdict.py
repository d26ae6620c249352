"""Which mode the experiment names: the one that serves most, or is repaid first of those alike."""

import msgspec
import pytest

from graphdiag.experiment.answer import Experiment, Mode
from graphdiag.experiment.verdict import best_mode
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def rows() -> dict[str, Mode]:
    """The modes of a real run."""
    text = (ROOT / "docs" / "experiment.json").read_bytes()
    return {mode.mode: mode for mode in msgspec.json.decode(text, type=Experiment).modes}


def held(row: Mode, **told) -> Mode:
    """The row with other figures in its comparison."""
    return msgspec.structs.replace(row, against=msgspec.structs.replace(row.against, **told))


def gain(row: Mode, amount: float, half: float, steps: float = 1000.0, **told) -> Mode:
    cold = msgspec.structs.replace(row.against.cold, steps=steps)
    ci95 = (amount - half, amount + half)
    return held(row, gain_tokens_per_s=amount, gain_ci95=ci95, cold=cold, **told)


def test_the_one_that_serves_most_is_named(rows):
    modes = [
        rows["eager"],
        gain(rows["compiled"], 100, 10, sentence="C."),
        gain(rows["graphs"], 200, 10, sentence="G."),
    ]
    assert best_mode(modes, "eager") == "2 modes have succeeded, and graphs serves most: G."


def test_of_those_alike_the_one_that_is_repaid_first(rows):
    modes = [
        rows["eager"],
        gain(rows["compiled"], 190, 30, steps=500, sentence="C."),
        gain(rows["graphs"], 200, 30, steps=900, sentence="G."),
    ]
    assert best_mode(modes, "eager") == (
        "compiled and graphs serve alike, within noise, and compiled is repaid first: C."
    )


def test_one_that_has_succeeded_alone_is_told_by_its_sentence(rows):
    lost = held(rows["graphs"], succeeded=False)
    modes = [rows["eager"], gain(rows["compiled"], 100, 10, sentence="C."), lost]
    assert best_mode(modes, "eager") == "C."


def test_none_that_has_succeeded(rows):
    lost = [gain(rows[mode], -10, 2, succeeded=False) for mode in ("compiled", "graphs")]
    told = best_mode([rows["eager"], *lost], "eager")
    assert told == "No mode improves on eager after its full cost."
    noise = gain(rows["graphs"], 10, 20, succeeded=False)
    assert "what is gained is within noise" in best_mode([rows["eager"], lost[0], noise], "eager")
    unknown = [held(rows[mode], succeeded=None) for mode in ("compiled", "graphs")]
    assert "not identifiable" in best_mode([rows["eager"], *unknown], "eager")


def test_without_an_objective_the_step_times_decide(rows):
    modes = [
        held(rows["compiled"], gain_tokens_per_s=None, gain_ci95=None, change_ms_per_step=-0.2),
        held(rows["graphs"], gain_tokens_per_s=None, gain_ci95=None, change_ms_per_step=-0.3),
    ]
    assert "graphs serves most" in best_mode([rows["eager"], *modes], "eager")
