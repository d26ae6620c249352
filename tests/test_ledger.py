"""The ledger of one run, against an engine whose times are known."""

from dataclasses import replace

import pytest

from graphdiag.charges import NAMES
from graphdiag.diagnosis import report_of
from graphdiag.ledger import Outside, ledger
from graphdiag.reporters.text import render as render_text
from graphdiag.steptable import REPLAY
from graphdiag.summary import summarize
from tests.build import MS, event, step, trace
from tests.pairs import Run

COARSE = Run(buckets=(1, 8, 32, 64))


def padded_rows(run: Run, table) -> float:
    """Padded rows a step, over all steps."""
    steps = table.steps.sum(axis=0)
    replayed = table.role == REPLAY
    rows = (steps * (table.bucket - table.requested))[replayed].sum()
    return float(rows / steps.sum())


def mean(book, by_stratum) -> float:
    return float((book.steps * by_stratum).sum() / book.total_steps)


def test_padding_is_priced_with_the_row():
    table = COARSE.table(1)
    book = ledger(table)
    assert mean(book, book.padding) == pytest.approx(
        COARSE.row_ns * padded_rows(COARSE, table), rel=0.02
    )


def test_context_is_told_apart_from_rows():
    run = replace(COARSE, token_ns=40.0, context=800)  # attention: 32 us a requested row
    table = run.table(1)
    book = ledger(table)
    assert book.models["decode"].token_ns == pytest.approx(40.0, rel=0.05)
    right = run.row_ns * padded_rows(run, table)
    assert mean(book, book.padding) == pytest.approx(right, rel=0.05)
    unrecorded = replace(table, context=table.context * 0)
    assert mean(ledger(unrecorded), ledger(unrecorded).padding) > 1.25 * right


def test_context_that_is_recorded_in_part_tells_nothing():
    table = replace(COARSE, token_ns=40.0, context=800).table(1)
    context = table.context.copy()
    context[:, 0] = 0.0
    assert ledger(replace(table, context=context)).models["decode"].token_ns == 0.0


def test_fallback_is_priced_against_replay_of_the_same_batch():
    run = replace(COARSE, fallback_share=0.25)
    book = ledger(run.table(1))
    assert mean(book, book.fallback) == pytest.approx(0.25 * run.launch_ns, rel=0.1)


def test_work_between_steps_is_charged_beside_what_steps_took():
    table = replace(COARSE, cold=20).table(1)
    inside, mean_ns = ledger(table).compile, ledger(table).mean
    book = ledger(table, work=Outside(start_up=5e6, later=7e6))
    assert book.compile == pytest.approx(inside + 5e6)
    assert book.shapes == pytest.approx(7e6)
    assert book.mean == pytest.approx(mean_ns + 12e6 / book.total_steps)


@pytest.mark.parametrize("told", ["event", "step", "both"])
@pytest.mark.parametrize("between_ms", [0, 60])
def test_compiling_inside_a_step_is_counted_once_however_it_is_told(told, between_ms):
    rows, at = [event("capture", -9.0 + i, dur_ns=MS, size=8 << i) for i in (0, 1)], 0.0
    for number in range(400):
        compiled = number in (150, 250, 350)
        rows.append(step(8, 8 << number % 2, at, dur_ns=(102 if compiled else 2) * MS))
        if compiled and told != "step":
            rows.append(event("compile", at + 1.0, dur_ns=100 * MS, reason="new shape"))
        if compiled and told != "event":
            rows[-1 if told == "step" else -2]["compile_ns"] = 100 * MS
        at += 102 if compiled else 2
        if number == 300 and between_ms:
            rows.append(event("compile", at, dur_ns=between_ms * MS, reason="new shape"))
            at += between_ms
    report = report_of(summarize(trace(rows)), told)
    book = report.ledger
    assert book.shapes.ms_per_step == pytest.approx((300 + between_ms) / 400)
    assert book.stalls.ms_per_step == book.stalled_steps == book.compile.ms_per_step == 0
    assert book.mean_ms == pytest.approx(2 + (300 + between_ms) / 400)
    case = next(case for case in report.cases if case.case == "shapes")
    assert case.ms_per_step * 400 == pytest.approx(300 + between_ms, rel=0.02)


@pytest.mark.parametrize("told", ["event", "step"])
def test_compiling_inside_first_executions_is_start_up_alone(told):
    rows, at = [], 0.0
    for number in range(400):
        took = 300 if number < 2 else 0
        rows.append(step(8, 8 << number % 2, at, dur_ns=(2 + took) * MS))
        if took and told == "step":
            rows[-1]["compile_ns"] = took * MS
        elif took:
            rows.append(event("compile", at + 0.5, dur_ns=took * MS))
        at += 2 + took
    book = report_of(summarize(trace(rows)), told).ledger
    assert book.compile.ms_per_step == pytest.approx(600 / 400)
    assert book.shapes.ms_per_step == 0
    assert book.mean_ms == pytest.approx(2 + 600 / 400)


def test_an_engine_without_graphs_has_no_case():
    book = ledger(replace(COARSE, buckets=()).table(1))
    assert book.padding.sum() == book.fallback.sum() == book.compile == book.shapes == 0
    assert book.residual == pytest.approx(0, abs=1.0)


