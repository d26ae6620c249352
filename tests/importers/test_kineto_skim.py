"""Skimming drops most of a trace and never what matters."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphdiag.importers.kineto import stream
from graphdiag.importers.kineto.skim import FRONT, SLACK, Layout, learn_layout, skim
from graphdiag.importers.kineto.structure import elements
from tests.importers.kineto_traces import (
    LAYOUTS,
    NASTY,
    Event,
    call,
    compact,
    event,
    kernel,
    kineto_layout,
    of,
    one_line,
    random_events,
    replayed_step,
    rows,
    us,
    write,
)

DECODE = "execute_context_0(0)_generation_8(8)"
WANTED = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation")


def skimmed(text: str) -> tuple[list[Event], int, Layout]:
    """Skim all events of a trace as one window."""
    data = text.encode()
    data = data[data.index(b"[", data.index(b'"traceEvents"')) + 1 :]
    found = elements(data)
    starts, ends = found.starts.tolist(), found.ends.tolist()
    layout = learn_layout(data, starts, data[ends[-2] - 1 : starts[-1] + 1])
    assert layout is not None
    window = bytes(FRONT) + data[starts[0] : ends[-1]]
    kept, left_out = skim(bytearray(window + bytes(SLACK)), FRONT, len(window), layout)
    return json.loads(kept), left_out, layout


@pytest.mark.parametrize("layout", [one_line, compact, kineto_layout, LAYOUTS["indented"]])
@pytest.mark.parametrize("seed", range(20))
def test_all_that_matters_is_kept(layout: Any, seed: int) -> None:
    events = random_events(seed, size=80)
    kept, left_out, _ = skimmed(layout(events))
    assert len(kept) + left_out == len(events)
    assert [e for e in kept if e.get("cat") in WANTED] == [
        e for e in events if e.get("cat") in WANTED
    ]
    assert left_out > 0


def test_most_of_an_ordinary_trace_is_left_out() -> None:
    noise = [event("python_function", "f({a})", i, 5, **{"Python id": i}) for i in range(50)]
    flow = {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": us(9), "cat": "ac2g", "name": "ac2g"}
    polls = [call("cudaEventQuery", i, 1, i) for i in range(50)]
    events = [*replayed_step(DECODE, 1000, 1), *noise, flow, *polls, kernel(5, 5, 1)]
    for layout in (one_line, compact, kineto_layout):
        kept, left_out, _ = skimmed(layout(events))
        # a name with a brace keeps its event: it might hide another
        assert left_out == len(polls) + 1
        plain = [{**e, "name": "f"} if e["cat"] == "python_function" else e for e in events]
        kept, left_out, _ = skimmed(layout(plain))
        assert left_out == 101
        assert len(kept) == len(replayed_step(DECODE, 1000, 1)) + 1


HIDING_PLACES = [
    # (what stands between an unwanted event and a kernel, what is put there instead)
    ("another separator", '}, {"ph": "X", "cat": "kernel"', '} ,\n{"ph": "X", "cat": "kernel"'),
    ("another first key", '{"ph": "X", "cat": "kernel"', '{"cat": "kernel", "ph": "X"'),
    ("a space after the brace", '{"ph": "X", "cat": "kernel"', '{ "ph": "X", "cat": "kernel"'),
    ("no space after a colon", '"ph": "X", "cat": "kernel"', '"ph":"X", "cat": "kernel"'),
]


@pytest.mark.parametrize(("what", "usual", "odd"), HIDING_PLACES, ids=lambda x: str(x)[:24])
def test_an_event_written_otherwise_does_not_hide(
    what: str, usual: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = event("python_function", "f", 1, 5)
    flow = {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": us(9), "cat": "ac2g", "name": "ac2g"}
    events = []
    for i in range(100):
        events += [frame, frame, flow, kernel(1000 * i, 500, i), frame]
    text = one_line(events)
    assert usual in text
    parts = text.split(usual)
    text = "".join(p + (odd if i % 3 else usual) for i, p in enumerate(parts[:-1])) + parts[-1]
    monkeypatch.setattr(stream, "_WINDOW", 5000)
    (mark,) = of(rows(write(tmp_path, text)), "mark")
    assert (mark["kernels"], mark["gpu_ns"]) == (100, 50_000)


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("cat", ["python_function", "cpu_op"])
def test_cuts_inside_names_and_nested_objects(
    cat: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = [{"ph": "X", "cat": "cpu_op"}, {"ph": "X", "cat": "python_function", "x": {}}, {}]
    events = []
    for i in range(60):
        events += [event(cat, name, 1, 5, nested=nested), kernel(1000 * i, 500, i)]
    for layout in (one_line, compact, kineto_layout):
        path = write(tmp_path, layout(events))
        for window in (600, 901, 4096):
            monkeypatch.setattr(stream, "_WINDOW", window)
            (mark,) = of(rows(path), "mark")
            assert (mark["kernels"], mark["gpu_ns"]) == (60, 30_000)


def test_layouts_that_do_not_tell_the_category_are_not_skimmed() -> None:
    for text in (b'{"cat": "kernel", "ph": "X"}', b'{"ph": "M", "name": "x"}', b"{}"):
        assert learn_layout(text, [0], b"}, {") is None
    wide = b"{" + b" " * 100 + b'"ph": "X", "cat": "kernel"}'
    assert learn_layout(wide, [0], b"}, {") is None


def test_wide_indent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_WINDOW", 9000)
    events = [event("cpu_op", "a", 1, 5), *replayed_step(DECODE, 1_000_000, 1)] * 20
    for indent in (7, 30, 100):
        path = write(tmp_path, json.dumps({"traceEvents": events}, indent=indent))
        assert len(of(rows(path), "mark")) == 1
        assert of(rows(path), "mark")[0]["kernels"] == 100
