"""Compiles as each version of torch tells them, with stand-ins for Dynamo's modules."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import session, torch_compile, torch_hooks
from graphdiag_collectors.torch_metrics import Counters, cache_of, kind_of, short, time_of
from tests.collectors.rows import Row, read

START_S = 1_795_963_092


class Handler:
    """Dynamo's callback handler; before torch 2.8 it calls back without arguments."""

    def __init__(self) -> None:
        self.start_callbacks: list[Callable[..., None]] = []
        self.end_callbacks: list[Callable[..., None]] = []

    def register_start_callback(self, callback: Callable[..., None]) -> None:
        self.start_callbacks.append(callback)

    def register_end_callback(self, callback: Callable[..., None]) -> None:
        self.end_callbacks.append(callback)

    def remove_start_callback(self, callback: Callable[..., None]) -> None:
        self.start_callbacks.remove(callback)

    def remove_end_callback(self, callback: Callable[..., None]) -> None:
        self.end_callbacks.remove(callback)

    def clear(self) -> None:
        self.start_callbacks.clear()
        self.end_callbacks.clear()


class Dynamo:
    """The two modules of Dynamo that are hooked, and what a compile does to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logged: list[Any] = []
        self.kept: list[Any] = []
        self.counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.utils = ModuleType("torch._dynamo.utils")
        self.handler = Handler()
        vars(self.utils).update(
            log_compilation_event=lambda metrics: self.logged.append(metrics),
            get_compilation_metrics=lambda: list(self.kept),
            counters=self.counters,
        )
        callback = ModuleType("torch._dynamo.callback")
        vars(callback)["callback_handler"] = self.handler
        for module in (self.utils, callback):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def compiled(self, **fields: Any) -> None:
        """Finish a compile as torch does: keep the metrics, then log them."""
        metrics = SimpleNamespace(**fields)
        self.kept.append(metrics)
        self.utils.log_compilation_event(metrics)


def v24(compile_id: str, at: float = 0, **fields: Any) -> dict[str, Any]:
    """Metrics as torch 2.4 has them: no microseconds, no cache, no reason."""
    return {
        "compile_id": compile_id,
        "co_name": "forward",
        "co_filename": "/srv/model.py",
        "co_firstlineno": 16,
        "start_time": START_S + at,
        "entire_frame_compile_time_s": 0.5,
        "fail_type": None,
        "fail_reason": None,
        **fields,
    }


def v28(compile_id: str, at: float = 0, **fields: Any) -> dict[str, Any]:
    """Metrics as torch 2.8 has them."""
    new = {
        "start_time_us": round((START_S + at) * 1e6),
        "duration_us": 700_000,
        "is_forward": True,
        "is_runtime": False,
        "recompile_reason": None,
        "cudagraph_skip_reason": None,
        "has_guarded_code": True,
    }
    return {**v24(compile_id, at), **new, **fields}


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Dynamo]:
    monkeypatch.setenv("GRAPHDIAG_TRACE", str(folder))
    monkeypatch.setattr(torch_compile, "_RECORDED", torch_compile.deque(maxlen=256))
    yield Dynamo(monkeypatch)
    finish()


def finish() -> None:
    torch_hooks.uninstall()
    session.close()


def compiles(folder: Path) -> list[Row]:
    finish()
    return read(folder, "compile")


def marks(folder: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    finish()
    return [
        (row["weight"], json.loads(row["config"]))
        for row in read(folder, "mark")
        if row["kind"] == kind
    ]


FRAME = "forward /srv/model.py:16"


def test_a_compile_of_torch_2_4_has_its_time_and_frame(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    dynamo.compiled(**v24("0/0"))
    assert len(dynamo.logged) == 1
    (row,) = compiles(folder)
    assert row["artifact"] == "forward model.py:16"
    assert json.loads(row["key"]) == {"frame": FRAME, "compile_id": "0/0"}
    assert (row["t_ns"], row["dur_ns"]) == (START_S * 10**9, 500_000_000)
    assert (row["kind"], row["cache"], row["reason"]) == ("dynamo", "none", None)


def test_before_2_13_the_counters_tell_what_the_cache_did(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    for number, (group, name) in enumerate(
        (
            ("inductor", "fxgraph_cache_miss"),
            ("inductor", "fxgraph_cache_hit"),
            ("aot_autograd", "autograd_cache_hit"),
            ("inductor", "something_else"),
        )
    ):
        dynamo.counters[group][name] += 1
        dynamo.compiled(**v28(f"0/{number}"))
    assert [row["cache"] for row in compiles(folder)] == ["miss", "hit", "hit", "none"]


def test_what_was_compiled_before_is_recorded_once_and_its_cache_is_not_guessed(
    dynamo: Dynamo, folder: Path
) -> None:
    dynamo.counters["inductor"]["fxgraph_cache_miss"] = 1
    dynamo.counters["graph_break"]["a print"] = 2
    dynamo.compiled(**v28("0/0"))
    torch_hooks.install()
    torch_hooks.uninstall()
    torch_hooks.install()
    dynamo.compiled(**v28("0/1", at=9, recompile_reason="0/0: tensor 'x' size mismatch"))
    rows = compiles(folder)
    assert [json.loads(row["key"])["compile_id"] for row in rows] == ["0/0", "0/1"]
    assert [row["cache"] for row in rows] == [None, "none"]
    assert [row["reason"] for row in rows] == [None, "0/0: tensor 'x' size mismatch"]
    assert marks(folder, "graph_break")[0] == (2, {"reason": "a print"})


def test_a_later_recording_gets_what_was_compiled_before_it_too(
    dynamo: Dynamo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_hooks.install()
    dynamo.compiled(**v28("0/0"))
    assert len(compiles(folder)) == 1
    monkeypatch.setenv("GRAPHDIAG_RUN", "another-run")
    torch_hooks.install()
    assert [row["run"] for row in compiles(folder)] == ["run-of-the-tests", "another-run"]


def test_the_limit_names_its_frame_by_number_and_is_said_once(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    dynamo.compiled(**v28("3/0"))
    for number in (8, 9):
        dynamo.compiled(
            **v28(
                f"3/{number}",
                at=number,
                co_name=None,
                fail_type="Unsupported",
                fail_reason="cache_size_limit reached",
                recompile_reason="3/7: size mismatch",
            )
        )
    rows = compiles(folder)
    assert [row["weight"] for row in rows] == [1, 0, 0]
    assert {row["artifact"] for row in rows} == {"forward model.py:16"}
    assert marks(folder, "recompile_limit") == [
        (
            1,
            {
                "frame": FRAME,
                "compile_id": "3/8",
                "effect": "eager",
                "limit": "cache_size_limit",
                "reason": "3/7: size mismatch",
            },
        )
    ]


def test_a_frame_that_nobody_named_is_called_by_its_number(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    dynamo.compiled(**v28("5/0", co_name=None, is_forward=False))
    (row,) = compiles(folder)
    assert (row["artifact"], row["kind"]) == ("frame 5", "backward")


def test_a_failure_costs_time_and_is_no_compile(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    dynamo.compiled(**v28("0/0", fail_type="BackendCompilerFailed", fail_reason="no"))
    assert torch_hooks.compiles() == (0, 700_000_000)
    assert [(row["weight"], row["cache"]) for row in compiles(folder)] == [(0, None)]
    assert marks(folder, "compile_failed") == [
        (1, {"frame": FRAME, "compile_id": "0/0", "type": "BackendCompilerFailed", "reason": "no"})
    ]


def test_cudagraph_skips_have_their_reason_where_torch_gives_it(
    dynamo: Dynamo, folder: Path
) -> None:
    torch_hooks.install()
    dynamo.counters["inductor"]["cudagraph_skips"] += 1
    dynamo.compiled(**v28("0/0", cudagraph_skip_reason="skipping cudagraphs due to cpu device"))
    dynamo.counters["inductor"]["cudagraph_skips"] += 2
    dynamo.compiled(**v24("0/1", at=1))
    dynamo.compiled(**v24("0/2", at=2))
    found = marks(folder, "cudagraph_skip")
    assert [(weight, details["reason"]) for weight, details in found] == [
        (1, "skipping cudagraphs due to cpu device"),
        (2, None),
    ]


def test_work_at_run_time_is_autotuning_or_a_mark(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install()
    dynamo.compiled(**v28("0/0", is_runtime=True, runtime_triton_autotune_time_us=30))
    dynamo.compiled(**v28("0/0", is_runtime=True, at=1, runtime_cudagraphify_time_us=40))
    (row,) = compiles(folder)
    assert (row["kind"], row["dur_ns"], row["weight"]) == ("autotune", 30_000, 0)
    assert len(marks(folder, "cudagraphify")) == 1


def test_the_callbacks_come_back_after_a_reset_and_take_no_arguments_before_2_8(
    dynamo: Dynamo, folder: Path
) -> None:
    torch_hooks.install()
    watch = torch_hooks._installed.compiles  # type: ignore[union-attr]
    assert watch is not None
    dynamo.handler.clear()
    (start,), (end,) = dynamo.handler.start_callbacks, dynamo.handler.end_callbacks
    start()
    assert watch.running is not None
    assert watch.running[1] == ""
    end()
    start(SimpleNamespace(callback_trigger=SimpleNamespace(name="DYNAMO"), compile_id="0/1"))
    assert watch.running is not None
    assert watch.running[1] == "DYNAMO 0/1"
    finish()
    assert dynamo.handler.start_callbacks == dynamo.handler.end_callbacks == []


def test_nothing_leaves_a_callback(
    dynamo: Dynamo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = torch_hooks.install()

    def broken() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_compile.time, "time_ns", broken)
    dynamo.handler.start_callbacks[0]()
    monkeypatch.undo()
    assert hooks.guard("torch.compile.callbacks").failures == 1


def test_the_original_is_called_once_and_what_it_raises_passes(
    dynamo: Dynamo, folder: Path
) -> None:
    def log(metrics: Any) -> str:
        dynamo.logged.append(metrics)
        if metrics.fail_type:
            raise OSError("scuba is down")
        return "logged"

    vars(dynamo.utils)["log_compilation_event"] = log
    torch_hooks.install()
    assert dynamo.utils.log_compilation_event(SimpleNamespace(**v28("0/0"))) == "logged"
    with pytest.raises(OSError, match="scuba is down"):
        dynamo.utils.log_compilation_event(SimpleNamespace(**v28("0/1", fail_type="E")))
    assert len(dynamo.logged) == 2
    torch_hooks.uninstall()
    assert dynamo.utils.log_compilation_event is log


def test_metrics_switched_off_in_dynamo_are_said_to_be_missing(
    dynamo: Dynamo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModuleType("torch._dynamo.config")
    vars(config)["log_compilation_metrics"] = False
    monkeypatch.setitem(sys.modules, config.__name__, config)
    hooks = torch_hooks.install()
    assert hooks.missing["torch.compile"] == "log_compilation_metrics is off in Dynamo"


def test_compiles_can_be_left_to_the_engines_own_collector(dynamo: Dynamo, folder: Path) -> None:
    torch_hooks.install(compiles=False)
    dynamo.compiled(**v28("0/0"))
    assert torch_hooks.compiles_since((0, 0)) == (None, None)
    assert not folder.exists()


V213 = {
    "inductor_fx_local_cache_hit_count": 0,
    "inductor_fx_local_cache_miss_count": 0,
    "inductor_fx_remote_cache_hit_count": 0,
    "aotautograd_local_cache_hit_count": 0,
    "aotautograd_local_cache_miss_count": None,
    "aotautograd_remote_cache_hit_count": 0,
}


@pytest.mark.parametrize(
    ("counts", "cache"),
    [
        ({}, "none"),
        ({"inductor_fx_local_cache_hit_count": 1}, "hit"),
        ({"aotautograd_local_cache_hit_count": 1}, "hit"),
        (
            {"inductor_fx_local_cache_miss_count": 1, "aotautograd_local_cache_miss_count": 1},
            "miss",
        ),
        ({"aotautograd_local_cache_miss_count": 1}, "miss"),
        ({"aotautograd_local_cache_miss_count": 1, "inductor_fx_local_cache_hit_count": 1}, "hit"),
        ({"inductor_fx_local_cache_miss_count": 1, "inductor_fx_remote_cache_hit_count": 1}, "hit"),
        ({"inductor_fx_local_cache_miss_count": 1, "inductor_fx_local_cache_hit_count": 2}, "miss"),
    ],
)
def test_from_2_13_the_metrics_tell_what_the_cache_did(counts: dict[str, int], cache: str) -> None:
    metrics = SimpleNamespace(**{**V213, **counts})
    assert cache_of(metrics, Counters({}), history=True) == cache


@pytest.mark.parametrize(
    ("fields", "time"),
    [
        ({"start_time_us": 5, "duration_us": 7}, (5_000, 7_000)),
        ({"start_time_us": 5, "end_time_us": 8}, (5_000, 3_000)),
        ({"start_time": 1.5, "entire_frame_compile_time_s": 0.25}, (1_500_000_000, 250_000_000)),
        ({}, (None, None)),
    ],
)
def test_the_time_is_whatever_the_version_says(
    fields: dict[str, Any], time: tuple[int | None, int | None]
) -> None:
    assert time_of(SimpleNamespace(**fields)) == time


def test_counters_grow_fall_and_begin_anew() -> None:
    counters: dict[str, Counter[str]] = {"inductor": Counter(hit=3)}
    watched = Counters(counters)
    assert watched.grown("inductor", "hit") == 3
    assert watched.grown("inductor", "hit") == 0
    counters["inductor"]["hit"] = 1  # Dynamo's counters were cleared
    assert watched.grown("inductor", "hit") == 1
    counters["inductor"]["miss"] = 2
    assert watched.all_grown("inductor") == {"miss": 2}
    assert watched.all_grown("nothing") == {}


def test_kinds_and_long_texts() -> None:
    assert kind_of(SimpleNamespace(is_forward=False), "0/0") == "backward"
    assert kind_of(SimpleNamespace(), "!0/1/0") == "compiled_autograd"
    assert short(None) is None
    assert short("x" * 3000) == "x" * 1999 + "…"
    assert short("\udc80") == "?"
