"""Why a step was eager, by the rules of vLLM's dispatch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors.vllm_reasons import Batch, missed_full, v1_reason, v2_reason
from tests.collectors.vllm_standins import (
    Manager,
    Mode,
    NewDescriptor,
    dispatcher_class,
    vllm_config,
)


def dispatcher(mode: Mode, **more: Any) -> Any:
    found = dispatcher_class("0.32")(vllm_config())
    found.initialize_cudagraph_keys(mode)
    for name, value in more.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("mode", "more", "batch", "verdict"),
    [
        (Mode.FULL, {"keys_initialized": False}, Batch(4), ("fallback", "not_captured")),
        (Mode.NONE, {}, Batch(4), ("eager", None)),
        (Mode.FULL, {}, Batch(33), ("fallback", "over_max")),
        (Mode.FULL, {}, Batch(4, forced=True), ("fallback", "mode_excluded")),
        (Mode.FULL_DECODE_ONLY, {}, Batch(9, 4), ("fallback", "mode_excluded")),
        (Mode.FULL, {}, Batch(4, full_excluded=True), ("fallback", "mode_excluded")),
        (Mode.FULL, {}, Batch(4, 4, 1, ranks=2), ("fallback", "dp_sync")),
        (Mode.FULL, {}, Batch(4, 4, 1), ("fallback", "unknown")),
        (Mode.FULL, {}, Batch(4, 4, 1, loras=2), ("fallback", "lora")),
    ],
)
def test_v1(mode: Mode, more: Any, batch: Batch, verdict: tuple[str, str | None]) -> None:
    assert v1_reason(dispatcher(mode, **more), batch) == verdict


def test_v1_over_the_range_of_the_decode_graphs() -> None:
    found = dispatcher(Mode.FULL_DECODE_ONLY)
    found.cudagraph_keys[Mode.FULL] = {NewDescriptor(16, 16, True)}
    assert v1_reason(found, Batch(20, 20, 1)) == ("fallback", "no_key")


def test_v1_without_a_largest_size() -> None:
    found = dispatcher(Mode.FULL)
    found.compilation_config = SimpleNamespace(max_cudagraph_capture_size=None)
    assert v1_reason(found, Batch(1)) == ("fallback", "over_max")


def test_v1_only_adapter_graphs() -> None:
    found = dispatcher(Mode.FULL)
    found.cudagraph_keys = {Mode.FULL: {NewDescriptor(8, 8, False, True, 5)}, Mode.PIECEWISE: set()}
    assert v1_reason(found, Batch(4, 4, 1)) == ("fallback", "lora")


def test_v1_missed_a_full_graph() -> None:
    found = dispatcher(Mode.FULL_AND_PIECEWISE)
    assert missed_full(found, Batch(9, 4)) is None
    assert missed_full(found, Batch(9, 9, 1, full_excluded=True)) == "mode_excluded"
    assert missed_full(found, Batch(9, 9, 1, ranks=2)) == "dp_sync"
    found.cudagraph_keys[Mode.FULL] = {NewDescriptor(8, 8, True)}
    assert missed_full(found, Batch(9, 9, 1)) == "no_key"


@pytest.mark.parametrize(
    ("mode", "captured", "batch", "verdict"),
    [
        (Mode.NONE, True, Batch(4), ("eager", None)),
        (Mode.FULL_AND_PIECEWISE, False, Batch(4), ("fallback", "not_captured")),
        (Mode.FULL_AND_PIECEWISE, True, Batch(33), ("fallback", "over_max")),
        (Mode.FULL_AND_PIECEWISE, True, Batch(4, forced=True), ("fallback", "mode_excluded")),
        (Mode.FULL_DECODE_ONLY, True, Batch(9, 4), ("fallback", "mode_excluded")),
        (Mode.FULL_DECODE_ONLY, True, Batch(9, 33, 1), ("fallback", "no_key")),
        (Mode.FULL_AND_PIECEWISE, True, Batch(4, 4, 1, loras=3), ("fallback", "lora")),
        (Mode.FULL_AND_PIECEWISE, True, Batch(4, 4, 1, ranks=4), ("fallback", "dp_sync")),
    ],
)
def test_v2(mode: Mode, captured: bool, batch: Batch, verdict: tuple[str, str | None]) -> None:
    manager = Manager(mode)
    manager._graphs_captured = captured
    assert v2_reason(manager, batch) == verdict


def test_v2_without_a_manager() -> None:
    assert v2_reason(None, Batch(4)) == ("eager", None)
