"""The entry point, the wrappers of one signature, and the small parts."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from graphdiag_collectors import vllm
from graphdiag_collectors.vllm_batch import context_of, phase_of, produced_in
from graphdiag_collectors.vllm_mirror import beginning, ending, keeping, noting
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
        return "end"


def test_wrappers_that_keep_on_their_first_argument() -> None:
    calls: list[Any] = []
    after = lambda *given: calls.append(given)  # noqa: E731
    thing = Thing()
    begin = beginning(Thing.begin, ("plan",), "kept", after, False)
    assert begin(thing, "plan") is None
    plan_kept, start, launched = thing.kept  # type: ignore[attr-defined]
    assert plan_kept == "plan"
    assert start <= launched
    assert calls == []
    assert begin(thing, plan="plan", other=4) == 4
    assert calls[0][:2] == (thing, 4)
    assert ending(Thing.end, after)(thing, last=True) == "end"
    assert calls[1][1] == "end"
    assert keeping(Thing.begin, ("other",), "asked")(thing, "plan", 3) == 3
    assert thing.asked[0] == 3  # type: ignore[attr-defined]


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
    unknown = plan(2)
    del unknown.scheduled_cached_reqs.num_output_tokens
    assert phase_of(unknown) is None


def test_context_and_tokens_out() -> None:
    assert context_of(plan(3, (6, 7), seen=10), 16) == 46
    assert produced_in(SimpleNamespace(sampled_token_ids=[[1], [2, 3], []])) == 3
    assert produced_in(SimpleNamespace()) is None
