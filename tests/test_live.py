import random

import pytest
from polars.testing import assert_frame_equal

from graphdiag import live as living
from graphdiag.batchtables import TABLES
from graphdiag.diagnosis import report_of
from graphdiag.errors import SourceError
from graphdiag.live import LiveTrace
from graphdiag.parts import ParquetFile
from graphdiag.selection import Selection, phases, ranks, runners, snapped, summary_of
from graphdiag.summary import summarize
from graphdiag.timerange import TimeRange
from graphdiag.trace import open_trace
from graphdiag_collectors.files import write_part
from tests.build import MS, START_NS, event, step, table, trace
from tests.recordings import tail


def history(seed, steps=250):
    """Rows of two ranks in order of time: start-up, traffic, recompilations, a limit, requests."""
    draw = random.Random(seed)
    rows = [event("run", 0.0, config={"engine": "vllm", "capture_sizes": [8, 16]})]
    rows += [
        event("capture", 1.0 + i, dur_ns=MS, size=s, artifact=f"decode/{s}", rank=r)
        for i, s in enumerate((16, 8))
        for r in (0, 1)
    ]
    at = 10.0
    for number in range(steps):
        at += draw.random() * 4
        size = draw.randint(1, 20)
        bucket = None if size > 16 else 8 if size <= 8 else 16
        rank = number % 2
        rows.append(
            step(
                size,
                bucket,
                at,
                dur_ns=draw.randint(1, 9 * MS),
                rank=rank,
                queued=1,
                phase=draw.choice(["decode", "prefill"]),
                reason=None if bucket else "over_max",
                runner="draft" if number % 7 == 0 else "target",
            )
        )
        if number % 97 == 50:
            rows.append(event("compile", at, dur_ns=MS, reason="dynamic", rank=rank))
        if number == 150:
            rows.append(event("mark", at, kind="recompile_limit", config={"frame": "f a.py:1"}))
        if number % 10 == 3:
            rows.append(event("request", at, ttft_ns=MS, dur_ns=5 * MS, tokens_in=3, tokens_out=4))
    return rows


def assert_same(one, other):
    for name in TABLES:
        wanted = getattr(other, name)
        assert_frame_equal(getattr(one, name).select(wanted.columns), wanted, rel_tol=1e-12)
    assert_frame_equal(one.events, other.events, check_row_order=False)
    for name in ("shift", "slice_shift", "periods", "window", "notes"):
        assert getattr(one, name) == getattr(other, name), name


def opener(path):
    return lambda known: open_trace(path, known)


def windows(live):
    first, last = live.sums.span
    for start, end in ((0, 0.5), (0.3, 0.45), (0.2, 0.9), (0.6, 2)):
        found = [first + int(share * (last - first)) for share in (start, end)]
        yield TimeRange(*found)


@pytest.mark.parametrize(("seed", "room"), [(0, 1 << 17), (1, 300)])
def test_a_growing_trace_is_summed_as_if_read_at_once(tmp_path, monkeypatch, seed, room):
    monkeypatch.setattr(living, "MOST_ROWS", room)
    rows, draw, parts = history(seed), random.Random(seed), 0
    live = LiveTrace(opener(tmp_path))
    while rows:
        now = rows[: draw.randint(20, 120)]
        tailed = tmp_path / f"_tail-a-{parts}.arrow"
        for share in (0.4, 1.0):
            tailed.write_bytes(tail(now[: max(1, int(share * len(now)))], whole=False))
            assert live.refresh()
        if draw.random() < 0.8:
            # Sealed, at times with rows that no refresh saw in the tail.
            more = rows[len(now) : len(now) + draw.choice([0, 0, 9])]
            write_part(tmp_path / f"part-a-{parts}.parquet", table(now + more).to_batches())
            tailed.unlink()
            assert live.refresh() == bool(more)
            now = now + more
        rows, parts = rows[len(now) :], parts + 1
        assert not live.refresh()
        assert_same(summary_of(live.sums, Selection()), summarize(open_trace(tmp_path)))
    assert (ranks(live.sums), phases(live.sums)) == ([0, 1], ["decode", "prefill"])
    assert runners(live.sums) == ["draft", "target"]
    for window in windows(live):
        chosen = summary_of(live.sums, Selection(window=window))
        assert chosen.window == snapped(live.sums, window)
        assert_same(chosen, summarize(open_trace(tmp_path), window=chosen.window))


def test_a_sealed_part_is_read_once(tmp_path, monkeypatch):
    write_part(tmp_path / "part-a-0.parquet", table(history(0, 50)).to_batches())
    live = LiveTrace(opener(tmp_path))
    live.refresh()
    read = []
    for name in ("batches", "footer"):
        whole = getattr(ParquetFile, name)

        def noted(part, *arguments, whole=whole):
            read.append(part.place.base)
            return whole(part, *arguments)

        monkeypatch.setattr(ParquetFile, name, noted)
    later = [step(3, 8, 9000.0 + i, dur_ns=MS) for i in range(9)]
    write_part(tmp_path / "part-a-1.parquet", table(later).to_batches())
    assert live.refresh()
    assert set(read) == {"part-a-1.parquet"}


