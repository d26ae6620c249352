import numpy as np

from graphdiag.buckets.histogram import captured_sizes, histogram, in_part
from graphdiag.summary import summarize
from tests.buckets.making import graphs_off_rows
from tests.build import event, step, trace


def of(rows, part=None, config=None, **more):
    return histogram(summarize(trace(rows)), config or {}, part, **more)


def both_phases():
    decode = [step(size, 16, index) for index, size in enumerate([9, 9, 12])]
    prefill = [
        step(900, 1024, 10 + index, phase="prefill", axis="tokens", artifact="p")
        for index in range(5)
    ]
    return [*decode, *prefill]


def test_the_axis_of_most_steps_is_counted():
    found = of(both_phases())
    assert (found.axis, found.sizes.tolist()) == ("tokens", [900])
    assert found.captured.tolist() == [1024]
    assert of(both_phases(), config={"axis": "requests"}).sizes.tolist() == [9, 12]


def test_a_part_is_its_phases():
    rows = [*both_phases(), step(4, 4, 30, phase="verify"), step(7, 8, 31, phase=None)]
    decode, prefill = of(rows, "decode"), of(rows, "prefill")
    assert dict(zip(decode.sizes.tolist(), decode.counts.tolist(), strict=True)) == {
        4: 1,
        9: 2,
        12: 1,
    }
    assert prefill.sizes.tolist() == [900]
    summary = summarize(trace(rows))
    assert summary.groups.filter(in_part(None))["weight"].sum() == 10


def test_drafters_dummies_and_steps_without_a_size_are_left_out():
    rows = [
        step(9, 16),
        step(9, 16, runner="draft"),
        step(9, 16, kind="dummy"),
        step(None, 16, outcome=None),
    ]
    assert of(rows).counts.tolist() == [1]


def test_graphs_that_are_off_leave_the_eager_steps_to_plan_for():
    rows = [*graphs_off_rows([3, 9, 9]), event("run", config={"capture_sizes": [1, 16]})]
    assert of(rows).sizes.tolist() == []
    found = of(rows, config={"capture_sizes": [1, 16]}, graphs_off=True)
    assert found.sizes.tolist() == [3, 9]
    assert found.counts.tolist() == [1, 2]
    assert found.captured.tolist() == []  # nothing is captured now, whatever the list says


def test_steps_over_time_add_up():
    rows = [step(8 + index % 2, 16, index * 10.0) for index in range(100)]
    found = of(rows)
    assert found.over_time.shape[1] == 2
    assert len(found.over_time) > 8
    assert found.over_time.sum(axis=0).tolist() == found.counts.tolist() == [50, 50]
    assert of([{**row, "t_ns": None} for row in rows]).over_time is None


def test_sglangs_configured_list_is_decodes():
    config = {"engine": "sglang", "axis": "requests", "capture_sizes": [8, 16]}
    rows = [
        *both_phases(),
        event("capture", size=512, phase="prefill"),
        event("capture", size=1024, phase="prefill"),
        event("run", config=config),
    ]
    summary = summarize(trace(rows))
    assert captured_sizes(summary, config, summary.groups, "decode").tolist() == [8, 16]
    assert captured_sizes(summary, config, summary.groups, "prefill").tolist() == [512, 1024]
    vllm = {"engine": "vllm", "capture_sizes": [8, 16]}
    assert captured_sizes(summary, vllm, summary.groups).tolist() == [8, 16]


def test_no_step_is_no_traffic():
    found = of([event("run", config={})])
    assert len(found.sizes) == len(found.captured) == 0
    assert found.axis is None
    assert np.sum(found.counts) == 0
