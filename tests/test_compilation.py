"""What torch's own compiling leaves in a report: limits, recompilations, skips, replays outside."""

import json

import msgspec
import pytest

from graphdiag.compilation import recompiled, replays_outside
from graphdiag.diagnosis import diagnose
from tests.build import MS, START_NS, event, step, trace

FRAME = "step /srv/loop.py:7"
DAY = "22:13:20"  # START_NS, in UTC


def size_mismatch(number):
    return (
        f"0/{number}: tensor 'x' size mismatch at index 0. expected {number}, actual {number + 1}"
    )


def compiled(at_ms, reason=None, **columns):
    base = {"artifact": "step loop.py:7", "dur_ns": 10 * MS, "weight": 1, "reason": reason}
    return event("compile", at_ms, **{**base, **columns})


def compiles(until_ms=0.0):
    """Eight compilations of one frame."""
    return [compiled(until_ms, size_mismatch(i) if i else None) for i in range(8)]


def limit(at_ms, frame=FRAME, effect="eager", **columns):
    told = {
        "frame": frame,
        "effect": effect,
        "limit": "recompile_limit",
        "reason": size_mismatch(7),
    }
    return event("mark", at_ms, kind="recompile_limit", config=told, **columns)


def plain_steps(count, start_ms=0.0, **columns):
    """Steps of a loop that says nothing of graphs, a millisecond each."""
    own = {"outcome": None, "mode": None, "phase": None, "dur_ns": MS, **columns}
    return [step(1 + i % 4, None, start_ms + i, **own) for i in range(count)]


def report(*rows):
    found = diagnose(trace(rows))
    json.loads(msgspec.json.encode(found))
    return found


def case(found, name):
    return next(one for one in found.cases if one.case == name)


def finding(found, kind):
    return next(one for one in found.audit if one.kind == kind)