def test_padding_of_first_executions_is_no_compilation():
    run = replace(COARSE, cold=200, compile_ns=0.0)
    book = ledger(run.table(1))
    assert book.compile[0] / book.total_steps == pytest.approx(run.start_up(1), abs=5_000)
    warmed = replace(COARSE, cold=0).table(1)
    assert mean(book, book.padding) == pytest.approx(
        mean(ledger(warmed), ledger(warmed).padding), rel=0.01
    )


def test_work_inside_steps_without_a_price_is_not_added_again():
    rows = [step(9, 16, 100.0 * i, dur_ns=100 * MS, outcome="capture") for i in range(12)]
    made = [event("capture", 100.0 * i, dur_ns=90 * MS, size=16) for i in range(12)]
    told = report_of(summarize(trace([*rows, *made])), "all capture").ledger
    assert told.mean_ms == pytest.approx(100)
    assert told.compile.ms_per_step == pytest.approx(90)  # the events say how long of it
    said = [{**row, "compile_ns": 90 * MS} for row in rows]
    told = report_of(summarize(trace([*said, *made])), "all capture").ledger
    assert told.mean_ms == pytest.approx(100)
    assert told.compile.ms_per_step == pytest.approx(90)
    between = [event("capture", 1000.0, dur_ns=1200 * MS, size=16)]
    told = report_of(summarize(trace([*said, *made, *between])), "all capture").ledger
    assert told.compile.ms_per_step == pytest.approx(90 + 100)


@pytest.mark.parametrize("share", [0.01, 0.0])
def test_stalled_steps_move_no_price_and_are_shown(share):
    run = replace(COARSE, fallback_share=0.1, pausing=share)
    book, calm = ledger(run.table(1)), ledger(replace(run, pausing=0.0).table(1))
    model = book.models["decode"]
    assert model.replay.slope[0] == pytest.approx(run.row_ns, rel=0.03)
    for name in ("padding", "fallback", "ideal"):
        was, now = mean(calm, getattr(calm, name)), mean(book, getattr(book, name))
        assert now == pytest.approx(was, rel=0.03)
    table = run.table(1)
    assert book.mean * book.total_steps == pytest.approx(table.time.sum())
    assert book.stalled == pytest.approx(share * 6000, rel=0.3)
    assert book.stalls[0] == pytest.approx(book.stalled * 49 * calm.mean, rel=0.2)


@pytest.mark.parametrize("late", [111, 112], ids=["a replay", "an eager step"])
def test_one_pause_among_few_replays_is_a_stall(late):
    # Twenty replays, of three sizes, are all that tell what a row costs.
    buckets = {1: 1, 3: 4, 8: 8}
    sizes = [[1, 3, 8][i // 10 % 3] if i % 10 == 1 else 20 for i in range(200)]
    took = [75.0 if i == late else 1.0 + 0.01 * size for i, size in enumerate(sizes)]
    rows = [
        step(size, buckets.get(size), 100.0 * i, dur_ns=round(ms * MS))
        for i, (size, ms) in enumerate(zip(sizes, took, strict=True))
    ]
    book = report_of(summarize(trace(rows)), "one pause").ledger
    charges = [getattr(book, name).ms_per_step for name in NAMES]
    assert sum(charges) == pytest.approx(book.mean_ms)
    assert book.stalled_steps == 1
    assert book.stalls.ms_per_step == pytest.approx((75 - 1.0 - 0.01 * sizes[late]) / 200, rel=0.01)
    assert book.achievable.ms_per_step < book.mean_ms


def test_what_happens_often_is_no_stall():
    book = ledger(replace(COARSE, pausing=0.2, pause=8.0).table(1))
    assert book.stalled == 0
    assert book.stalls[0] == 0


def test_padding_of_one_bucket_is_not_identifiable_and_no_zero():
    rows = [step(1 + i % 8, 8, 5.0 * i, dur_ns=5 * MS) for i in range(400)]
    report = report_of(summarize(trace(rows)), "one bucket")
    assert report.ledger.padding.ms_per_step is None
    assert report.ledger.padding.ci95 is None
    assert report.ledger.achievable.ms_per_step == pytest.approx(5.0)
    text = render_text(report)
    assert "best achievable, and padding" in text
    assert "4 padding                         n/a" in text


def test_no_start_up_takes_less_time_than_none():
    # Three first executions faster than the one bucket that tells what a step takes.
    rows = [step(8, 8, 10.0 * i, dur_ns=5 * MS) for i in range(20)]
    rows += [step(n, n, 300.0 + n, dur_ns=(3 + n) * MS // 2) for n in (1, 2, 4)]
    book = report_of(summarize(trace(rows)), "few").ledger
    charges = [getattr(book, name).ms_per_step for name in NAMES]
    assert sum(charge or 0.0 for charge in charges) == pytest.approx(book.mean_ms)
    assert book.compile.ms_per_step >= 0
    assert book.achievable.ms_per_step <= book.mean_ms + 1e-9


def test_steps_without_a_time_are_said_to_be_missing():
    rows = [step(8, 8, 5.0 * i, dur_ns=5 * MS if i % 2 else None) for i in range(100)]
    told = report_of(summarize(trace(rows)), "half timed").not_identifiable
    assert any(one.startswith("What 50 of 100 steps took: they carry no time.") for one in told)
