"""What preempted requests cost: tokens that are computed again."""

import pytest

from graphdiag.comparison.decomposition import TERMS
from tests.comparison.runs import chapter_one, compared, steps


def test_preemptions_are_said():
    base, candidate = chapter_one()
    rows = [{**row, "preempted": 1} if row["event"] == "step" else row for row in candidate[:204]]
    found = compared(base, [*rows, *candidate[204:]])
    (told,) = [one for one in found.not_identifiable if one.startswith("What memory costs")]
    assert "preempted, 0 per 1,000 steps in the base and 333 in the candidate" in told


def test_tokens_computed_again_are_memory_and_no_traffic():
    def run(sizes, **told):
        columns = {"phase": "prefill", "axis": "tokens", "outcome": "eager", **told}
        return steps(sizes, 400, lambda size: {"ms": 2 + size / 100, **columns})

    base, worse = run((200, 400)), run((400, 600), preempted=1, recomputed=200)
    found = compared(base, worse)
    assert found.terms.memory == pytest.approx(2.0)
    assert found.terms.traffic_mix == pytest.approx(0.0, abs=1e-6)
    assert found.delta_ms_per_step == pytest.approx(2.0)
    assert "tokens computed again after preemptions +2 ms" in found.verdict.sentence
    assert not any("What memory costs" in one for one in found.not_identifiable)
    assert sum(getattr(found.terms, name) for name in TERMS) == pytest.approx(2.0)