class TestLimit:
    def test_without_steps_it_is_the_verdict_and_a_warning(self):
        found = report(event("run", config={"engine": "torch"}), *compiles(), limit(9))
        assert found.verdict.case == "fallback"
        assert found.verdict.sentence == (
            "Case 3, execution falls back to eager: step loop.py:7 reached torch's recompile_limit "
            f"at {DAY} UTC and was not compiled any more: what its compiled versions do not fit "
            "runs eager; the trace has no steps to count."
        )
        one = finding(found, "recompile_limit")
        assert one.severity == "warn"
        assert one.sentence.endswith(
            "Last reason: tensor 'x' size mismatch at index 0. expected 7, actual 8."
        )
        assert any("the trace holds no step" in told for told in found.not_identifiable)

    def test_steps_after_it_are_counted_and_an_error(self):
        rows = plain_steps(500, 100.0)
        found = report(*compiles(), limit(300), *rows)
        assert found.verdict.case == "fallback"
        one = finding(found, "recompile_limit")
        assert one.severity == "error"
        assert one.data == {
            "frames": [
                {
                    "frame": FRAME,
                    "since_ns": START_NS + 300 * MS,
                    "until_ns": None,
                    "effect": "eager",
                    "limit": "recompile_limit",
                    "reason": size_mismatch(7),
                    "steps_after": 300,
                }
            ],
            "frames_in_all": 1,
        }
        (told,) = [text for text in case(found, "fallback").evidence if "recompile_limit" in text]
        assert told.endswith("runs eager; 300 steps ran meanwhile.")
        for name in ("shapes", "fallback"):
            (advice,) = [text for text in case(found, name).advice if "recompile_limit" in text]
            assert "torch.compile(dynamic=True)" in advice
            assert "torch._dynamo.config.recompile_limit" in advice

    def test_a_reset_ends_it(self):
        reset = event("mark", 400, kind="dynamo_reset", config={"frames": [FRAME]})
        found = report(*compiles(), limit(300), reset, *plain_steps(500, 100.0))
        one = finding(found, "recompile_limit")
        assert one.data["frames"][0]["steps_after"] == 100
        assert f"until Dynamo was reset at {DAY} UTC; 100 steps ran meanwhile" in one.sentence

    def test_with_fullgraph_its_calls_raise_and_the_shapes_are_to_blame(self):
        found = report(*compiles(), limit(9, effect="error"))
        assert found.verdict.case == "shapes"
        assert "do not fit raises an error" in found.verdict.sentence
        assert not any("recompile_limit" in text for text in case(found, "fallback").evidence)

    def test_ranks_of_one_run_are_one_frame_and_their_steps_do_not_add(self):
        rows = [row for pid in (1, 2) for row in plain_steps(50, 100.0, pid=pid, rank=pid)]
        marks = [limit(99, pid=pid, rank=pid) for pid in (1, 2)]
        (one,) = finding(report(*rows, *marks), "recompile_limit").data["frames"]
        assert one["steps_after"] == 50

    def test_many_frames_are_named_by_the_steps_they_met(self):
        marks = [limit(100 + i, frame=f"f{i} /a.py:{i}") for i in range(9)]
        found = report(*plain_steps(500), *marks)
        one = finding(found, "recompile_limit")
        assert one.data["frames_in_all"] == 9
        assert one.sentence.startswith("f0 a.py:0 reached")
        assert one.sentence.endswith("So did f1 a.py:1, f2 a.py:2, f3 a.py:3 and 5 more.")
        assert "6 more frames" in " ".join(case(found, "fallback").evidence)

    def test_regions_that_say_they_served_are_not_healthy_at_the_limit(self):
        own = {"mode": "compiled", "artifact": "step loop.py:7", "dur_ns": MS}
        rows = [step(4, 4, float(i), **own) for i in range(300)]
        assert report(*rows).verdict.case is None
        found = report(*rows, limit(100))
        assert found.verdict.case == "fallback"
        assert "200 steps ran meanwhile" in found.verdict.sentence

    def test_where_graphs_serve_all_steps_it_is_the_audit_s_alone(self):
        rows = [step(4, 4, float(i), dur_ns=MS) for i in range(300)]
        found = report(*rows, limit(100))
        assert found.verdict.sentence.startswith("Healthy")
        assert finding(found, "recompile_limit").severity == "error"


