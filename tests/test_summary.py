from collections import defaultdict
from math import floor, log2
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from graphdiag import parts
from graphdiag.batchtables import DURATION_KEYS, GROUP_KEYS, SLICE_KEYS, TIME_KEYS, columns_read
from graphdiag.diagnosis import report_of
from graphdiag.periods import COLD, STEADY, WARM, Periods
from graphdiag.requesttimes import middle_of_bin, request_sums
from graphdiag.summary import TIME_BINS, bin_shift, summarize
from graphdiag.trace import open_trace
from tests.build import MS, START_NS, event, step, trace, write


def total(table, column):
    return table[column].sum()


def only(table):
    assert len(table) == 1
    return table.row(0, named=True)


# --- known values -----------------------------------------------------------------------------


def test_steps_of_a_kind_become_one_group():
    rows = [
        step(3, 4, 10.0, dur_ns=5 * MS, host_ns=100, tokens_out=3, kv_tokens=700),
        step(3, 4, 20.0, dur_ns=7 * MS, tokens_out=3, kv_tokens=800),
    ]
    group = only(summarize(trace(rows), Periods({}, ())).groups)
    assert group["requested"] == 3
    assert group["bucket"] == 4
    assert group["outcome"] == "padded"
    assert group["period"] == STEADY
    assert group["weight"] == group["rows"] == group["dur_ns_weight"] == 2
    assert group["dur_ns"] == 12 * MS
    assert group["dur_sq"] == (5 * MS) ** 2 + (7 * MS) ** 2
    assert (group["host_ns"], group["host_ns_weight"]) == (100, 1)
    assert (group["gpu_ns"], group["gpu_ns_weight"]) == (0, 0)
    assert (group["tokens_out"], group["kv_tokens"]) == (6, 1500)
    assert group["t_min"] == START_NS + 10 * MS
    assert group["t_max"] == START_NS + 27 * MS


def test_rows_that_stand_for_many_steps_add_up():
    rows = [
        step(3, 4, 10.0, weight=40, dur_ns=200 * MS, tokens_out=120),
        step(3, 4, 20.0, dur_ns=5 * MS, tokens_out=3),
    ]
    summary = summarize(trace(rows), Periods({}, ()))
    group = only(summary.groups)
    assert (group["weight"], group["rows"], group["dur_ns_weight"]) == (41, 2, 41)
    assert group["dur_ns"] / group["dur_ns_weight"] == 5 * MS
    assert group["dur_sq"] == pytest.approx(41 * (5 * MS) ** 2)
    assert group["tokens_out"] == 123
    assert only(summary.durations)["weight"] == 41
    assert total(summary.timeline, "requested_rows") == 41 * 3


def test_time_of_no_step_is_kept_and_counts_none():
    rows = [step(3, 4, 10.0, weight=0, dur_ns=9 * MS), step(3, 4, 20.0, dur_ns=5 * MS)]
    summary = summarize(trace(rows), Periods({}, ()))
    group = only(summary.groups)
    assert (group["weight"], group["rows"], group["dur_ns"]) == (1, 2, 14 * MS)
    assert group["dur_sq"] == (5 * MS) ** 2
    assert total(summary.durations, "weight") == 1


def test_a_weight_that_is_not_told_is_one():
    rows = [step(3, 4, weight=None, dur_ns=5 * MS), step(3, 4, 1.0, dur_ns=5 * MS)]
    summary = summarize(trace(rows), Periods({}, ()))
    assert only(summary.groups)["weight"] == 2
    assert only(summary.durations)["weight"] == 2


def test_sums_of_narrow_columns_do_not_overflow():
    big = 2**31 - 1
    rows = [
        step(big, big, i, tokens_out=big, launches=big, queued=big, weight=9, dur_ns=10**12)
        for i in range(4)
    ]
    summary = summarize(trace(rows), Periods({}, ()))
    group = only(summary.groups)
    assert group["tokens_out"] == group["launches"] == 4 * big
    assert group["dur_sq"] == pytest.approx(4 * 1e24 / 9)
    assert total(summary.timeline, "requested_rows") == 36 * big
    assert total(summary.timeline, "queued") == 36 * big


