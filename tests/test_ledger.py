"""The ledger of one run, against an engine whose times are known."""

from dataclasses import replace

import pytest

from graphdiag.diagnosis import report_of
from graphdiag.ledger import Outside, ledger
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


def test_work_between_steps_is_charged_once():
    run = replace(COARSE, cold=20)
    table = run.table(1)
    inside = ledger(table).compile
    assert ledger(table, work=Outside(start_up=inside / 2)).compile == inside
    assert ledger(table, work=Outside(start_up=inside + 5e6)).compile == pytest.approx(inside + 5e6)


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
    assert told.compile.ms_per_step == pytest.approx(100)  # the steps do not say how long of it
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


def test_what_happens_often_is_no_stall():
    book = ledger(replace(COARSE, pausing=0.2, pause=8.0).table(1))
    assert book.stalled == 0
    assert book.stalls[0] == 0
