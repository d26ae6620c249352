"""What differs between two configurations, and what of it no artifact's key carries."""

import json

import pytest

from graphdiag.comparison.differences import differences
from graphdiag.comparison.keyaudit import key_audit
from graphdiag.summary import summarize
from tests.build import event, step, trace


def summary(config, *events):
    run = event("run", -1, config=config)
    return summarize(trace([run, *events, step(8, 8, 1.0)]))


def compiled(cache="none", key=None, identity=None, **columns):
    texts = {
        name: None if value is None else json.dumps(value)
        for name, value in (("key", key), ("identity", identity))
    }
    return event("compile", -0.5, artifact="r", cache=cache, **texts, **columns)


def audited(before, after, **made):
    """Key audit of a run under each configuration; the base made the artifact itself."""
    base = summary(before, compiled(**{**made, "cache": "miss"}))
    candidate = summary(after, compiled(**made))
    return key_audit(base, candidate, differences(base, candidate))


def test_what_changes_a_step_comes_first():
    before = {"zeta": 1, "engine": "vllm", "mode": "FULL", "capture_sizes": [1, 2], "alpha": 1}
    after = {"zeta": 2, "engine": "vllm", "mode": "NONE", "capture_sizes": [1, 4], "torch": "2.9"}
    found = differences(summary(before), summary(after))
    assert [one.key for one in found] == ["mode", "capture_sizes", "torch", "alpha", "zeta"]
    assert (found[1].base, found[1].candidate) == ([1, 2], [1, 4])
    assert (found[2].base, found[2].candidate) == (None, "2.9")


def test_how_a_run_was_recorded_is_no_difference():
    apart = {"notes": ["a"], "damage": ["b"], "hooks": {"x": 1}, "importer": "vllm_log"}
    apart |= {"sampled": True, "simulated": "formulas", "sample_every": 40}
    assert differences(summary({"engine": "vllm"}), summary({"engine": "vllm", **apart})) == []


def test_graph_memory_is_taken_from_the_captures():
    captured = event("capture", -0.5, artifact="g", pool_bytes=1000, size=8)
    found = differences(summary({}), summary({}, captured))
    assert [(one.key, one.base, one.candidate) for one in found] == [("graph_bytes", None, 1000)]


@pytest.mark.parametrize(
    ("cache", "severity", "meaning"),
    [
        ("hit", "error", "the candidate loaded artifacts from a cache, and they may be stale"),
        ("miss", "warn", "made its artifacts itself, and the next run may load them"),
        ("none", "info", "graphs live no longer than their process"),
    ],
)
def test_an_influence_in_no_key_is_as_bad_as_the_cache_makes_it(cache, severity, meaning):
    (found,) = audited({"driver": "570"}, {"driver": "580"}, cache=cache, key={"rows": 8})
    assert (found.kind, found.severity) == ("unkeyed_influence", severity)
    assert found.sentence.startswith("driver changed from 570 to 580 and is in no artifact's key; ")
    assert meaning in found.sentence
    assert found.data == {"influence": "driver", "base": "570", "candidate": "580"}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ("driver", {"driver_version": "570"}),
        ("mode", {"runtime_mode": "FULL"}),
        ("mode", {"deep": {"cudagraph_mode": "FULL"}}),
        ("lora", {"num_active_loras": 1}),
        ("lora", {"lora": {"count": 1}}),
        ("engine_version", {"vllm_version": "0.11"}),
        ("engine_version", {"version": "0.11"}),
        ("tensor_parallel", [{"tensor_parallel_size": 2}]),
    ],
)
def test_an_influence_that_a_key_carries_is_none(config, key):
    assert audited({config: "a"}, {config: "b"}, cache="hit", key=key) == []


@pytest.mark.parametrize(
    ("config", "key"),
    [("mode", {"model": "llama"}), ("engine_version", {"driver_version": "1"})],
)
def test_part_of_a_word_carries_nothing(config, key):
    assert len(audited({config: "a"}, {config: "b"}, cache="hit", key=key)) == 1


def test_an_identity_is_no_key():
    told = {"key": {"rows": 8}, "identity": {"torch": "2.8"}}
    (found,) = audited({"torch": "2.8"}, {"torch": "2.9"}, cache="hit", **told)
    assert found.severity == "error"


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [("4f2a09c1d7", "4f2a09c1d7", 1), ("4f2a09c1d7", "99ab01c2ef", 0)],
)
def test_a_hash_that_changed_may_cover_anything(first, second, number):
    configs = {"torch": "2.8"}, {"torch": "2.9"}
    base, candidate = (
        summary(config, compiled(cache, {"rows": 8}, {"cache": f"torch_compile/{hashed}/rank_0"}))
        for config, hashed, cache in zip(configs, (first, second), ("miss", "hit"), strict=True)
    )
    assert len(key_audit(base, candidate, differences(base, candidate))) == number


def test_nothing_is_found_where_no_key_is_told_or_nothing_was_made_before():
    assert audited({"torch": "2.8"}, {"torch": "2.9"}, cache="hit") == []
    base, candidate = summary({"mode": "NONE"}), summary({"mode": "FULL"}, compiled(key={"r": 1}))
    assert key_audit(base, candidate, differences(base, candidate)) == []


def test_what_is_not_recorded_in_both_is_no_change():
    assert audited({}, {"driver": "580"}, cache="hit", key={"rows": 8}) == []


@pytest.mark.parametrize("key", ["{not json", "[" * 100_000, '"text"', "3", "null"])
def test_a_key_that_is_no_object_is_read_for_what_it_holds(key):
    rows = [compiled("miss"), compiled("hit")]
    pair = [
        summary({"torch": version}, {**row, "key": key})
        for version, row in zip(("2.8", "2.9"), rows, strict=True)
    ]
    (found,) = key_audit(*pair, differences(*pair))
    assert found.data["influence"] == "torch"