def test_steps_of_different_runs_ranks_runners_and_kinds_stay_apart():
    rows = [
        step(3, 4),
        step(3, 4, run="run-2"),
        step(3, 4, rank=1),
        step(3, 4, runner="draft"),
        step(3, 4, kind="warmup"),
        step(3, 4, phase=None),
        step(3, 4, run=None),
        step(None, 4),
        step(3, None, outcome=None),
    ]
    summary = summarize(trace(rows), Periods({}, ()))
    assert len(summary.groups) == 9
    assert len(summary.timeline) == 7  # rank and requested size are no keys of it
    assert total(summary.groups, "weight") == total(summary.timeline, "weight") == 9


def test_steps_without_time():
    rows = [step(3, 4, t_ns=None, dur_ns=5 * MS), step(3, 4, t_ns=None)]
    summary = summarize(trace(rows))
    group = only(summary.groups)
    assert (group["weight"], group["dur_ns_weight"], group["period"]) == (2, 1, STEADY)
    assert group["t_min"] is None
    assert group["t_max"] is None
    assert summary.timeline.is_empty()
    assert summary.shift == 0
    assert total(summary.durations, "weight") == 1


def test_trace_with_only_captures():
    rows = [event("run"), *(event("capture", i, dur_ns=MS, size=i) for i in range(1, 4))]
    summary = summarize(trace(rows))
    assert summary.groups.is_empty()
    assert summary.timeline.is_empty()
    assert summary.durations.is_empty()
    assert len(summary.events) == 4
    assert summary.periods.cold_end == {"run-1": START_NS + 4 * MS}


def test_empty_trace_has_the_columns_of_a_full_one():
    empty, full = summarize(trace([])), summarize(trace([step(3, 4, 1.0, dur_ns=MS)]))
    for name in ("groups", "timeline", "slices", "durations", "events"):
        assert getattr(empty, name).schema == getattr(full, name).schema
        assert getattr(empty, name).is_empty()
    assert_same(empty.merge(full), full)


def test_period_of_each_step():
    rows = [
        event("capture", 0.0, dur_ns=10 * MS, size=4),
        step(3, 4, 5.0, dur_ns=MS),
        step(3, 4, 20.0, dur_ns=MS),
        step(3, 4, 30.0, dur_ns=MS),
        step(9, None, 40.0, dur_ns=MS),
    ]
    groups = summarize(trace(rows)).groups
    periods = dict(groups.group_by("period").agg(pl.col("weight").sum()).iter_rows())
    assert periods == {COLD: 1, WARM: 1, STEADY: 2}


def test_notes_of_the_trace_are_kept(tmp_path):
    path = tmp_path / "t"
    path.mkdir()
    write([step(1, 1)], path / "part-a.parquet")
    (path / "part-b.parquet").touch()
    opened = open_trace(path)
    assert summarize(opened).notes == opened.notes != ()


# --- bins -------------------------------------------------------------------------------------


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_timeline_has_few_bins_and_no_needlessly_wide_ones(first, length):
    shift = bin_shift(length)
    bins = ((first + length) >> shift) - (first >> shift) + 1
    assert bins <= TIME_BINS
    assert shift == 0 or length >> (shift - 1) >= TIME_BINS - 1


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_duration_bin_and_its_middle(duration, weight):
    rows = [step(3, 4, dur_ns=duration, weight=weight)]
    table = only(summarize(trace(rows), Periods({}, ())).durations)
    exact = 16 * log2(duration / weight)
    assert abs(table["duration_bin"] - floor(exact)) <= (abs(exact - round(exact)) < 1e-9)
    middle = pl.DataFrame({"b": [table["duration_bin"]]}, schema={"b": pl.Int16}).select(
        middle_of_bin(pl.col("b"))
    )
    assert middle.item() == pytest.approx(duration / weight, rel=2 ** (1 / 32) - 1 + 1e-9)


