import json
from datetime import datetime

import pytest

from graphdiag.diagnosis import diagnose
from tests.build import MS, START_NS, event, step, trace


def found(rows, kind):
    return [finding for finding in diagnose(trace(rows)).audit if finding.kind == kind]


def run(**config):
    return event("run", config=config)


class TestCeiling:
    def test_steps_above_the_largest_size_are_an_error(self):
        rows = [
            run(axis="requests", capture_sizes=[1, 32], max_num_seqs=4096),
            *[step(20, 32)] * 6,
            *[step(40, reason="over_max")] * 4,
        ]
        (finding,) = found(rows, "ceiling")
        assert finding.severity == "error"
        assert finding.data == {
            "largest_bucket": 32,
            "largest_batch_allowed": 4096,
            "largest_batch_seen": 40,
            "steps_above": 4,
        }
        assert "4 of 10 steps (40.0 %)" in finding.sentence

    def test_a_batch_that_may_come_is_a_warning(self):
        rows = [run(axis="requests", capture_sizes=[32], max_num_seqs=64), step(20, 32)]
        (finding,) = found(rows, "ceiling")
        assert finding.severity == "warn"

    def test_speculative_tokens_count_on_the_token_axis(self):
        config = {"axis": "tokens", "capture_sizes": [40], "max_num_seqs": 6}
        rows = [run(**config, speculative_tokens=6), step(35, 40, axis="tokens")]
        (finding,) = found(rows, "ceiling")
        assert finding.data["largest_batch_allowed"] == 42
        assert not found([run(**config), step(35, 40, axis="tokens")], "ceiling")

    def test_prompt_chunks_above_a_covered_decode_batch_are_information(self):
        rows = [
            run(axis="tokens", capture_sizes=[256], max_num_seqs=256),
            step(200, 256, axis="tokens"),
            step(2048, axis="tokens", phase="mixed", reason="over_max"),
        ]
        (finding,) = found(rows, "ceiling")
        assert finding.severity == "info"

    def test_covered_batches_are_fine(self):
        rows = [run(axis="requests", capture_sizes=[32], max_num_seqs=32), step(20, 32)]
        assert not found(rows, "ceiling")


class TestUnusedArtifacts:
    def test_all_unused_is_an_error_and_no_bucket_is_recommended(self):
        rows = [
            run(axis="requests", capture_sizes=[1, 2, 4]),
            *[event("capture", size=size, artifact=f"decode/{size}") for size in (4, 2, 1)],
            *[step(3, reason="unknown")] * 10,
        ]
        report = diagnose(trace(rows))
        (finding,) = (f for f in report.audit if f.kind == "unused_artifacts")
        assert finding.severity == "error"
        assert "10 of them were within the largest size 4" in finding.sentence
        assert report.recommendation is None
        assert report.verdict.case == "fallback"

    def test_single_idle_sizes_are_information(self):
        rows = [run(capture_sizes=[1, 2, 4]), step(2, 2)]
        (finding,) = found(rows, "unused_artifacts")
        assert finding.severity == "info"
        assert finding.data["sizes"] == [1, 4]

    def test_a_replay_of_unknown_bucket_is_a_use(self):
        rows = [event("capture", size=4), step(3, None, outcome=None, mode="full"), step(9)]
        assert not [f for f in found(rows, "unused_artifacts") if f.severity == "error"]


class TestNeverWarmed:
    def test_a_capture_under_traffic_is_an_error(self):
        rows = [step(8, 8, i) for i in range(200)]
        rows += [step(5, None, 300, outcome="capture", artifact="decode/5")]
        (finding,) = found(rows, "never_warmed")
        assert finding.severity == "error"
        assert finding.data == {"steps": 1, "sizes": [5]}

    def test_a_replay_whose_capture_is_missing_is_a_warning(self):
        rows = [event("capture", size=8, artifact="decode/8"), step(8, 8, 1), step(3, 4, 2)]
        (finding,) = found(rows, "never_warmed")
        assert finding.severity == "warn"
        assert finding.data["artifacts"] == ["decode/4"]

    def test_without_captures_on_record_nothing_is_said(self):
        assert not found([step(8, 8), step(3, 4)], "never_warmed")


class TestStride:
    CONFIG = {"axis": "tokens", "capture_sizes": [8, 14, 16], "speculative_tokens": 6}

    def test_padding_because_of_it_is_an_error(self):
        rows = [run(**self.CONFIG), *[step(7, 8, axis="tokens")] * 3]
        (finding,) = found(rows, "stride")
        assert finding.severity == "error"
        assert finding.data == {"stride": 7, "sizes": [8, 16], "steps": 3, "padded_rows": 3}

    def test_a_misfit_nobody_met_is_a_warning(self):
        (finding,) = found([run(**self.CONFIG), step(14, 14, axis="tokens")], "stride")
        assert finding.severity == "warn"

    def test_requests_have_no_stride(self):
        config = {**self.CONFIG, "axis": "requests"}
        assert not found([run(**config), step(7, 8)], "stride")


class TestUnreachableSize:
    def test_sizes_beyond_the_largest_batch(self):
        rows = [
            run(axis="requests", capture_sizes=[8, 16, 32, 64], max_num_seqs=12),
            step(10, 16),
        ]
        (finding,) = found(rows, "unreachable_size")
        assert finding.severity == "info"
        assert finding.data["sizes"] == [32, 64]

    def test_mixed_batches_fill_the_token_budget(self):
        config = {"axis": "tokens", "capture_sizes": [8, 16, 32], "max_num_seqs": 8}
        rows = [step(8, 8, axis="tokens")]
        piecewise = run(**config, token_budget=32, mode="FULL_AND_PIECEWISE")
        assert not found([piecewise, *rows], "unreachable_size")
        decode_only = run(**config, token_budget=32, mode="FULL_DECODE_ONLY")
        (finding,) = found([decode_only, *rows], "unreachable_size")
        assert finding.data["sizes"] == [16, 32]


