"""Cut, damaged and foreign files: whole events are kept, and what is lost is said."""

import gzip
import json
import random
from pathlib import Path

import pytest

from graphdiag.errors import SourceError
from graphdiag.importers import registry
from graphdiag.importers.kineto import stream
from graphdiag.importers.source import Source
from tests.importers.kineto_traces import (
    HEADER,
    LAYOUTS,
    config,
    eager_step,
    event,
    events_first,
    expected,
    kernel,
    kineto_layout,
    of,
    one_line,
    random_events,
    replayed_step,
    rows,
    write,
)

ORDER = ("user_annotation", "cuda_runtime", "gpu_memcpy", "kernel")
DECODE = "execute_context_0(0)_generation_8(8)"
EVENTS = [e for i in range(40) for e in replayed_step(DECODE, 1_000_000 + 5_000_000 * i, 10 * i)]


def note(path: Path, words: str) -> str:
    told = config(rows(path))
    (found,) = [text for key in ("notes", "damage") for text in told.get(key, ()) if words in text]
    return found


def sentence(path: Path) -> str:
    """Return the notes of the report, or the error where there is none."""
    try:
        told = config(rows(path))
        return " ".join([*told["notes"], *told.get("damage", [])])
    except SourceError as error:
        return str(error)


@pytest.mark.parametrize("layout", [one_line, kineto_layout], ids=["one_line", "kineto_layout"])
@pytest.mark.parametrize("share", [0.3, 0.61, 0.97])
def test_cut_json_keeps_every_whole_event(layout: object, share: float, tmp_path: Path) -> None:
    text = layout(EVENTS)  # type: ignore[operator]
    cut = text[: int(len(text) * share)]
    path = write(tmp_path, cut)
    found = rows(path)
    decoder = json.JSONDecoder()
    at = cut.index("[", cut.index('"traceEvents"')) + 1
    whole = []
    while True:
        try:
            value, at = decoder.raw_decode(cut, at + len(cut[at:]) - len(cut[at:].lstrip(" ,\n")))
        except ValueError:
            break
        whole.append(value)
    wanted = expected(whole)
    assert len(of(found, "step")) == len(wanted["steps"])
    assert of(found, "mark")[0]["kernels"] == wanted["window"]["kernels"]
    assert f"{len(whole):,} whole events came before" in note(path, "not whole")


