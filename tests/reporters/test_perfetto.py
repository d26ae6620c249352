import io
import json
from itertools import pairwise

import pytest

from graphdiag.reporters import perfetto
from graphdiag.reporters.perfetto import writer
from graphdiag.reporters.perfetto.clock import base_of
from tests.build import MS, START_NS, event, step, trace

BASE = base_of(START_NS)


def exported(rows, **options):
    file = io.BytesIO()
    written = perfetto.write(trace(rows), file, **options)
    told = json.loads(file.getvalue())
    assert len(told["traceEvents"]) == written.events
    assert told["otherData"]["notes"] == list(written.notes)
    return told, written


def of_kind(told, kind):
    return [one for one in told["traceEvents"] if one["ph"] == kind]


def test_steps_captures_and_compiles_are_slices_on_the_profiler_s_clock():
    told, written = exported(
        [
            event("run", config={"engine": "vllm"}),
            event("capture", 1.0, dur_ns=2 * MS, artifact="decode/16", size=16, pool_bytes=5),
            event("compile", 3.0, dur_ns=MS, artifact="region", reason='L["x"] == 1'),
            step(9, 16, 10.0, dur_ns=1_500_007, gpu_ns=MS, step=4),
            step(33, None, 12.0, dur_ns=MS, reason="over_max"),
            step(2, 2, 13.0, dur_ns=MS, runner="draft"),
        ]
    )
    assert told["baseTimeNanoseconds"] == BASE
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in of_kind(told, "M")
        if one["name"] == "thread_name"
    }
    slices = [(names[one["pid"], one["tid"]], one["name"]) for one in of_kind(told, "X")]
    assert slices == [
        ("capture", "capture decode/16"),
        ("compile", "compile region"),
        ("steps", "decode 9→16"),
        ("steps", "decode 33 fallback (over_max)"),
        ("draft steps", "decode 2→2"),
    ]
    nine = of_kind(told, "X")[2]
    assert BASE + round(nine["ts"] * 1000) == START_NS + 10 * MS
    assert nine["dur"] == 1500.007
    assert (nine["args"]["requested"], nine["args"]["bucket"]) == (9, 16)
    assert nine["args"]["gpu_us"] == 1000.0
    assert "reason" not in nine["args"]
    assert of_kind(told, "X")[1]["args"]["reason"] == 'L["x"] == 1'
    assert written.notes == ()


def test_the_base_is_the_profiler_s():
    # Bases that Kineto wrote, and times of the same files.
    assert base_of(1_779_988_464_216_204_635) == 1_775_078_550_000_000_000
    assert base_of(1_773_709_742_120_000_000) == 1_767_189_312_000_000_000
    assert base_of(5_000) == 0
    told, _ = exported([step(1, 1, dur_ns=MS)], base_ns=START_NS + MS)
    assert of_kind(told, "X")[0]["ts"] == -1000.0


def test_counters_change_when_the_steps_do():
    told, _ = exported(
        [
            step(9, 16, 0.0, dur_ns=MS),
            step(9, 16, 1.0, dur_ns=MS),
            step(16, 16, 2.0, dur_ns=MS),
            step(33, None, 3.0, dur_ns=MS),
            step(8, 8, 4.0, dur_ns=MS, kind="dummy"),
            step(20, None, 5.0, dur_ns=MS, outcome=None, mode="full"),
            event("memory", 6.0, mem_after=7),
        ]
    )
    values = {}
    for one in of_kind(told, "C"):
        values.setdefault(one["name"], []).append(one["args"]["value"])
    assert values == {
        "requested (requests)": [9, 16, 33, 20],
        "bucket (requests)": [16, 0],
        "padding (requests)": [7, 0],
        "fallback (requests)": [0, 1],
        "free device memory in bytes": [7],
    }


def test_events_are_sorted_and_slices_of_a_thread_never_cross(monkeypatch):
    monkeypatch.setattr(writer, "_LINES", 5)
    rows = [step(1, 1, 3.0 * i, dur_ns=(5 if i % 2 else 2) * MS, rank=i % 2) for i in range(40)]
    rows += [step(2, 2, 1.0, dur_ns=500 * MS, rank=0), step(2, 2, 0.5, dur_ns=MS, rank=None)]
    told, _ = exported(rows)
    times = [one["ts"] for one in told["traceEvents"] if "ts" in one]
    assert times == sorted(times)
    processes = [one for one in of_kind(told, "M") if one["name"] == "process_name"]
    assert len(processes) == len({one["pid"] for one in processes}) == 3
    threads = {}
    for one in of_kind(told, "X"):
        threads.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    assert len(threads) > 3
    for spans in threads.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    named = {(one["pid"], one["tid"]) for one in of_kind(told, "M") if one["name"] == "thread_name"}
    assert set(threads) <= named


def test_what_has_no_time_of_its_own_is_an_instant_and_said_so():
    told, written = exported(
        [
            event("run", config={"sampled": True}),
            step(9, 16, 1.0),
            step(9, 16, 2.0, dur_ns=40 * MS, weight=10),
            *(step(1, 1, 3.0, dur_ns=MS) for _ in range(20)),
        ]
    )
    steps = [one for one in of_kind(told, "i") if one["cat"] == "step"]
    assert len(steps) == 2 + 4
    assert steps[1]["args"]["stands_for"] == 10
    assert steps[1]["args"]["took_us"] == 40_000.0
    assert [note.split(",")[0].split(":")[0] for note in written.notes] == [
        "The source shows only some of the steps",
        "Instants",
        "Instants",
    ]
    assert "5 rows" in written.notes[2]


@pytest.mark.parametrize("text", ['"}],"', "\x00\x1b[31m", "</script>", "é\u2028", "x" * 100_000])
def test_hostile_words_stay_inside_their_strings(text):
    told, _ = exported(
        [
            step(9, 16, 1.0, dur_ns=MS, artifact=text, phase=text, reason=text, axis=text),
            event("mark", 2.0, kind=text, config=text),
            event("capture", 3.0, dur_ns=MS, artifact=text, run=text),
        ]
    )
    assert len(of_kind(told, "X")) == 2
    assert max(len(one["name"]) for one in told["traceEvents"]) < 10_000


def test_a_trace_without_times_is_an_empty_file():
    told, written = exported([step(1, 1, t_ns=None)])
    assert told["traceEvents"] == []
    assert written.events == 0
