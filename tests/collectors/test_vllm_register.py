"""The entry point, the wrappers of one signature, and the small parts."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import vllm
from graphdiag_collectors.guard import Guard
from graphdiag_collectors.vllm_batch import (
    context_of,
    mixed_of,
    phase_of,
    produced_in,
    produced_singly,
)
from graphdiag_collectors.vllm_mirror import (
    beginning,
    ending,
    fetching,
    keeping,
    launching,
    noting,
)
from tests.collectors.vllm_standins import plan


def test_register_does_nothing_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "STATE", None)
    monkeypatch.setenv("GRAPHDIAG_ATTACH", "0")
    before = list(sys.meta_path)
    vllm.register()
    assert vllm.STATE is None
    assert sys.meta_path == before


def test_register_imports_no_engine_and_nothing_of_ours_at_the_start() -> None:
    code = (
        "import os, sys; os.environ['GRAPHDIAG_TRACE'] = '/nowhere/trace';"
        "os.environ['GRAPHDIAG_ATTACH'] = '0';"
        "from graphdiag_collectors.vllm import register;"
        "before = set(sys.modules); register(); register();"
        "assert set(sys.modules) == before, set(sys.modules) - before;"
        "assert not {'torch', 'vllm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_register_never_raises() -> None:
    code = (
        "import os; os.environ.update(GRAPHDIAG_TRACE='/nowhere/trace', GRAPHDIAG_ATTACH='0')\n"
        "from graphdiag_collectors import vllm\n"
        "def broken(*_): raise OSError('no')\n"
        "vllm.when_imported = broken\n"
        "vllm.register()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == "graphdiag: vllm is not recorded (OSError: no)\n"


def test_it_can_be_taken_off_and_put_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "STATE", None)
    monkeypatch.setattr(vllm, "when_imported", lambda name, callback: None)
    hooks = vllm.install()
    assert vllm.install() is hooks
    vllm.uninstall()
    assert vllm.STATE is None
    assert vllm.install() is not hooks


def test_a_module_that_looks_different_is_named_not_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, list[Any]] = {}
    monkeypatch.setenv("GRAPHDIAG_TRACE", "/nowhere/trace")
    monkeypatch.setattr(vllm, "STATE", None)
    monkeypatch.setattr(vllm, "when_imported", lambda name, f: given.setdefault(name, []).append(f))
    vllm.install()
    for callbacks in given.values():
        for callback in callbacks:
            callback(SimpleNamespace(__name__="empty"))
    assert vllm.STATE is not None
    missing = vllm.STATE.hooks.missing
    assert "vllm.v1.worker.gpu_model_runner: hook_runner" in missing
    assert "GPUModelRunner" in missing["vllm.v1.worker.gpu_model_runner: hook_runner"]


def wide(a: int, b: int = 2, *rest: int, c: int, d: int = 4, **more: int) -> tuple[Any, ...]:
    return a, b, rest, c, d, more


def test_a_noting_wrapper_has_the_signature_and_passes_everything_on() -> None:
    notes: list[Any] = []
    mirror = noting(wide, ("c", "missing"), notes.append, ("b",))
    assert mirror(1, c=3) == (1, 2, (), 3, 4, {})
    assert mirror(1, 5, 6, 7, c=3, d=8, e=9) == (1, 5, (6, 7), 3, 8, {"e": 9})
    assert list(inspect.signature(mirror).parameters) == list(inspect.signature(wide).parameters)
    c, missing, began, ended, result, b = notes[1]
    assert (c, missing, b) == (3, None, 5)
    assert result == (1, 5, (6, 7), 3, 8, {"e": 9})
    assert began <= ended
    with pytest.raises(TypeError):
        mirror(1)
    assert len(notes) == 2


class Thing:
    def begin(self, plan: str, other: int | None = None) -> int | None:
        return other

    def end(self, *, last: bool = False) -> str:
        if last:
            raise OSError("the engine's")
        return "end"


class Finish:
    """In the place of ``Steps``."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.broken = False

    def finish(self, *given: Any) -> None:
        if self.broken:
            raise ValueError("ours")
        self.calls.append(given)