def test_after_a_damaged_part_all_is_read_anew(tmp_path):
    write_part(tmp_path / "part-a-0.parquet", table(history(0, 50)).to_batches())
    live = LiveTrace(opener(tmp_path))
    live.refresh()
    later = [step(3, 8, 9000.0 + i, dur_ns=MS) for i in range(9)]
    part = tmp_path / "part-a-1.parquet"
    write_part(part, table(later).to_batches())
    whole = part.read_bytes()
    part.write_bytes(whole[:4] + bytes(200) + whole[204:])
    with pytest.raises(SourceError):
        live.refresh()
    assert live.sums.version == 1  # what was read before is shown until then
    part.write_bytes(whole)
    assert live.refresh()
    assert_same(summary_of(live.sums, Selection()), summarize(open_trace(tmp_path)))


def test_a_recording_that_replaces_a_deleted_one_is_not_added_to_it(tmp_path):
    old = tmp_path / "part-a-0.parquet"
    write_part(old, table(history(0, 50)).to_batches())
    live = LiveTrace(opener(tmp_path))
    live.refresh()
    old.unlink()
    later = [step(3, 8, 9000.0 + i, dur_ns=MS) for i in range(30)]
    write_part(tmp_path / "part-b-0.parquet", table(later).to_batches())
    assert live.refresh()
    assert_same(summary_of(live.sums, Selection()), summarize(open_trace(tmp_path)))


def test_one_phase_rank_or_runner(tmp_path):
    rows = history(1)
    live = LiveTrace(lambda known: trace(rows))
    live.refresh()

    def steps(**chosen):
        return report_of(summary_of(live.sums, Selection(**chosen)), "x").steps

    def real(**wanted):
        return sum(
            row["event"] == "step" and all(row[key] == value for key, value in wanted.items())
            for row in rows
        )

    assert steps() == real(runner="target")
    assert steps(rank=1) == real(rank=1, runner="target")
    assert steps(phase="prefill") == real(phase="prefill", runner="target")
    assert steps(runner="draft") == real(runner="draft")
    assert steps(runner="draft", rank=0, phase="decode") == real(
        runner="draft", rank=0, phase="decode"
    )


def test_a_window_keeps_what_still_bears_on_its_steps():
    rows = [
        event("run", 0.0, config={"engine": "vllm"}),
        event("capture", 1.0, dur_ns=MS, size=8, artifact="decode/8", pool_bytes=1 << 20),
        *(step(3, 8, 10.0 + i, dur_ns=MS) for i in range(300)),
        event("capture", 400.0, dur_ns=MS, size=16, artifact="decode/16"),
        *(step(9, 16, 500.0 + i, dur_ns=MS) for i in range(300)),
        event("mark", 900.0, kind="dropped", weight=7),
    ]
    summary = summarize(trace(rows), window=TimeRange(START_NS + 450 * MS, START_NS + 600 * MS))
    report = report_of(summary, "x")
    assert report.steps == 100
    assert report.engine["name"] == "vllm"
    assert (report.metrics.capture_count, report.metrics.capture_seconds) == (0, 0.0)
    assert report.metrics.graph_bytes == 1 << 20
    assert report.metrics.dropped_rows == 7
    assert not [one for one in report.audit if one.kind == "never_warmed"]
    assert any("2023-11-14T22:13:20.45Z" in note for note in report.notes)


def test_nothing_there_yet_and_no_times_at_all():
    live = LiveTrace(lambda known: trace([]))
    live.refresh()
    assert live.sums.span is None
    assert report_of(summary_of(live.sums, Selection(window=TimeRange(0, 5))), "x").steps == 0
    untimed = LiveTrace(lambda known: trace([step(3, 8, t_ns=None)]))
    untimed.refresh()
    assert report_of(summary_of(untimed.sums, Selection()), "x").steps == 1


def test_an_idle_hour_is_cut_as_when_read_at_once(tmp_path):
    rows = [
        {**row, "t_ns": row["t_ns"] + 3_600_000 * MS * (i > 60)}
        for i, row in enumerate(history(2, 120))
    ]
    live = LiveTrace(opener(tmp_path))
    for count in (40, 80, len(rows)):
        (tmp_path / "_tail-a-0.arrow").write_bytes(tail(rows[:count], whole=False))
        assert live.refresh()
    assert summary_of(live.sums, Selection()).slices["slice"].n_unique() >= 16
    for window in (None, TimeRange(live.sums.span[0], live.sums.span[0] + 100 * MS)):
        chosen = snapped(live.sums, window)
        assert_same(summary_of(live.sums, Selection(window)), summarize(trace(rows), window=chosen))
