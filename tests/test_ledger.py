"""The ledger of one run, against an engine whose times are known."""

from dataclasses import replace

import pytest

from graphdiag.ledger import Outside, ledger
from graphdiag.steptable import REPLAY
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
