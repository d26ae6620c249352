"""Every layout of the same trace gives the same rows, and those are the right ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphdiag.importers.kineto import stream
from tests.importers.kineto_traces import (
    HEADER,
    LAYOUTS,
    config,
    expected,
    of,
    one_line,
    random_events,
    rows,
    write,
)

LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def check(found: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
    steps = of(found, "step")
    assert len(steps) == len(wanted["steps"])
    for row, want in zip(steps, wanted["steps"], strict=True):
        assert {key: row[key] for key in want} == want
    (mark,) = of(found, "mark")
    assert {key: mark[key] for key in wanted["window"]} == wanted["window"]
    details = json.loads(mark["config"])
    assert {key: details[key] for key in wanted["details"]} == wanted["details"]


@LAYOUT
@pytest.mark.parametrize("window", [64, 700, 1 << 18])
def test_layout_gives_the_right_figures(
    layout: Any, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_WINDOW", window)
    events = random_events(seed=1)
    check(rows(write(tmp_path, layout(events))), expected(events))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 10**6),
    layout=st.sampled_from(list(LAYOUTS.values())),
    window=st.integers(40, 3000),
)
def test_any_trace_in_any_layout_and_window(
    seed: int, layout: Any, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_WINDOW", window)
    events = random_events(seed, size=25)
    check(rows(write(tmp_path, layout(events))), expected(events))


@LAYOUT
def test_event_by_event_reading_equals_reading_by_window(
    layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, layout(random_events(seed=2, size=300)))
    monkeypatch.setattr(stream, "_WINDOW", 4000)
    by_window = rows(path)
    monkeypatch.setattr(stream, "_read_window", lambda *_: False)
    assert rows(path) == by_window


def test_windows_are_read_at_once_where_nothing_is_odd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, one_line(random_events(seed=3, size=400)))
    monkeypatch.setattr(stream, "_WINDOW", 4000)
    outcomes = []
    read_window = stream._read_window

    def spy(*args: Any) -> bool:
        outcomes.append(read_window(*args))
        return outcomes[-1]

    monkeypatch.setattr(stream, "_read_window", spy)
    rows(path)
    assert sum(outcomes) > 0.8 * len(outcomes) > 10


def test_bare_list_of_events(tmp_path: Path) -> None:
    events = random_events(seed=4)
    found = rows(write(tmp_path, json.dumps(events)))
    wanted = expected(events)
    for row in [*wanted["steps"], wanted["window"]]:
        row["t_ns"] -= HEADER["baseTimeNanoseconds"]
    check(found, wanted)
    assert any("does not name the base of its clock" in note for note in config(found)["notes"])


def test_numbers_that_became_strings_or_floats(tmp_path: Path) -> None:
    events = random_events(seed=5)
    wanted = expected(events)
    texts = json.loads(json.dumps(events))
    for event in texts:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = str(event["args"]["correlation"])
        if "dur" in event:
            event["ts"], event["dur"] = str(event["ts"]), str(event["dur"])
        event["tid"] = str(event["tid"])
        event["args"] = {**event.get("args", {}), "bytes": "9216"}
    header = {**HEADER, "distributedInfo": repr(HEADER["distributedInfo"]), "deviceProperties": "["}
    header["baseTimeNanoseconds"] = str(header["baseTimeNanoseconds"])
    found = rows(write(tmp_path, one_line(texts, header)))
    check(found, wanted)
    assert {row["rank"] for row in found} == {3}
    assert "device" not in config(found)