def test_requests_are_summed_by_their_time_to_a_first_token():
    told = {"tokens_in": 7, "tokens_out": 3, "queued_ns": 2 * MS, "dur_ns": 50 * MS}
    rows = [event("request", 5.0 * i, ttft_ns=(10 + i % 2) * MS, **told) for i in range(10)]
    rows.append(event("request", 60.0, dur_ns=MS))
    summary = summarize(trace([step(3, 4, dur_ns=MS), *rows]))
    table = summary.requests.group_by("ttft_bin").agg(pl.col("weight").sum()).sort("ttft_bin")
    bins = [floor(16 * log2(ms * MS)) for ms in (10, 11)]
    assert table.rows() == [(None, 1), (bins[0], 5), (bins[1], 5)]
    sums = ("weight", "tokens_in", "tokens_out", "queued_ns", "queued_ns_weight", "dur_ns_weight")
    assert [total(summary.requests, name) for name in sums] == [11, 70, 30, 20 * MS, 10, 11]
    assert summary.events.is_empty()


def test_batches_without_requests_have_the_table_of_those_with():
    rows = [step(4, 4), event("request", 0.0, dur_ns=MS, ttft_ns=MS)]
    periods = Periods({}, ())
    columns = columns_read(periods)
    tables = [
        request_sums(pl.concat(trace(some).batches(columns)), periods, 20)
        for some in (rows, rows[:1])
    ]
    assert tables[0].schema == tables[1].schema
    assert [len(table) for table in tables] == [1, 0]


def test_timeline_bins_begin_at_multiples_of_their_width():
    rows = [step(3, 4, i * 100.0, dur_ns=MS, queued=i % 2) for i in range(3000)]
    summary = summarize(trace(rows), Periods({}, ()))
    assert summary.timeline["bin"].n_unique() <= TIME_BINS
    for row in summary.timeline.iter_rows(named=True):
        first = row["bin"] << summary.shift
        inside = [r for r in rows if first <= r["t_ns"] < first + (1 << summary.shift)]
        assert row["weight"] == len(inside)
        assert row["queued"] == sum(r["queued"] for r in inside)


def test_impossible_sizes_say_nothing_but_their_time():
    rows = [
        step(-3, 16, 0.0, dur_ns=MS),
        step(9, 8, 1.0, dur_ns=MS, outcome="exact", weight=3),
        step(0, 4, 2.0, dur_ns=MS),
        step(4, 0, 3.0, dur_ns=MS, outcome=None),
        step(9, 8, 4.0, dur_ns=MS, outcome="fallback"),  # it did not replay the bucket
        step(0, 4, 5.0, dur_ns=MS, kind="filler"),
    ]
    groups = summarize(trace(rows), Periods({}, ())).groups
    assert total(groups, "impossible") == 6
    left_out = only(groups.filter(pl.col("impossible") > 0))
    assert (left_out["weight"], left_out["dur_ns"]) == (6, 4 * MS)
    sizes = ("requested", "bucket", "outcome", "mode", "artifact")
    assert [left_out[name] for name in sizes] == [None] * 5


def test_a_clock_set_back_is_counted_and_gives_no_negative_time():
    rows = [step(3, 4, 10.0 * i, dur_ns=MS, step=i) for i in range(10)]
    for row in rows[5:]:
        row["t_ns"] -= 3600 * 1000 * MS
    rows[7]["dur_ns"] = -MS
    summary = summarize(trace(rows), Periods({}, ()))
    sums = ("weight", "set_back", "backwards", "dur_ns", "dur_ns_weight")
    assert [total(summary.groups, name) for name in sums] == [10, 1, 1, 9 * MS, 9]
    notes = report_of(summary, "by hand").notes
    assert any("set back during 1 step that ended" in note for note in notes)
    assert any("The clock was set back while recording, 1 time" in note for note in notes)


def test_steps_that_compiled_are_counted_one_by_one():
    rows = [step(4, 4, float(i), compile_ns=5 if i == 3 else 0) for i in range(10)]
    rows.append(step(4, 4, 20.0, compile_ns=None))
    group = only(summarize(trace(rows), Periods({}, ())).groups)
    assert (group["weight"], group["compile_steps"], group["compile_ns"]) == (11, 1, 5)


# --- against the same sums in plain Python ----------------------------------------------------


def maybe(strategy):
    return st.none() | strategy


