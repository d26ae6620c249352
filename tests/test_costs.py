import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.costs import measure_costs
from graphdiag.curves import fit_curve
from graphdiag.diagnosis import report_of
from graphdiag.summary import summarize
from tests.build import MS, START_NS, step, trace

BUCKETS = (1, 4, 8, 16, 32)
BASE_MS, SLOPE_MS, EAGER_MS = 5.0, 0.24, 2.5


def replay_ms(rows: float) -> float:
    return BASE_MS + SLOPE_MS * rows


def recorded(requested, *, noise=0.0, seed=0, phase="decode", above=EAGER_MS):
    """Steps one after the other: replayed up to 32 rows, eager and slower by ``above`` beyond."""
    random = np.random.default_rng(seed)
    rows, clock = [], 0.0
    for size in requested:
        bucket = next((b for b in BUCKETS if b >= size), None)
        ms = replay_ms(size) + above if bucket is None else replay_ms(bucket)
        ms += noise * random.standard_normal()
        reason = "over_max" if bucket is None else None
        rows.append(step(size, bucket, clock, dur_ns=round(ms * MS), reason=reason, phase=phase))
        clock += ms
    return rows


def test_padding_is_priced_with_the_measured_slope():
    # Every bucket runs once more than it pads, so that the first (warm) run of each is not missed.
    sizes = [1, 4, 8, 16, 32] * 20 + [9] * 40 + [3] * 10
    model = measure_costs(summarize(trace(recorded(sizes))))
    assert model.curves["decode"].slope / MS == pytest.approx(SLOPE_MS)
    padded_rows = 40 * 7 + 10 * 1
    assert model.prices.padding / MS == pytest.approx(padded_rows * SLOPE_MS)
    assert model.prices.fallback is None  # nothing fell back: nothing to price
    assert model.prices.unpriced_padded == 0


def test_the_seeds_worked_example_pads_seven_rows_for_1_68_ms():
    model = measure_costs(summarize(trace(recorded([*BUCKETS] * 3 + [9] * 10))))
    assert model.prices.padding / MS / 10 == pytest.approx(1.68)


def test_fallback_is_priced_against_replay_at_the_same_size():
    sizes = [1, 4, 8, 16, 32] * 20 + [40] * 30
    model = measure_costs(summarize(trace(recorded(sizes))))
    assert model.prices.fallback / MS == pytest.approx(30 * EAGER_MS)


def test_a_faster_eager_step_is_a_gain_not_a_cost():
    sizes = [1, 4, 8, 16, 32] * 20 + [40] * 30
    model = measure_costs(summarize(trace(recorded(sizes, above=-1.0))))
    assert model.prices.fallback / MS == pytest.approx(-30.0)


def test_intervals_hold_the_truth_under_noise():
    random = np.random.default_rng(7)
    inside_padding = inside_fallback = 0
    for seed in range(20):
        sizes = random.integers(1, 40, size=1500)
        rows = recorded(sizes, noise=0.3, seed=seed)
        model = measure_costs(summarize(trace(rows)))
        steady = rows  # the first run of each bucket is warm: 5 of 1500 steps
        padding = sum(
            SLOPE_MS * (r["bucket"] - r["requested"]) for r in steady if r["outcome"] == "padded"
        )
        fallback = EAGER_MS * sum(r["outcome"] == "fallback" for r in steady)
        low, high = (x / MS for x in model.padding_ci95)
        inside_padding += low <= padding <= high
        low, high = (x / MS for x in model.fallback_ci95)
        inside_fallback += low <= fallback <= high
    assert inside_padding >= 17
    assert inside_fallback >= 17


def test_a_few_steps_that_take_fifty_times_as_long_stay_out_of_the_prices():
    random = np.random.default_rng(11)
    rows = recorded(random.integers(1, 40, size=3000), noise=0.2, seed=1)
    clock = 0.0
    for row in rows:
        row["t_ns"] = START_NS + round(clock)
        row["dur_ns"] *= 50 if random.random() < 0.01 else 1
        clock += row["dur_ns"]
    summary = summarize(trace(rows))
    model = measure_costs(summary)
    (told,) = [one for one in report_of(summary, "").notes if "far longer than others" in one]
    assert told.endswith("of all step time, charged to no case.")
    low, high = model.rows["decode"].ci95
    assert low < SLOPE_MS * MS < high
    assert high - low < 0.1 * SLOPE_MS * MS
    padding = sum(
        SLOPE_MS * (r["bucket"] - r["requested"]) for r in rows if r["outcome"] == "padded"
    )
    low, high = (end / MS for end in model.padding_ci95)
    assert low < padding < high
    told = model.ledger
    assert 15 < told.stalled_steps < 45
    assert told.mean_ms == pytest.approx(sum(row["dur_ns"] for row in rows) / MS / 3000)
    parts = ("achievable", "compile", "shapes", "fallback", "padding", "stalls", "residual")
    assert sum(getattr(told, name).ms_per_step for name in parts) == pytest.approx(told.mean_ms)
    assert told.stalls.ms_per_step == pytest.approx(told.stalled_steps * 49 * 10 / 3000, rel=0.25)


def test_one_bucket_gives_no_price():
    model = measure_costs(summarize(trace(recorded([9, 10, 11] * 30))))
    assert model.prices.padding is None
    assert model.prices.unpriced_padded == 89  # all but the warm first
    assert model.padding_ci95 is None


def test_no_times_gives_no_price():
    rows = [{**row, "dur_ns": None} for row in recorded([1, 9, 40] * 30)]
    model = measure_costs(summarize(trace(rows)))
    assert model.mean_step_ns is None
    assert model.prices.padding is None
    assert model.prices.fallback is None
    assert model.prices.unpriced_fallback == 30


def test_phases_have_their_own_curves():
    decode = recorded([*BUCKETS] * 20 + [9] * 20)
    mixed = [
        {**row, "dur_ns": row["dur_ns"] * 2, "t_ns": row["t_ns"] + 10_000 * MS}
        for row in recorded([*BUCKETS] * 20 + [9] * 20, phase="mixed")
    ]
    model = measure_costs(summarize(trace(decode + mixed)))
    assert model.curves["decode"].slope / MS == pytest.approx(SLOPE_MS)
    assert model.curves["mixed"].slope / MS == pytest.approx(2 * SLOPE_MS)
    assert model.prices.padding / MS == pytest.approx(20 * 1.68 * 3)


def test_a_short_trace_has_prices_but_no_interval():
    rows = recorded([1, 4, 8, 16, 32, 9, 9, 9])
    same_time = [{**row, "t_ns": rows[0]["t_ns"]} for row in rows]
    model = measure_costs(summarize(trace(same_time)))
    assert model.padding_ci95 is None


@given(
    st.lists(
        st.tuples(st.integers(1, 2048), st.floats(0.1, 1e3), st.integers(1, 10_000)),
        min_size=2,
        max_size=30,
        unique_by=lambda point: point[0],
    )
)
def test_a_curve_is_monotone_and_never_negative(points):
    sizes, times, weights = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    curve = fit_curve(sizes, times, weights)
    at = curve.at(np.arange(0, 4096, 7, dtype=float))
    assert (np.diff(at) >= -1e-9).all()
    assert (at >= 0).all()
    assert times.min() - 1e-9 <= curve.times[0] <= curve.times[-1] <= times.max() + 1e-9


def test_two_sizes_are_the_least_a_curve_needs():
    assert fit_curve(np.array([4.0]), np.array([1.0]), np.array([1.0])) is None
