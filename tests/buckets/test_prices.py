import numpy as np
import pytest

from graphdiag.buckets.prices import RowPrices, measure_prices
from graphdiag.steptable import step_table
from tests.buckets.making import (
    LADDER,
    ROW_MS,
    SAVED_MS,
    engine_rows,
    graphs_off_rows,
    replay_ms,
    summary,
)
from tests.build import MS

SIZES = [*LADDER] * 20


def measured(rows, baseline=None, **more):
    off = None if baseline is None else step_table(baseline)
    return measure_prices(step_table(summary(rows)), off, **more)


def test_a_replay_costs_what_its_bucket_took():
    prices = measured(engine_rows([*SIZES, *[9] * 40]))
    assert prices.curve.slope / MS == pytest.approx(ROW_MS)
    wanted = [replay_ms(rows) for rows in (1, 9, 16, 40)]
    assert prices.replay(np.array([1.0, 9, 16, 40])) / MS == pytest.approx(wanted)
    assert len(prices.saved) == 0
    assert prices.saving(np.array([8.0])).tolist() == [0]


def test_steps_that_stalled_move_no_price():
    rows = engine_rows([*SIZES, *[9] * 40, *[40] * 60])
    prices = measured(rows)
    for row in rows[20::35]:
        row["dur_ns"] *= 50
    stalled = measured(rows)
    assert stalled.curve.slope == pytest.approx(prices.curve.slope)
    assert stalled.saved.tolist() == pytest.approx(prices.saved.tolist())


def test_what_eager_costs_comes_from_steps_that_fell_back():
    prices = measured(engine_rows([*SIZES, *[40] * 20, *[50] * 20]))
    assert prices.saved_sizes.tolist() == [40, 50]
    assert prices.saving(np.array([8.0, 45, 60])) / MS == pytest.approx([SAVED_MS] * 3)
    assert prices.eager(np.array([8.0]))[0] / MS == pytest.approx(replay_ms(8) + SAVED_MS)


def test_what_eager_costs_comes_from_a_baseline_with_graphs_off():
    # Start-up is the first hundred steps where nothing is captured; the rest is steady.
    baseline = summary(graphs_off_rows([8] * 150 + [9] * 40))
    prices = measured(engine_rows(SIZES), baseline)
    assert prices.saved_sizes.tolist() == [8, 9]
    assert prices.saving(np.array([8.0, 9])) / MS == pytest.approx([SAVED_MS] * 2)


def test_a_baseline_of_a_phase_that_never_replays_says_nothing():
    baseline = summary(graphs_off_rows([8] * 300, phase="prefill"))
    assert len(measured(engine_rows(SIZES), baseline).saved) == 0


def phases(decode_ms, mixed_ms, noise=0.0, seed=0):
    """Steps of two phases that share a curve and differ by an offset, unevenly over the sizes."""
    random = np.random.default_rng(seed)
    rows = []
    for phase, base, sizes in (
        ("decode", decode_ms, [1, 4, 8] * 60 + [16, 32] * 5),
        ("mixed", mixed_ms, [16, 32] * 60 + [4, 8] * 5),
    ):
        for row in engine_rows(sizes, phase=phase):
            ms = base + ROW_MS * row["bucket"] + noise * random.standard_normal()
            rows.append({**row, "dur_ns": round(ms * MS)})
    clock = 0
    random.shuffle(rows)
    for row in rows:
        row["t_ns"] = rows[0]["t_ns"] + clock
        clock += row["dur_ns"]
    return rows


def test_phases_share_a_curve_whatever_their_offsets():
    prices = measured(phases(3.0, 9.0))
    # Without offsets the curve would jump by 6 ms between the sizes of the one and of the other.
    assert prices.curve.slope / MS == pytest.approx(ROW_MS, rel=1e-4)
    steps = np.diff(prices.curve.times) / np.diff(prices.curve.sizes) / MS
    assert steps == pytest.approx([ROW_MS] * 4, rel=1e-3)


def test_intervals_of_the_slope_hold_the_truth():
    inside = 0
    random = np.random.default_rng(7)
    for seed in range(20):
        sizes = random.choice([2, 5, 9, 20], size=800)
        prices = measured(engine_rows(sizes, noise_ms=1.0, seed=seed))
        low, high = prices.slope_ci95
        inside += low <= ROW_MS * MS <= high
    assert inside >= 17  # of 20, where 95 % are asked for


def test_too_little_time_gives_no_interval():
    rows = engine_rows([*LADDER] * 3)
    at_once = [{**row, "t_ns": rows[0]["t_ns"]} for row in rows]
    assert measured(at_once).slope_ci95 is None
    assert measured(engine_rows([*SIZES]), resample=False).slope_ci95 is None


def test_no_times_or_one_bucket_give_no_prices():
    assert measured([{**row, "dur_ns": None} for row in engine_rows(SIZES)]) is None
    assert measured(engine_rows([9, 10, 11] * 30)) is None
    assert measured(graphs_off_rows([9] * 30)) is None


def test_where_rows_are_free_fewer_are_still_better():
    rows = [{**row, "dur_ns": 5 * MS} for row in engine_rows(SIZES)]
    prices = measured(rows)
    assert prices.replay(np.array([9.0])) < prices.replay(np.array([16.0]))
    assert prices.replay(np.array([16.0])) - 5 * MS < 1  # ns


def test_rows_are_what_a_histogram_can_tell():
    assert RowPrices().replay(np.array([16.0])) == [16]
    assert RowPrices().eager(np.array([9.0])) == [18]