class TestRecompiled:
    def test_reasons_are_grouped_by_frame_and_guard(self):
        events = [compiled(i, size_mismatch(i), artifact="a /x/m.py:1") for i in range(1, 4)]
        events += [compiled(9, "1/0: L['n'] == 5", artifact="b m.py:2"), compiled(0)]
        found = recompiled(trace(events).events())
        assert [(one.frame, one.times, one.alike) for one in found] == [
            ("a m.py:1", 3, True),
            ("b m.py:2", 1, False),
        ]
        assert found[0].reason == "tensor 'x' size mismatch at index 0. expected 3, actual 4"
        assert found[1].reason == "L['n'] == 5"

    def test_other_dimensions_are_other_reasons(self):
        events = [
            compiled(1, "0/0: tensor 'x' size mismatch at index 0. expected 1, actual 2"),
            compiled(2, "0/1: tensor 'x' size mismatch at index 1. expected 1, actual 2"),
        ]
        assert [one.times for one in recompiled(trace(events).events())] == [1, 1]

    def test_attempts_that_made_nothing_are_none(self):
        assert recompiled(trace([compiled(1, size_mismatch(1), weight=0)]).events()) == []

    def test_without_steps_they_are_evidence_and_no_clean_bill(self):
        found = report(*compiles()[:3])
        assert found.verdict.case is None
        assert found.verdict.sentence == (
            "No verdict: the source holds no step, only 3 compilations (0.03 s)."
        )
        assert case(found, "shapes").evidence == [
            "Recompiled 2 times: step loop.py:7, such as for tensor 'x' size mismatch at index 0. "
            "expected 2, actual 3"
        ]
        assert case(found, "shapes").advice

    def test_in_a_loop_without_graphs_their_time_is_judged(self):
        again = [compiled(200 + 20 * i, size_mismatch(i)) for i in range(1, 6)]
        found = report(*plain_steps(400), *again)
        assert found.verdict.case == "shapes"
        assert case(found, "shapes").ms_per_step == pytest.approx(5 * 10 / 400)
        assert found.verdict.sentence.endswith("It costs 0.125 ms a step, over 400 steps in all.")

    def test_a_step_that_compiled_is_one_step_of_its_size(self):
        rows = plain_steps(400)
        rows[250] = {**rows[250], "compile_ns": MS // 2}
        told = case(report(*rows), "shapes").evidence
        assert told[0].startswith("Compilations and captures after start-up: 1,")


class TestMarks:
    def test_skips_are_told_with_their_reasons(self):
        def skip(reason, weight=1):
            told = {"frame": FRAME, "reason": reason}
            return event("mark", kind="cudagraph_skip", weight=weight, config=told)

        found = report(skip("mutated inputs (1 instances)"), skip("cpu device (x)", 3), skip(None))
        one = finding(found, "cudagraph_skip")
        assert one.severity == "warn"
        assert one.data["times"] == 5
        assert one.data["reasons"][0] == {
            "what": "step loop.py:7",
            "reason": "cpu device (x)",
            "times": 3,
        }
        assert one.sentence == (
            "Inductor left CUDA graphs out 5 times, so that these regions launch kernel by kernel. "
            "step loop.py:7: cpu device (x) (3); step loop.py:7: mutated inputs (1 instances) (1); "
            "step loop.py:7: not told (1)."
        )

    def test_failures_are_told(self):
        found = report(
            event(
                "mark", kind="compile_failed", config={"frame": FRAME, "type": "E", "reason": "r"}
            ),
            event("mark", kind="capture_failed", config={"artifact": "decode/4", "error": "oom"}),
        )
        assert "step loop.py:7: E: r (1)" in finding(found, "compile_failed").sentence
        assert "decode/4: oom (1)" in finding(found, "capture_failed").sentence

    def test_marks_without_details_break_nothing(self):
        for kind in ("cudagraph_skip", "compile_failed", "capture_failed", "graph_replays"):
            for config in (None, "[]", '{"artifacts": 7}', '{"artifacts": {"a": "x"}}'):
                report(event("mark", kind=kind, config=config))


class TestReplaysOutside:
    def replays(self, weight, **artifacts):
        return event("mark", kind="graph_replays", weight=weight, config={"artifacts": artifacts})

    def test_they_add_up(self):
        events = trace([self.replays(5, a=3, b=4), self.replays(2, a=2)]).events()
        found = replays_outside(events)
        assert (found.outside, found.artifacts) == (7, {"a": 5, "b": 4})

    def test_without_steps_they_are_told_and_their_graphs_are_used(self):
        capture = event("capture", artifact="a", kind="cuda_graph", dur_ns=MS)
        found = report(capture, self.replays(7, a=5, late=2))
        assert found.verdict.sentence == (
            "No verdict: the source holds no step, only 1 graph capture (0.001 s), 7 graph replays."
        )
        assert [(one.artifact, one.replays, one.captured) for one in found.artifacts] == [
            ("a", 5, True),
            ("late", 2, False),
        ]
        (note,) = [text for text in found.notes if "outside of the recorded steps" in text]
        assert note.startswith("7 graph replays happened outside")
        assert "a 5, late 2" in note

    def test_graphs_that_replay_outside_steps_are_not_called_unused(self):
        rows = [event("capture", size=8, artifact="a"), *[step(4, reason="unknown")] * 20]
        assert finding(report(*rows), "unused_artifacts").severity == "error"
        found = report(*rows, self.replays(7, a=7))
        assert not [one for one in found.audit if one.kind == "unused_artifacts"]
