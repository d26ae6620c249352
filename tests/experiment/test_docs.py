"""The page on the experiment: its table and its written answer are a real run's."""

import msgspec
import pytest

from graphdiag.experiment import answer
from graphdiag.experiment.answer import Experiment
from graphdiag.reporters import experiment_text
from graphdiag.wording import figure, points
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ran() -> Experiment:
    """The answer of the run that the page quotes."""
    return msgspec.json.decode((ROOT / "docs" / "experiment.json").read_bytes(), type=Experiment)


def test_the_page_shows_what_the_run_printed(ran):
    block = PAGE.partition("```\n$ graphdiag experiment")[2].partition("```")[0]
    shown = block.partition("\n")[2]
    text, at = experiment_text.render(ran), 0
    for excerpt in shown.split("...\n"):
        at = text.find(excerpt, at)
        assert at >= 0, f"the run does not print:\n{excerpt}"
        at += len(excerpt)


def test_the_written_answer_quotes_the_run(ran):
    answer = " ".join(PAGE.partition("## The practice, answered")[2].partition("\n## ")[0].split())
    modes = {mode.mode: mode for mode in ran.modes}
    for mode in modes.values():
        assert f"{figure(mode.cold_start_s)} s" in answer
        assert f"{figure(mode.prepare_ms)} ms" in answer
        assert f"{figure(mode.rate.goodput_tokens_per_s)} tokens/s" in answer
    graphs = modes["graphs"]
    assert f"{points(graphs.padding_ratio)} %" in answer
    change = ran.bucket_change.change
    assert f"{points(change.plan.padding_ratio)} %" in answer
    for size in change.sizes:
        assert f"bucket {size}" in answer


def test_every_key_of_the_json_is_explained():
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    section = text.partition("# graphdiag experiment --json")[2]
    for kind in (answer.Experiment, answer.Mode, answer.Run, answer.Against, answer.Rate):
        for key in kind.__struct_fields__:
            assert f"`{key}`" in section, (kind.__name__, key)
