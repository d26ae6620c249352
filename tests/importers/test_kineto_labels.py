"""The grammars of the engines' step annotations."""

from typing import Any

import pytest

from graphdiag.importers.kineto.labels import CaptureLabel, StepLabel, parse_label, refine


def step(name: str) -> StepLabel:
    label = parse_label(name)
    assert isinstance(label, StepLabel)
    return label


VLLM: dict[str, dict[str, Any]] = {
    "execute_context_0(0)_generation_8(8)": {
        "phase": "decode",
        "requested": 8,
        "num_reqs": 8,
        "num_tokens": 8,
        "query_len": 1,
        "kv_tokens": None,
    },
    "execute_context_2(600)_generation_0(0)": {
        "phase": "prefill",
        "requested": 600,
        "num_reqs": 2,
        "query_len": None,
    },
    "execute_context_1(512)_generation_8(8)": {"phase": "mixed", "requested": 520, "num_reqs": 9},
    # drafts are verified: how many each request has is only certain from the sum of squares
    "execute_context_0(0)_generation_4(16)": {
        "phase": "verify",
        "requested": 16,
        "num_reqs": 4,
        "query_len": None,
    },
    "execute_16_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq16sk900sqsq64sqsk3600)": {
        "phase": "verify",
        "query_len": 4,
        "kv_tokens": 900,
    },
    "execute_16_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq16sk900sqsq70sqsk3600)": {
        "phase": "verify",
        "query_len": None,
    },
    "execute_521_context_1(sq512sk512sqsq262144sqsk262144)_generation_9(sq9sk81sqsq9sqsk81)": {
        "phase": "mixed",
        "requested": 521,
        "num_reqs": 10,
        "kv_tokens": 593,
    },
    "execute_context_1(888_788544)_generation_0(0)": {
        "phase": "prefill",
        "requested": 888,
        "num_tokens": 888,
        "kv_tokens": None,
    },
    "execute_context_0(0)_generation_0(0)": {"kind": "dummy", "requested": 0},
}


@pytest.mark.parametrize("name", VLLM)
def test_vllm(name: str) -> None:
    label = step(name)
    assert (label.engine, label.runner, label.axis) == ("vllm", "target", "tokens")
    assert {key: getattr(label, key) for key in VLLM[name]} == VLLM[name]


def test_vllm_diffusion() -> None:
    label = step("execute_diffusion_1_256x256")
    assert label == StepLabel("vllm", num_reqs=1)


SGLANG: dict[str, dict[str, Any]] = {
    "step[DECODE bs=32]": {
        "phase": "decode",
        "axis": "requests",
        "requested": 32,
        "num_reqs": 32,
        "num_tokens": 32,
        "query_len": 1,
        "bucket": None,
    },
    "step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30 forward_id=7]": {
        "requested": 2,
        "kv_tokens": 30,
    },
    "step[VERIFY bs=8]": {"phase": "verify", "requested": 8, "num_tokens": None, "query_len": None},
    "step[VERIFY bs=8 g_sq=32 g_sqsq=128 g_sqsk=4 g_sk=900]": {
        "requested": 8,
        "num_tokens": 32,
        "query_len": 4,
    },
    "step[EXTEND bs=15 toks=15360]": {
        "phase": "prefill",
        "axis": "tokens",
        "requested": 15360,
        "num_reqs": 15,
    },
    "step[EXTEND bs=15]": {"axis": "tokens", "requested": None, "num_reqs": 15},
    "step[MIXED bs=5]": {"phase": "mixed", "requested": None},
    "step[MIXED bs=5 c=2 g=3 c_sq=100 c_sk=120 c_sqsq=9 c_sqsk=9 g_sq=3 g_sk=50 g_sqsq=3]": {
        "requested": 103,
        "kv_tokens": 170,
    },
    "step[DRAFT bs=8]": {"runner": "draft", "phase": "decode", "requested": 8, "num_tokens": None},
    "step[DRAFT_EXTEND_V2 bs=8]": {"runner": "draft", "phase": "verify", "axis": "requests"},
    "step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]": {
        "runner": "draft",
        "requested": 3,
        "num_reqs": 3,
        "bucket": 4,
    },
    "step[IDLE bs=0]": {"kind": "filler", "requested": 0},
    "step[PREBUILT bs=4]": {"phase": None, "axis": None, "requested": None, "num_reqs": 4},
    "step[SOMETHING_NEW bs=4]": {"runner": "target", "phase": None, "num_reqs": 4},
}


@pytest.mark.parametrize("name", SGLANG)
def test_sglang(name: str) -> None:
    label = step(name)
    assert label.engine == "sglang"
    assert {key: getattr(label, key) for key in SGLANG[name]} == SGLANG[name]


def test_captures() -> None:
    assert parse_label("capture_512_PIECEWISE") == CaptureLabel(512, "piecewise")
    assert parse_label("capture_8_FULL") == CaptureLabel(8, "full")
    assert parse_label("capture_8_DECODE") == CaptureLabel(8, None)


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#3",
        "execute_context",
        "step[]",
        "step[DECODE",
        "capture_x_FULL",
        "",
        "step[DECODE bs=3000000000]",
        "step[DECODE bs=" + "9" * 5000 + "] x",
    ],
)
def test_others_are_no_labels(name: str) -> None:
    assert parse_label(name) is None


def test_inner_label_speaks_for_the_step() -> None:
    outer = step("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk99sqsq32sqsk99)")
    refined = refine(outer, [step("step[DRAFT bs=32]"), step("step[VERIFY bs=32]")])
    assert (refined.engine, refined.runner, refined.phase) == ("sglang", "target", "verify")
    assert (refined.axis, refined.requested, refined.kv_tokens) == ("requests", 32, 99)
    assert refine(outer, []) == outer
    loop = step("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]")
    assert refine(loop, [step("step[DRAFT bs=4]")]) == loop