@pytest.mark.parametrize("window", [100, 1 << 18])
def test_any_cut_of_any_layout_is_a_report_or_one_sentence(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_WINDOW", window)
    for layout in LAYOUTS.values():
        text = layout(random_events(seed=7, size=20)).encode()
        for cut in range(1, len(text) - 2, 997):
            path = write(tmp_path, text[:cut])
            told = sentence(path)
            assert "not whole" in told or "no traceEvents array begins" in told


def test_cut_gzip_keeps_what_was_written(tmp_path: Path) -> None:
    data = gzip.compress(one_line(EVENTS).encode(), 1)
    path = write(tmp_path, data[: len(data) // 2], "cut.json.gz")
    assert registry.recognise(Source(str(path))).NAME == "kineto"
    found = rows(path)
    assert 5 < len(of(found, "step")) < 40
    assert "the gzip file ends before its end mark" in note(path, "not whole")
    assert (
        rows(write(tmp_path, data, "whole.json.gz"))[1:]
        == rows(write(tmp_path, one_line(EVENTS), "plain.json"))[1:]
    )


COSTS = ("host_ns", "blocked_ns", "graph_launch_ns", "gpu_ns", "gap_ns", "launches", "kernels")


def test_a_cut_leaves_no_cost_of_any_step(tmp_path: Path) -> None:
    """Kineto writes the steps first: a cut takes their calls, then their GPU events."""
    eager = eager_step(DECODE, 500_000_000, 9_000)
    ordered = sorted([*EVENTS, *eager], key=lambda e: ORDER.index(e["cat"]))
    text = one_line(ordered)
    (whole,) = {r["host_ns"] for r in of(rows(write(tmp_path, text)), "step")[:-1]}
    assert whole == 2_000_000 - 1_000_000
    for share in (0.2, 0.4, 0.7, 0.99):
        path = write(tmp_path, text[: int(len(text) * share)])
        steps = of(rows(path), "step")
        assert len(steps) == 41
        assert {r[name] for r in steps for name in (*COSTS, "mode", "outcome")} == {None}
        assert {r["fallback"] for r in steps} <= {None, False}
        assert all(r["dur_ns"] for r in steps)
        assert "what a step cost host and GPU" in note(path, "events of any step may be missing")
        assert "profiled the CPU only" not in sentence(path)
        assert "No step holds a launch" not in sentence(path)


def test_a_cut_keeps_a_replay_that_was_seen(tmp_path: Path) -> None:
    label = "step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]"
    text = one_line([*replayed_step(label, 1_000_000, 1), kernel(9_000_000, 5, 99)])
    (row,) = of(rows(write(tmp_path, text[: text.rindex('{"ph"')])), "step")
    assert (row["outcome"], row["bucket"], row["fallback"]) == ("padded", 4, False)
    assert (row["mode"], row["host_ns"], row["gpu_ns"]) == (None, None, None)


def test_a_cut_before_the_first_step_says_so(tmp_path: Path) -> None:
    noise = [event("cpu_op", "aten::mm", 5, 5) for _ in range(20)]
    text = one_line([*noise, *EVENTS])
    told = sentence(write(tmp_path, text[: text.index("execute_")]))
    assert "No step of vLLM or SGLang came before the cut" in told
    assert "events of any step may be missing" not in told


def test_a_real_trace_that_is_cut_invents_no_host_time(shared: Path, tmp_path: Path) -> None:
    data = (shared / "traces" / "sglang_decode.json.gz").read_bytes()
    cut = write(tmp_path, data[:20_000], "cut.json.gz")
    plain = write(tmp_path, gzip.decompress(data)[:400_000], "cut.json")
    for path in (cut, plain):
        (row,) = of(rows(path), "step")
        assert {row[name] for name in COSTS} == {None}
        assert row["dur_ns"] == 465_716_634


def test_cut_in_the_keys_after_the_events(tmp_path: Path) -> None:
    text = events_first(EVENTS)
    path = write(tmp_path, text[: text.index('"trace_id"') + 14])
    found = rows(path)
    assert len(of(found, "step")) == 40
    assert "after its last event" in note(path, "not whole")
    assert found[0]["rank"] is None
    assert all(r["host_ns"] and r["gpu_ns"] for r in of(found, "step"))


def test_cut_before_the_first_event(tmp_path: Path) -> None:
    path = write(tmp_path, one_line(EVENTS)[:200])
    with pytest.raises(SourceError, match="no traceEvents array begins in its 200 bytes"):
        rows(path)


def test_events_that_are_no_array(tmp_path: Path) -> None:
    path = write(tmp_path, '{"traceEvents": {"a": 1}}')
    with pytest.raises(SourceError, match="no traceEvents array"):
        rows(path)


def test_the_key_inside_another_value_is_not_the_array(tmp_path: Path) -> None:
    header = {"other": {"traceEvents": [event("kernel", "k", 1, 1, correlation=1)]}, **HEADER}
    found = rows(write(tmp_path, one_line(EVENTS, header)))
    assert len(of(found, "step")) == 40
    assert of(found, "mark")[0]["kernels"] == 200


def test_damaged_events_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    text = one_line([*EVENTS, event("kernel", "bad", 7, 7, correlation=3)])
    text = text.replace('"name": "bad"', '"name": bad')
    path = write(tmp_path, text)
    found = rows(path)
    assert len(of(found, "step")) == 40
    assert note(path, "cannot be read") == "1 of 401 events cannot be read and are left out."


def test_python_nan_and_broken_characters_cost_nothing(tmp_path: Path) -> None:
    noise = event("cpu_op", "aten::mm", 5, 5, value=float("nan"), other=[float("-inf")])
    broken = event("kernel", "CUT", 4_000_001, 1, correlation=1)
    text = one_line([noise, *EVENTS, broken]).encode().replace(b"CUT", b"k\xe2\x82")
    found = rows(write(tmp_path, text))
    assert of(found, "mark")[0]["kernels"] == 201
    assert "damage" not in config(found)


def test_an_event_larger_than_any_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_WINDOW", 1000)
    huge = event("python_function", "f", 5, 5, stack="}, {" * 100_000)
    found = rows(write(tmp_path, one_line([*EVENTS[:90], huge, *EVENTS[90:]])))
    assert len(of(found, "step")) == 40
    monkeypatch.setattr(stream, "_MOST", 100_000)
    path = write(tmp_path, one_line([*EVENTS[:90], huge, *EVENTS[90:]]))
    assert len(of(rows(path), "step")) == 9
    assert "no event ends within" in note(path, "not whole")


def test_no_events_at_all(tmp_path: Path) -> None:
    found = rows(write(tmp_path, one_line([])))
    assert [r["event"] for r in found] == ["run"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_any_damaged_byte_is_a_report_or_one_sentence(
    layout: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    monkeypatch.setattr(stream, "_WINDOW", 2000)
    text = layout(random_events(seed=9, size=30)).encode()  # type: ignore[operator]
    for _ in range(60):
        data = bytearray(text)
        for _ in range(rng.choice((1, 1, 5))):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(
                (b'"', b"{", b"}", b"\\", b"", b"[", b"]", b",", b":", b"\xff", b"9" * 30, b"null")
            )
        assert isinstance(sentence(write(tmp_path, bytes(data))), str)
