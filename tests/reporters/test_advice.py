from __future__ import annotations

import msgspec
import pytest
from sample_reports import read

from graphdiag.findings import Case, CaseName, Recommendation, Report, Verdict
from graphdiag.reporters import advice, markdown, text

LADDER = "1 4 8 9 10 16 24 32"


def _plan() -> Recommendation:
    plan = read("padding").recommendation
    assert plan is not None
    return plan


def _with(engine: object, case: CaseName | None = "padding", **changes: object) -> Report:
    return msgspec.structs.replace(
        read("padding"),
        engine={"name": engine},
        verdict=Verdict(case=case, sentence="."),
        recommendation=msgspec.structs.replace(_plan(), **changes),
    )


def _case(case: CaseName, *sentences: str) -> Case:
    return Case(
        case=case, ms_per_step=None, ci95=None, share=None, evidence=[], advice=list(sentences)
    )


def test_what_two_cases_advise_comes_once() -> None:
    cases = [_case("padding", "Add 9.", "Pad."), _case("fallback", "Add 9.")]
    report = msgspec.structs.replace(read("padding"), cases=cases)
    assert advice.advice(report) == [("padding, fallback", "Add 9."), ("padding", "Pad.")]


@pytest.mark.parametrize("added", ["9, 10, 24", "9, 10 and 24"])
def test_advice_to_add_the_recommended_sizes_is_left_to_their_own_line(added: str) -> None:
    same = f"Add {added} to the captured sizes."
    other = "Add 9 to the captured sizes."
    cases = [_case("padding", same, other)]
    report = msgspec.structs.replace(read("padding"), cases=cases)
    assert advice.advice(report) == [("padding", other)]
    bare = msgspec.structs.replace(report, recommendation=None)
    assert advice.advice(bare) == [("padding", same), ("padding", other)]


def test_a_change_of_sizes_says_its_reason() -> None:
    plan = Recommendation(add=[], drop=[], buckets=[1], why="", flags={})
    assert advice.change(plan) == "Keep the sizes as they are."
    assert advice.change(msgspec.structs.replace(plan, add=[9, 24])) == "Add 9, 24."
    assert advice.flags(plan, "vllm") == []
    said = advice.change(_plan())
    assert said == "Adding 9, 10, 24 (3 more graphs) takes padding to 6.2%. Drop 2."


def test_the_flag_is_that_of_the_engine() -> None:
    told = advice.sizes(_with("sglang"))
    assert told is not None
    assert told.pasted == [("SGLang", f"--cuda-graph-bs-decode {LADDER}")]
    assert told.listed == ""


def test_every_flag_where_the_engine_is_unknown() -> None:
    told = advice.sizes(_with(None))
    assert told is not None
    assert [name for name, _ in told.pasted] == ["vLLM", "SGLang", "TensorRT-LLM"]


@pytest.mark.parametrize("engine", ["mine", ["a", "list"]])
def test_another_engine_gets_the_plain_list(engine: object) -> None:
    report = _with(engine)
    assert f"  captured sizes: {LADDER}\n" in text.render(report)
    assert f"- **captured sizes**: {LADDER}\n" in markdown.render(report)
    for shown in (text.render(report), markdown.render(report)):
        assert "Paste for" not in shown


def test_a_healthy_engine_gets_one_line_and_nothing_to_paste() -> None:
    why = "Adding 9 (one more graph) takes padding from 8.0 % to 4.1 %, over the 99 steps seen."
    report = _with("vllm", None, why=why, drop=[])
    told = advice.sizes(report)
    assert told == advice.Sizes(
        "Adding 9 (one more graph) would take padding from 8.0 % to 4.1 %, over the 99 steps "
        "seen; no need, since no case calls for it.",
        [],
        "",
    )
    for shown in (text.render(report), markdown.render(report)):
        assert "Paste for" not in shown
        assert "captured sizes:" not in shown