@st.composite
def step_rows(draw):
    bucket = draw(maybe(st.sampled_from([0, 1, 2, 4, 8])))
    return step(
        draw(maybe(st.integers(-1, 8))),
        bucket,
        t_ns=draw(maybe(st.integers(START_NS, START_NS + 10**6))),
        dur_ns=draw(maybe(st.sampled_from([0, 1, 7, 1000, 5 * MS, 10**10]))),
        host_ns=draw(maybe(st.integers(0, 100))),
        tokens_out=draw(maybe(st.integers(0, 2**31 - 1))),
        queued=draw(maybe(st.integers(0, 3))),
        weight=draw(st.sampled_from([None, 0, 1, 1, 1, 40])),
        run=draw(st.sampled_from(["run-1", "run-2", None])),
        rank=draw(st.sampled_from([0, 1, None])),
        runner=draw(st.sampled_from(["target", "draft", None])),
        phase=draw(st.sampled_from(["decode", "mixed", None])),
        kind=draw(st.sampled_from([None, None, "warmup"])),
        outcome=draw(st.sampled_from(["exact", "padded", "fallback", "capture", None])),
        reason=draw(maybe(st.sampled_from(["over_max", "no_key"]))),
        loras=draw(maybe(st.integers(0, 2))),
    )


event_rows = st.builds(
    event,
    st.sampled_from(["capture", "compile", "mark"]),
    st.integers(0, 5),
    dur_ns=maybe(st.integers(0, MS)),
    run=st.sampled_from(["run-1", None]),
)
limit_rows = st.builds(
    event,
    st.just("mark"),
    st.floats(0, 1),
    kind=st.sampled_from(["recompile_limit", "dynamo_reset"]),
    run=st.sampled_from(["run-1", None]),
    config=st.sampled_from([{"frame": "one"}, {"frame": "two"}]),
)
request_rows = st.builds(
    event,
    st.just("request"),
    st.integers(0, 5),
    dur_ns=maybe(st.integers(0, MS)),
    ttft_ns=maybe(st.integers(0, MS)),
    tokens_out=maybe(st.integers(0, 9)),
)
any_rows = st.lists(step_rows() | event_rows | limit_rows | request_rows, max_size=30)


def is_impossible(row):
    requested, bucket = row["requested"], row["bucket"]
    replayed = row["outcome"] in ("exact", "padded", None)
    return (
        (requested == 0 and row["kind"] is None)
        or (requested is not None and requested < 0)
        or (bucket is not None and bucket < 1)
        or (replayed and None not in (requested, bucket) and bucket < requested)
    )


def plain_sums(rows, keys, period):
    """Weight, rows, time and timed weight of the steps by key, in plain Python."""
    sums = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        if row["event"] == "step":
            if is_impossible(row):
                sizes = ("requested", "bucket", "mode", "outcome", "reason", "artifact")
                row = {**row, **dict.fromkeys(sizes)}
            weight = 1 if row["weight"] is None else row["weight"]
            key = tuple(period(row) if k == "period" else row.get(k) for k in keys)
            one = sums[key]
            one[0] += weight
            one[1] += 1
            one[2] += row["dur_ns"] or 0
            one[3] += 0 if row["dur_ns"] is None else weight
    return dict(sums)


@settings(deadline=None, max_examples=40)
@given(any_rows, st.integers(1, 7))
def test_groups_are_the_plain_sums(rows, batch):
    end = START_NS + 500_000
    periods = Periods({"run-1": end}, ())

    def period(row):
        cold = row["run"] == "run-1" and row["t_ns"] is not None and row["t_ns"] < end
        return COLD if cold else STEADY

    with patch.object(parts, "BATCH_ROWS", batch):
        groups = summarize(trace(rows), periods).groups
    found = {
        tuple(row[k] for k in GROUP_KEYS): [
            row["weight"],
            row["rows"],
            row["dur_ns"],
            row["dur_ns_weight"],
        ]
        for row in groups.iter_rows(named=True)
    }
    assert found == plain_sums(rows, GROUP_KEYS, period)


@settings(deadline=None, max_examples=20)
@given(any_rows, st.integers(1, 7))
def test_slices_are_the_plain_sums_of_their_time(rows, batch):
    periods = Periods({}, ())
    with patch.object(parts, "BATCH_ROWS", batch):
        summary = summarize(trace(rows), periods)
    assert summary.slices["slice"].n_unique() <= 32
    timed = [row for row in rows if row["event"] == "step" and row["t_ns"] is not None]
    for row in timed:
        row["slice"] = row["t_ns"] >> summary.slice_shift
        weight = 1 if row["weight"] is None else row["weight"]
        row["octave"] = floor(log2(row["dur_ns"] / weight)) if row["dur_ns"] and weight else None
    found = {
        tuple(row[k] for k in SLICE_KEYS): [row["weight"], row["dur_ns"], row["dur_ns_weight"]]
        for row in summary.slices.iter_rows(named=True)
    }
    plain = plain_sums(timed, SLICE_KEYS, lambda row: STEADY)
    assert found == {key: [sums[0], *sums[2:]] for key, sums in plain.items()}


