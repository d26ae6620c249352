from graphdiag.limits import find_limits, short_frame, steps_at
from tests.build import START_NS, event, step, trace

FRAME = "step /srv/engine/loop.py:7"


def reached(at_ms, frame=FRAME, **columns):
    told = {"frame": frame, "effect": "eager", "limit": "recompile_limit", "reason": "0/7: size"}
    return event("mark", at_ms, kind="recompile_limit", **{"config": told, **columns})


def reset(at_ms, **columns):
    return event("mark", at_ms, kind="dynamo_reset", config={"frames": [FRAME]}, **columns)


def limits(*rows):
    return find_limits(trace(rows).events())


def counted(rows):
    made = trace(rows)
    found = find_limits(made.events())
    table = steps_at(found, made.steps().collect())
    return [(row["frame"], row["weight"]) for row in table.iter_rows(named=True)]


def test_a_limit_is_open_until_a_reset_of_its_process():
    other = {"pid": 2}
    first, second = limits(reached(5), reached(6, **other), reset(9, **other))
    assert (first.frame, first.since_ns, first.until_ns) == (FRAME, START_NS + 5_000_000, None)
    assert (first.effect, first.setting, first.reason) == ("eager", "recompile_limit", "0/7: size")
    assert second.until_ns == START_NS + 9_000_000


def test_a_frame_may_reach_it_again_after_a_reset_and_not_before():
    found = limits(reached(5), reached(6), reset(9), reached(12))
    assert [(one.since_ns - START_NS) // 1_000_000 for one in found] == [5, 12]


def test_details_that_are_none_break_nothing():
    found = limits(
        reached(1, config=None), reached(2, config="[1]", pid=2), reached(3, config="{cut", pid=3)
    )
    assert {one.frame for one in found} == {"an unnamed frame"}
    assert {(one.effect, one.setting, one.reason) for one in found} == {("eager", None, None)}


def test_steps_count_from_the_mark_to_the_reset_in_their_process():
    rows = [reached(10), reset(20)]
    rows += [step(1, None, float(i), weight=2) for i in range(30)]
    rows += [step(1, None, 15.0, pid=2), step(1, None, 15.0, run="run-2")]
    rows += [step(1, None, 15.0, runner="draft"), step(1, None, 15.0, kind="warmup")]
    rows += [step(1, None, t_ns=None)]
    assert counted(rows) == [(FRAME, 20)]


def test_each_frame_has_its_own_count():
    rows = [reached(10, "a"), reached(25, "b"), *[step(1, None, float(i)) for i in range(30)]]
    assert sorted(counted(rows)) == [("a", 20), ("b", 5)]
    assert counted([reached(10)]) == [(FRAME, 0)]
    assert counted([step(1)]) == []


def test_a_frame_is_shown_without_the_path():
    assert short_frame(FRAME) == "step loop.py:7"
    assert short_frame("<lambda> /a b/c d.py:3") == "<lambda> c d.py:3"
    assert short_frame("frame 0") == "frame 0"
    assert short_frame("") == ""