def test_wrappers_that_keep_on_their_first_argument() -> None:
    calls: list[Any] = []
    after = lambda *given: calls.append(given)  # noqa: E731
    thing = Thing()
    begin = beginning(Thing.begin, "plan", after, after, False)
    assert begin(thing, "plan") is None
    kept = vars(thing)
    assert kept["_graphdiag_plan"] == "plan"
    assert kept["_graphdiag_start"] <= kept["_graphdiag_launched"]
    assert kept["_graphdiag_held"] is None
    assert calls == []
    assert begin(thing, plan="plan", other=4) == 4
    assert calls[0][:2] == (thing, 4)
    assert keeping(Thing.begin, ("other",))(thing, "plan", 3) == 3
    assert thing._graphdiag_asked[0] == 3  # type: ignore[attr-defined]


def test_a_wrapper_that_ends_a_step() -> None:
    failures: list[Any] = []
    guard = Guard("vllm.step", print)
    thing = Thing()
    end = ending(Thing.end, guard, lambda *given: failures.append(given))
    assert end(thing) == "end"  # nothing was begun
    assert [given[:2] for given in failures] == [(thing, "end")]
    thing._graphdiag = steps = Finish()  # type: ignore[attr-defined]
    guard.in_a_row = 2
    assert end(thing) == "end"
    assert steps.calls[0][:2] == (thing, "end")
    assert guard.in_a_row == 0
    with pytest.raises(OSError, match="the engine's"):
        end(thing, last=True)
    steps.broken = True
    assert end(thing) == "end"
    assert (len(steps.calls), str(failures[1][2])) == (1, "ours")
    guard.on = False
    assert end(thing) == "end"
    assert len(failures) == 2


def test_a_wrapper_that_fetches_a_result() -> None:
    guard = Guard("vllm.output", print)
    calls: list[Any] = []
    thing = Thing()
    fetch = fetching(Thing.end, guard, lambda *given: calls.append(given))
    assert fetch(thing) == "end"  # nobody waits for it
    thing._graphdiag_row = waiting = [1]  # type: ignore[attr-defined]
    assert fetch(thing) == "end"
    assert calls[0][:2] == (waiting, "end")
    waiting.clear()
    assert fetch(thing) == "end"
    assert (len(calls), guard.failures) == (1, 0)
    waiting.append(2)
    assert fetching(Thing.end, guard, lambda: None)(thing) == "end"
    assert guard.failures == 1


def test_a_wrapper_of_a_launch() -> None:
    notes: list[Any] = [1]
    calls: list[Any] = []
    guard = Guard("vllm.dispatch", print)
    after = lambda *given: calls.append(given)  # noqa: E731

    def launch(self: Any, plan: str, dummy: bool = False) -> str:
        if dummy:
            notes.append(plan)
        return "launched"

    launched = launching(launch, ("plan", "missing", "dummy"), after, notes, guard, after)
    assert launched(3, "plan") == "launched"
    assert calls == notes == []
    assert launched(3, "plan", dummy=True) == "launched"
    thing, result, start, end, held, *told = calls[0]
    assert (thing, result, held, told) == (3, "launched", None, ["plan", None, True])
    assert start <= end


def test_phases() -> None:
    assert phase_of(plan(3)) == "decode"
    assert phase_of(plan(0, (5, 6))) == "prefill"
    assert phase_of(plan(3, (5,))) == "mixed"
    chunked = plan(3)
    chunked.scheduled_cached_reqs.num_output_tokens = [0, 5, 5]
    assert phase_of(chunked) == "mixed"
    chunked.scheduled_cached_reqs.num_output_tokens = [0, 0, 0]
    assert phase_of(chunked) == "prefill"
    resumed = plan(2)
    resumed.scheduled_cached_reqs.resumed_req_ids = {"cmpl-0", "cmpl-1"}
    assert phase_of(resumed) == "prefill"
    for batch in (plan(3), plan(0, (5, 6)), plan(3, (5,)), chunked, resumed):
        assert mixed_of(batch, 7) == (phase_of(batch), context_of(batch, 7))
    chunked.scheduled_cached_reqs.num_output_tokens = [5, 0, 5]
    assert mixed_of(chunked, 7) == ("mixed", context_of(chunked, 7))
    unknown = plan(2)
    del unknown.scheduled_cached_reqs.num_output_tokens
    assert phase_of(unknown) is None


def test_context_and_tokens_out() -> None:
    assert context_of(plan(3, (6, 7), seen=10), 16) == 46
    assert produced_in(SimpleNamespace(sampled_token_ids=[[1], [2, 3], []])) == 3
    assert produced_singly(SimpleNamespace(sampled_token_ids=[[1], [2], []])) == 2
    assert produced_singly(SimpleNamespace()) is None
    assert produced_in(SimpleNamespace()) is None
