import polars as pl
import pytest

from graphdiag.insteps import find_in_steps, split_events
from graphdiag.summary import summarize
from tests.build import MS, START_NS, event, step, trace

STEPS = [step(8, 8, 10.0 * i, dur_ns=10 * MS) for i in range(5)]


def compiled(at_ms, ms, **columns):
    return event("compile", at_ms, dur_ns=round(ms * MS), **columns)


def inside(*events, steps=STEPS):
    """Step (by its start, ms) and time inside it, ms, of each event that ran inside one."""
    made = trace([*steps, *events])
    found = find_in_steps(made, made.events())
    return [((one.step_ns - START_NS) // MS, one.ns / MS) for one in found]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (compiled(12.0, 3), [(10, 3)]),
        (compiled(10.0, 10), [(10, 10)]),
        (compiled(9.999, 5), [(10, pytest.approx(4.999))]),  # two clocks, a microsecond apart
        (compiled(15.0, 10), []),  # it ended in the next step: neither is known to hold it
        (compiled(60.0, 3), []),
        (compiled(-5.0, 3), []),
        (compiled(12.0, 3, pid=2), []),
        (compiled(12.0, 3, rank=1), []),
        (compiled(12.0, 3, run="run-2"), []),
        (compiled(12.0, 0), []),
        (event("compile", 12.0), []),
        (event("memory", 12.0, dur_ns=MS), []),
    ],
)
def test_an_event_belongs_to_the_step_of_its_process_that_holds_it(made, found):
    assert inside(made) == found


def test_a_draft_or_a_filler_inside_holds_nothing():
    others = [
        step(8, 8, 11.0, dur_ns=5 * MS, runner="draft"),
        step(8, 8, 11.0, dur_ns=5 * MS, kind="filler"),
    ]
    assert inside(compiled(12.0, 3), steps=[*STEPS, *others]) == [(10, 3)]


def test_what_a_step_compiled_is_the_larger_of_both_tellings_and_no_more_than_it_took():
    rows = [
        *(compiled(1.0 + 2 * i, 1) for i in range(3)),
        compiled(11.0, 2),
        compiled(21.0, 6),
        compiled(24.0, 6),
        {**STEPS[0]},
        {**STEPS[1], "compile_ns": 4 * MS},
        *STEPS[2:],
    ]
    group = summarize(trace(rows)).groups.select(pl.col("compile_ns", "compile_steps").sum())
    assert group.row(0) == ((3 + 4 + 10) * MS, 3)


def test_of_a_row_that_stands_for_many_steps_one_compiled():
    rows = [step(8, 8, 0.0, dur_ns=80 * MS, weight=40), compiled(30.0, 5)]
    group = summarize(trace(rows)).groups.select(pl.col("compile_ns", "compile_steps").sum())
    assert group.row(0) == (5 * MS, 1)


def test_events_are_split_into_those_inside_steps_and_others():
    made = trace([*STEPS, compiled(12.0, 3), compiled(60.0, 4), event("capture", 1.0)])
    events = made.events()
    within, others = split_events(events, find_in_steps(made, events))
    assert within["step_ns"].to_list() == [START_NS + 10 * MS]
    assert others["t_ns"].to_list() == [START_NS + MS, START_NS + 60 * MS]