# --- merging ----------------------------------------------------------------------------------


def assert_same(one, other):
    """Equal summaries; float sums may differ in the last bits, events in the order of a tie."""
    assert_frame_equal(one.groups, other.groups, rel_tol=1e-12)
    assert_frame_equal(one.timeline, other.timeline)
    assert_frame_equal(one.slices, other.slices, rel_tol=1e-12)
    assert_frame_equal(one.durations, other.durations)
    assert_frame_equal(one.limited, other.limited)
    assert_frame_equal(one.requests, other.requests)
    assert_frame_equal(one.events, other.events, check_row_order=False)
    assert one.events["t_ns"].to_list() == other.events["t_ns"].to_list()
    assert one.shift == other.shift
    assert one.periods == other.periods
    assert set(one.notes) == set(other.notes)


@settings(deadline=None, max_examples=50)
@given(st.data(), any_rows, st.integers(1, 4), st.booleans())
def test_merged_parts_are_the_summary_of_the_whole(data, rows, count, with_span):
    whole = summarize(trace(rows))
    where = data.draw(st.lists(st.integers(0, count - 1), min_size=len(rows), max_size=len(rows)))
    times = [row["t_ns"] for row in rows if row["event"] == "step" and row["t_ns"] is not None]
    span = (min(times), max(times)) if with_span and times else None
    pieces = [
        summarize(
            trace([row for row, place in zip(rows, where, strict=True) if place == part]),
            whole.periods,
            span,
        )
        for part in range(count)
    ]
    merged, *others = data.draw(st.permutations(pieces))
    for piece in others:
        merged = merged.merge(piece)
    assert_same(merged, whole)


@settings(deadline=None, max_examples=25)
@given(any_rows, st.integers(1, 6))
def test_batches_make_no_difference(rows, batch):
    with patch.object(parts, "BATCH_ROWS", batch):
        small = summarize(trace(rows))
    assert_same(small, summarize(trace(rows)))


def test_file_and_memory_make_no_difference(tmp_path):
    rows = [event("run"), event("capture", 1.0, dur_ns=MS)]
    rows += [step(i % 9, 8 if i % 9 else None, 10.0 + i, dur_ns=MS + i) for i in range(500)]
    assert_same(summarize(open_trace(write(rows, tmp_path / "t.parquet"))), summarize(trace(rows)))


def test_merge_of_two_runs_knows_the_periods_of_both():
    def run(name, at):
        return [
            event("capture", at, dur_ns=10 * MS, run=name),
            *(step(4, 4, at + 20 + i, run=name, dur_ns=MS) for i in range(3)),
        ]

    one, two = run("a", 0.0), run("b", 1000.0)
    merged = summarize(trace(one)).merge(summarize(trace(two)))
    assert_same(merged, summarize(trace(one + two)))
    assert set(merged.periods.cold_end) == {"a", "b"}


def test_merging_many_parts_keeps_the_timeline_short():
    merged = summarize(trace([step(1, 1, 0.0)]), Periods({}, ()))
    for i in range(1, 40):
        piece = [step(1, 1, 1e5 * i + j * 10, dur_ns=MS) for j in range(50)]
        merged = merged.merge(summarize(trace(piece), Periods({}, ())))
    assert merged.timeline["bin"].n_unique() <= TIME_BINS
    assert total(merged.timeline, "weight") == 1 + 39 * 50


def test_keys_are_the_columns_that_come_first():
    summary = summarize(trace([step(3, 4, dur_ns=MS)]))
    assert tuple(summary.groups.columns[: len(GROUP_KEYS)]) == GROUP_KEYS
    assert tuple(summary.timeline.columns[: len(TIME_KEYS)]) == TIME_KEYS
    assert tuple(summary.durations.columns[: len(DURATION_KEYS)]) == DURATION_KEYS
