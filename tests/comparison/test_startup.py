"""What a start cost: the time to the first step, its parts, and what came of it."""

import pytest

from graphdiag.comparison.startup import start_up
from graphdiag.summary import summarize
from tests.build import MS, event, step, trace

S = 1000.0


def measured(*rows):
    return start_up(summarize(trace(rows)))


def compiled(at_s, seconds, artifact, **columns):
    return event("compile", at_s * S, dur_ns=int(seconds * 1e9), artifact=artifact, **columns)


def captured(at_s, seconds, artifact, **columns):
    return event("capture", at_s * S, dur_ns=int(seconds * 1e9), artifact=artifact, **columns)


def test_the_time_to_the_first_step_is_split():
    found = measured(
        event("run", 0, config={"engine": "vllm"}),
        compiled(2, 10, "model", cache="miss"),
        compiled(12, 3, "region", cache="hit"),
        captured(15, 4, "decode/16"),
        captured(19, 2, "decode/8"),
        step(8, 8, 30 * S),
        step(8, 8, 31 * S),
        captured(32, 5, "decode/4"),
    )
    assert found.first_step_s == pytest.approx(30)
    assert (found.compile_s, found.cache_load_s, found.capture_s) == (10, 3, 6)
    assert found.rest_s == pytest.approx(30 - 19)
    assert (found.artifacts, found.served, found.served_steps) == (5, 1, 2)


def test_ranks_start_at_the_same_time():
    found = measured(
        event("run", 0, config={"engine": "vllm"}),
        captured(1, 4, "g", rank=0, pid=1),
        captured(1, 5, "g", rank=1, pid=2),
        step(8, 8, 10 * S),
    )
    assert found.capture_s == 5
    assert found.artifacts == 1


def test_of_several_starts_the_last_is_measured():
    found = measured(
        event("run", 0, run="a", config={}),
        captured(1, 4, "g", run="a"),
        step(8, 8, 10 * S, run="a"),
        event("run", 100 * S, run="b", config={}),
        captured(101, 2, "h", run="b"),
        step(8, 8, 110 * S, run="b"),
    )
    assert found.first_step_s == pytest.approx(10)
    assert found.capture_s == 2


def test_an_eager_engine_makes_nothing():
    found = measured(event("run", 0, config={}), step(8, None, 4 * S, outcome="eager"))
    assert (found.first_step_s, found.rest_s) == (4, 4)
    assert (found.compile_s, found.artifacts, found.served, found.served_steps) == (0, 0, 0, 0)


def test_an_import_that_shows_no_work_does_not_tell_what_it_took():
    found = measured(event("run", 0, config={"importer": "kineto"}), step(8, 8, 4 * S))
    assert found.compile_s is None
    assert found.capture_s is None
    assert found.rest_s is None


def test_graphs_that_served_and_nothing_made_on_record():
    found = measured(event("run", 0, config={}), step(8, 8, 4 * S, artifact="decode/8"))
    assert (found.artifacts, found.served, found.served_steps) == (0, None, None)


def test_graphs_without_names_are_counted_and_their_use_is_not_known():
    found = measured(
        event("run", 0, config={"importer": "vllm_log"}),
        event("capture", 0, weight=35, dur_ns=4_000 * MS),
        step(8, 8, 10 * S),
    )
    assert (found.artifacts, found.served, found.served_steps) == (35, None, None)


def test_work_without_a_time_came_before_the_first_step():
    rows = [event("run", 0, config={}), {**captured(0, 4, "g"), "t_ns": None}, step(8, 8, 10 * S)]
    assert measured(*rows).capture_s == 4


def test_without_a_step_or_with_events_after_it_the_time_is_not_known():
    assert measured(event("run", 0, config={})).first_step_s is None
    assert measured(step(8, 8, 0.0), event("run", 4 * S, config={})).first_step_s is None


def test_synthetic_steps_are_no_first_step_and_part_of_the_start():
    found = measured(
        event("run", 2 * S, config={}), step(8, 8, 1 * S, kind="warmup"), step(8, 8, 5 * S)
    )
    assert found.first_step_s == 4
