import json

import pytest

from graphdiag.runconfig import (
    capture_sizes,
    configs_differ,
    last_config,
    positive_int,
    run_configs,
)
from tests.build import event, trace


def events(*configs, run="run-1"):
    rows = [
        event("run", float(i), run=run, config=config if config is None else json.dumps(config))
        for i, config in enumerate(configs)
    ]
    return trace(rows).events()


def test_later_run_events_win_key_by_key():
    found = run_configs(events({"engine": "vllm", "mode": "full"}, {"mode": "none", "lora": 2}))
    assert found == {"run-1": {"engine": "vllm", "mode": "none", "lora": 2}}


def test_later_means_by_time_and_not_by_row():
    rows = [
        event("run", 2.0, config={"mode": "late"}),
        event("run", 1.0, config={"mode": "early"}),
    ]
    assert run_configs(trace(rows).events()) == {"run-1": {"mode": "late"}}


def test_null_wins_over_nothing():
    assert last_config(events({"device": "H200"}, {"device": None})) == {"device": "H200"}


def test_runs_are_apart_and_the_latest_is_the_last():
    rows = [
        event("run", 0.0, run="a", config={"mode": "full", "notes": ["first"]}),
        event("run", 1.0, run=None, config={"mode": "none"}),
        event("run", 2.0, run="b", config={"mode": "piecewise", "notes": ["second"]}),
    ]
    table = trace(rows).events()
    assert list(run_configs(table)) == ["a", None, "b"]
    assert last_config(table) == {"mode": "piecewise", "notes": ["first", "second"]}


def test_no_run_event():
    assert run_configs(events()) == {}
    assert last_config(events()) == {}


def test_run_event_without_a_config():
    assert run_configs(events(None)) == {"run-1": {}}


def test_notes_are_joined_once_each():
    found = last_config(events({"notes": ["a", "b"]}, {"notes": ["b", "c"]}, {"engine": "x"}))
    assert found["notes"] == ["a", "b", "c"]


def test_damage_is_joined_as_notes_are():
    found = last_config(events({"damage": ["a"], "notes": ["n"]}, {"damage": "b"}, {"damage": 7}))
    assert found == {"damage": ["a", "b"], "notes": ["n"]}


@pytest.mark.parametrize("notes", ["only one", ["only one"]])
def test_a_note_that_is_no_list(notes):
    assert last_config(events({"notes": notes}, {"notes": ["more"]}))["notes"] == [
        "only one",
        "more",
    ]


@pytest.mark.parametrize("notes", [7, {"a": 1}, None])
def test_notes_of_another_sort_are_left_out(notes):
    assert "notes" not in last_config(events({"notes": notes, "engine": "x"}))


@pytest.mark.parametrize("text", ["{cut", "[1, 2]", '"text"', "7", "[" * 100_000])
def test_config_that_is_no_object_is_a_note(text):
    found = last_config(trace([event("run", config=text)]).events())
    assert found == {"notes": ["A run event's configuration is no JSON object and was left out."]}


def test_capture_sizes():
    assert capture_sizes({"capture_sizes": [8, 1, 4, 4]}) == [1, 4, 8]
    assert capture_sizes({"capture_sizes": [0, -1, True, "2", 2.0, None, 16]}) == [16]
    assert capture_sizes({"capture_sizes": "1,2"}) == []
    assert capture_sizes({}) == []


@pytest.mark.parametrize("value", [0, -3, True, 1.5, "7", None, [1]])
def test_what_is_no_positive_int(value):
    assert positive_int({"max_num_seqs": value}, "max_num_seqs") is None


def test_positive_int():
    assert positive_int({"max_num_seqs": 256}, "max_num_seqs") == 256
    assert positive_int({}, "max_num_seqs") is None


def test_runs_of_one_configuration_do_not_differ_by_their_notes():
    def runs(*configs):
        rows = [event("run", float(i), run=f"r{i}", config=c) for i, c in enumerate(configs)]
        return trace(rows).events()

    assert not configs_differ(runs({"mode": "full", "notes": ["one"]}, {"mode": "full"}))
    assert configs_differ(runs({"mode": "full"}, {"mode": "none"}))
    assert not configs_differ(runs())
