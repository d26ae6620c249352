"""Pairs of runs with known changes: every term comes back, and the right one is blamed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiag.comparison.change import Timed, measure_change
from graphdiag.comparison.decomposition import TERMS
from graphdiag.comparison.sentences import verdict
from graphdiag.ledger import ledger
from graphdiag.steptable import CAPTURE, EAGER, FALLBACK, REPLAY, START_UP, UNKNOWN, StepTable
from tests.pairs import Run, true_terms

SEEDS = 100
BASE = Run()
COARSE = (1, 8, 32, 64)
CAUSES = {
    "compile": (replace(BASE, cold=60), "compile"),
    "shapes": (replace(BASE, recompiling=0.01), "shapes"),
    "fallback": (replace(BASE, fallback_share=0.2), "fallback"),
    "padding": (replace(BASE, buckets=COARSE), "padding"),
    "other traffic": (replace(BASE, load=24.0), None),
    "padding and fallback": (replace(BASE, buckets=COARSE, fallback_share=0.1), "padding"),
    "other traffic and padding": (replace(BASE, buckets=COARSE, load=15.0), "padding"),
    "graphs off": (replace(BASE, buckets=()), None),
    "padding and pauses": (replace(BASE, buckets=COARSE, pausing=0.01), None),
}


def timed(run: Run, seed: int) -> Timed:
    return Timed(run.table(seed), {"decode": "full" if run.buckets else None})


@pytest.mark.parametrize("cause", CAUSES)
def test_every_term_is_recovered_and_the_right_case_named(cause):
    candidate, case = CAUSES[cause]
    covered = named = 0
    for seed in range(SEEDS):
        seeds = (1000 + seed, 5000 + seed)
        change = measure_change(timed(BASE, seeds[0]), timed(candidate, seeds[1]))
        truth = true_terms(BASE, candidate, seeds)
        assert sum(term.value for term in change.terms.values()) == pytest.approx(
            change.delta.value, rel=1e-9, abs=1e-3
        )
        covered += all(
            term.ci95[0] - 1 <= truth[name] <= term.ci95[1] + 1
            for name, term in change.terms.items()
        )
        named += verdict(change, change).case == case
    assert covered >= 0.90 * SEEDS
    assert named >= 0.98 * SEEDS


def test_two_runs_of_the_same_thing_do_not_differ():
    told = [
        verdict(change, change)
        for seed in range(SEEDS)
        if (change := measure_change(timed(BASE, 1000 + seed), timed(BASE, 5000 + seed)))
    ]
    none = sum("No difference" in one.sentence for one in told)
    assert none >= 0.95 * SEEDS
    assert all(one.case is None for one in told if "No difference" in one.sentence)


def test_the_same_work_at_another_speed_is_residual():
    slower = replace(BASE, base_ns=4_400_000.0)
    change = measure_change(timed(BASE, 1), timed(slower, 2))
    low, high = change.terms["residual"].ci95
    assert low < 400_000 < high
    assert change.matched.ci95[0] < 400_000 < change.matched.ci95[1]
    assert "the same work running slower" in verdict(change, change).sentence


def test_another_kind_of_graph_is_launch_saving():
    slower = replace(BASE, base_ns=4_400_000.0)
    piecewise = Timed(slower.table(2), {"decode": "piecewise"})
    change = measure_change(timed(BASE, 1), piecewise)
    assert change.terms["launch_saving"].ci95[0] > 0
    assert change.terms["residual"].value == pytest.approx(0, abs=1.0)


def test_longer_context_is_other_traffic():
    short = replace(BASE, token_ns=40.0, context=400)
    change = measure_change(timed(short, 1), timed(replace(short, context=600), 2))
    assert verdict(change, change).sentence.count("other traffic") == 1
    low, high = change.terms["traffic_mix"].ci95
    assert low < 40.0 * 200 * BASE.load < high
    assert not change.terms["residual"].is_real


def test_one_bucket_alone_takes_the_cost_of_a_row_from_the_other_run():
    eager, replayed = replace(BASE, buckets=()), replace(BASE, buckets=(64,))
    change = measure_change(timed(eager, 1), timed(replayed, 2))
    truth = true_terms(eager, replayed, (1, 2))
    assert change.terms["padding"].value == pytest.approx(truth["padding"], rel=0.1)
    assert change.terms["launch_saving"].value == pytest.approx(-700_000, rel=0.1)
    assert not change.candidate.unpriced_padded


def test_one_bucket_in_both_says_nothing_of_padding():
    one = replace(BASE, buckets=(64,))
    change = measure_change(timed(one, 1), timed(one, 2))
    assert change.terms["padding"].value == 0
    assert change.candidate.unpriced_padded > 0


def test_too_few_moments_give_no_interval():
    table = BASE.table(3)
    short = replace(
        table,
        **{
            name: getattr(table, name).sum(axis=0, keepdims=True)
            for name in ("steps", "time", "compiling", "tokens", "context", "again")
        },
    )
    change = measure_change(Timed(short, {}), timed(BASE, 4))
    assert change.delta.ci95 is None
    assert all(term.ci95 is None for term in change.terms.values())


# --- what holds whatever the steps are ---------------------------------------------------------

STALLING = (REPLAY, FALLBACK, EAGER)
roles = st.sampled_from([REPLAY, FALLBACK, EAGER, CAPTURE, START_UP, UNKNOWN])


@st.composite
def tables(draw):
    count = draw(st.integers(1, 8))
    role = np.array([draw(roles) for _ in range(count)])
    requested = np.array([draw(st.integers(0, 40)) for _ in range(count)])
    bucket = np.where(role == REPLAY, requested + draw(st.integers(0, 9)), 0)
    bucket[(role == REPLAY) & (bucket == 0)] = 1
    slices = draw(st.integers(1, 3))
    amounts = st.integers(0, 10**8).map(float)
    steps = np.array([[float(draw(st.integers(0, 5))) for _ in role] for _ in range(slices)])
    steps[0, 0] = max(steps[0, 0], 1.0)
    time = np.array([[draw(amounts) for _ in role] for _ in range(slices)]) * (steps > 0)
    phases = ("decode", "prefill")
    return StepTable(
        phases=phases,
        phase=np.array([draw(st.integers(0, 1)) for _ in role]),
        requested=requested,
        bucket=bucket,
        role=role,
        stalled=np.array([draw(st.booleans()) for _ in role]) & np.isin(role, STALLING),
        steps=steps,
        time=time,
        compiling=time * draw(st.sampled_from([0.0, 0.5])),
        tokens=steps,
        context=steps * 0,
        again=steps * draw(st.sampled_from([0.0, 3.0])),
    )


@settings(deadline=None, max_examples=300)
@given(tables())
def test_the_ledger_charges_every_nanosecond_once(table):
    book = ledger(table)
    assert book.mean * book.total_steps == pytest.approx(table.time.sum(), rel=1e-9, abs=1.0)
    assert np.isfinite(book.ideal).all()


@settings(deadline=None, max_examples=300)
@given(tables(), tables())
def test_terms_add_up_to_the_change(base, candidate):
    change = measure_change(Timed(base, {}), Timed(candidate, {"decode": "full"}))
    assert set(change.terms) == set(TERMS)
    total = sum(term.value for term in change.terms.values())
    assert total == pytest.approx(change.delta.value, rel=1e-9, abs=1.0)
    means = [table.time.sum() / table.steps.sum() for table in (base, candidate)]
    assert change.delta.value == pytest.approx(means[1] - means[0], rel=1e-9, abs=1.0)
    if change.per_token is not None:
        assert sum(change.per_token_terms.values()) == pytest.approx(
            change.per_token.value, rel=1e-9, abs=1.0
        )