class TestCaptureOrder:
    def captures(self, sizes, gap_ms=10.0):
        return [
            event("capture", i * gap_ms, size=size, kind="cuda_graph")
            for i, size in enumerate(sizes)
        ]

    def test_smallest_first_is_a_warning(self):
        (finding,) = found([*self.captures([1, 2, 4]), step(2, 2, 100)], "capture_order")
        assert finding.severity == "warn"
        assert finding.data == {"sizes": [1, 2, 4], "grew": 2}

    def test_largest_first_is_fine(self):
        assert not found([*self.captures([4, 2, 1]), step(2, 2, 100)], "capture_order")

    def test_capturing_all_of_them_anew_is_fine(self):
        assert not found([*self.captures([4, 2, 4, 2]), step(2, 2, 100)], "capture_order")
        assert not found([*self.captures([4, 4, 2, 2]), step(2, 2, 100)], "capture_order")
        (finding,) = found([*self.captures([2, 2, 4, 4]), step(2, 2, 100)], "capture_order")
        assert finding.data["grew"] == 1

    def test_one_time_for_all_does_not_tell_the_order(self):
        assert not found([*self.captures([1, 2, 4], gap_ms=0), step(2, 2, 100)], "capture_order")

    def test_each_phase_has_its_own_order(self):
        rows = self.captures([4, 2, 1])
        rows += [{**row, "phase": "prefill"} for row in self.captures([8, 4])]
        assert not found([*rows, step(2, 2, 100)], "capture_order")


class TestStaleArtifact:
    def compiled(self, identity, cache, run="run-1", key="k"):
        return event(
            "compile",
            key=json.dumps({"hash": key}),
            identity=json.dumps(identity),
            cache=cache,
            run=run,
            artifact="region",
        )

    def test_a_served_hit_behind_a_shared_key_is_an_error(self):
        rows = [
            self.compiled({"draft": 7, "weights": "a"}, "miss"),
            self.compiled({"draft": 9, "weights": "a"}, "hit", run="run-2"),
            step(8, 8, artifact="region"),
        ]
        (finding,) = found(rows, "stale_artifact")
        assert finding.severity == "error"
        assert finding.data["influences"] == ["draft"]
        assert finding.data["steps"] == 1

    def test_no_hit_yet_is_a_warning(self):
        rows = [
            self.compiled({"draft": 7}, "miss"),
            self.compiled({"draft": 9}, "miss", run="run-2"),
            step(8, 8),
        ]
        (finding,) = found(rows, "stale_artifact")
        assert finding.severity == "warn"

    def test_graphs_in_memory_may_differ_between_runs(self):
        rows = [
            self.compiled({"weights": "a"}, "none"),
            self.compiled({"weights": "b"}, "none", run="run-2"),
            step(8, 8),
        ]
        assert not found(rows, "stale_artifact")

    def test_different_keys_are_fine(self):
        rows = [
            self.compiled({"draft": 7}, "miss"),
            self.compiled({"draft": 9}, "hit", key="other"),
            step(8, 8),
        ]
        assert not found(rows, "stale_artifact")


def under_load(levels, *, top=32, replay_ms=6.6, eager_ms=24.0, slope_ms=0.01, queued=0):
    """A step every second at each level: replayed up to ``top``, eager above it."""
    buckets = (8, 16, 24, 32)
    rows = [run(axis="requests", capture_sizes=list(buckets), max_num_seqs=4096)]
    for second, level in enumerate(levels):
        bucket = next((b for b in buckets if b >= level and b <= top), None)
        ms = eager_ms if bucket is None else replay_ms + slope_ms * bucket
        rows.append(
            step(
                level,
                bucket,
                second * 1000,
                dur_ns=round(ms * MS),
                queued=queued,
                reason=None if bucket else "over_max",
            )
        )
    return rows


class TestFallbackTrap:
    CALM = [8, 11, 7, 14, 20, 12] * 10
    TRAPPED = [60, 75, 80, 74, *[68] * 120]

    def test_fallback_that_outlives_its_burst(self):
        (finding,) = found(under_load(self.CALM + self.TRAPPED), "fallback_trap")
        assert finding.severity == "error"
        assert finding.data["level"] == pytest.approx(68)
        assert finding.data["size_needed"] == 80
        # 68 rows in 24 ms are 2.83 rows/ms; a replayed batch of 20 takes 6.8 ms: 2.94 rows/ms.
        assert finding.data["batch_if_replayed"] == 20
        assert finding.data["outlived_burst_s"] == pytest.approx(120, abs=3)
        onset = datetime.fromisoformat(finding.data["onset"]).timestamp()
        assert onset == pytest.approx(START_NS / 1e9 + 60, abs=1.0)  # to within a time bin

    def test_a_burst_that_passes_is_none(self):
        rows = under_load(self.CALM + [60, 75, 80, 60, 50, 40] + self.CALM * 3)
        assert not found(rows, "fallback_trap")

    def test_a_load_that_graphs_could_not_serve_is_none(self):
        # 64 rows in 12 ms: no batch of 32 or fewer delivers 5.3 rows/ms in 6.6 ms or more.
        assert not found(under_load(self.CALM + [64] * 120, eager_ms=12.0), "fallback_trap")

    def test_waiting_requests_explain_the_batch(self):
        assert not found(under_load(self.CALM + self.TRAPPED, queued=50), "fallback_trap")

    def test_eager_from_the_start_shows_no_other_state(self):
        assert not found(under_load(self.TRAPPED), "fallback_trap")
