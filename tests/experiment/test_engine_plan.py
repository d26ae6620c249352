"""What is checked of a plan, what faults do to it, and how requests are fed; without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from graphdiag.experiment.engine.__main__ import main
from graphdiag.experiment.engine.artifacts import INFLUENCES, Artifact, Artifacts
from graphdiag.experiment.engine.checks import check_machine, check_plan
from graphdiag.experiment.engine.errors import EngineError
from graphdiag.experiment.engine.faults import FAULTS, STALE_STEP, set_up
from graphdiag.experiment.engine.kv_cache import Blocks
from graphdiag.experiment.engine.scheduler import Batch, Scheduler
from graphdiag.experiment.engine.serving import Serving, prompt_of
from graphdiag.experiment.plan import EngineSize, Request, RunPlan
from graphdiag_collectors import Recorder


def plan(**changes: object) -> RunPlan:
    requests = (Request(0, 4, 3, step=0), Request(0, 5, 2, step=0), Request(0, 3, 2, step=9))
    base = RunPlan("graphs", "trace.parquet", requests, (1, 4, 12), EngineSize(max_requests=12))
    return msgspec.structs.replace(base, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mode": "fast"}, "no mode is called fast"),
        ({"device": "tpu"}, "not on tpu"),
        ({"buckets": ()}, "name some buckets"),
        ({"buckets": (0, 4)}, "at least 1"),
        ({"size": EngineSize(heads=0)}, "at least 1"),
        ({"size": EngineSize(hidden=30)}, "multiple of heads"),
        ({"size": EngineSize(cache_blocks=0)}, "needs 1"),
        ({"requests": (Request(0, 500, 13),)}, "request 0 has 500 prompt and 13 output tokens"),
        ({"requests": (Request(0, 0, 1),)}, "request 0"),
    ],
)
def test_a_plan_that_cannot_run_gets_a_sentence(changes: dict[str, object], told: str) -> None:
    with pytest.raises(EngineError, match=told):
        check_plan(plan(**changes))


def test_the_cache_holds_the_longest_requests_by_default() -> None:
    assert check_plan(plan()) == 12
    assert check_plan(plan(requests=(Request(0, 400, 12),))) == 12 * 26


def test_buckets_need_not_cover_the_largest_batch() -> None:
    assert check_plan(plan(buckets=(4,))) > 0


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineError, match=r'pip install "graphdiag\[torch\]"'):
        check_machine(plan())


def test_every_fault_is_told_and_changes_its_mode_alone() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 7
    for fault in FAULTS:
        assert all(fault)
        faulty = plan(mode=fault.mode, faults=(fault.name,))
        assert set_up(faulty) != set_up(plan(mode=fault.mode))
        other = "eager"
        assert set_up(plan(mode=other, faults=(fault.name,))) == set_up(plan(mode=other))


def test_what_the_faults_do() -> None:
    def of(name: str, **changes: object) -> object:
        return set_up(plan(faults=(name,), **changes))

    assert of("no_warmup").warmed == frozenset()
    assert of("low_ceiling").full == (1, 4)
    assert of("low_ceiling", buckets=(12,)).full == (6,)
    assert of("doubling_ladder").full == (1, 2, 4, 8, 16)
    assert not of("smallest_first").largest_first
    assert "weights" not in of("stale_key").influences
    assert of("stale_key").reload_step == STALE_STEP
    assert of("stale_key", reload_step=7).reload_step == 7
    assert of("unwarmed_shape").warmed == frozenset((1, 4))


def test_a_fault_that_there_is_not() -> None:
    with pytest.raises(EngineError, match="choose from no_warmup, "):
        set_up(plan(faults=("typo",)))


def test_a_key_that_leaves_an_influence_out_finds_what_is_stale() -> None:
    identity = dict.fromkeys(INFLUENCES, "same")
    changed = {**identity, "weights": "new"}
    made = Artifact("full/4", "full", 4, (), None)
    for influences, found in ((INFLUENCES, None), (INFLUENCES[1:], made)):
        artifacts = Artifacts(influences)
        artifacts.put(artifacts.key("full", 4, identity), made)
        assert artifacts.get(artifacts.key("full", 4, identity)) is made
        assert artifacts.get(artifacts.key("full", 8, identity)) is None
        assert artifacts.get(artifacts.key("full", 4, changed)) is found


class Counting:
    """Samples the count of steps."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.reloaded_at: list[int] = []

    def step(self, batch: Batch) -> list[int]:
        self.batches.append(batch)
        return [len(self.batches)] * sum(row.samples for row in batch.rows)

    def reload(self) -> None:
        self.reloaded_at.append(len(self.batches))


def serve(tmp_path: Path, given: RunPlan, steps: int = 1000) -> tuple[Serving, Counting]:
    engine = Counting()
    with Recorder(tmp_path / "trace.parquet", run="run") as recorder:
        scheduler = Scheduler(Blocks(64, 16), 12, 64)
        serving = Serving(given, scheduler, recorder, given.reload_step)
        serving.run(engine, lambda: len(engine.batches) >= steps)
        assert recorder.status().dropped == 0
    return serving, engine


def test_requests_come_at_their_step_and_idle_ones_are_skipped(tmp_path: Path) -> None:
    serving, engine = serve(tmp_path, plan(reload_step=2))
    assert [len(batch.rows) for batch in engine.batches] == [2, 2, 1, 1, 1]
    assert (serving.steps, serving.tokens_out) == (5, 7)
    assert engine.reloaded_at == [2]


def test_requests_come_at_their_time(tmp_path: Path) -> None:
    requests = (Request(0.05, 4, 1), Request(0.0, 4, 1))
    serving, engine = serve(tmp_path, plan(requests=requests))
    assert [batch.rows[0].sequence.number for batch in engine.batches] == [1, 0]
    assert serving.first_step_at is not None


def test_the_digest_does_not_depend_on_when_requests_ran(tmp_path: Path) -> None:
    requests = (Request(0, 4, 1, step=0), Request(0, 5, 1, step=0))
    together, _ = serve(tmp_path, plan(requests=requests))
    again = (Request(0, 5, 1, step=0), Request(0, 4, 1, step=0))
    assert together.digest() == serve(tmp_path, plan(requests=again))[0].digest()
    few, _ = serve(tmp_path, plan(), steps=2)
    assert few.digest() != serve(tmp_path, plan())[0].digest()


def test_prompts_follow_from_the_seed() -> None:
    assert prompt_of(plan(), 0) == prompt_of(plan(), 0)
    assert prompt_of(plan(), 0) != prompt_of(plan(seed=1), 0)
    assert len(prompt_of(plan(), 1)) == 5


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "PLAN.json RESULT.json" in capsys.readouterr().err
    here, there = tmp_path / "plan.json", tmp_path / "result.json"
    assert main([str(here), str(there)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    here.write_text(json.dumps({"mode": "graphs"}))
    assert main([str(here), str(there)]) == 2
    assert "missing required field" in capsys.readouterr().err
    here.write_bytes(msgspec.json.encode(plan(faults=("typo",))))
    assert main([str(here), str(there)]) == 2
    assert capsys.readouterr().err.startswith("error: no fault is called typo")
    assert not there.exists()
