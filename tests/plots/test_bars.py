import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.buckets.answer import SizeCost
from graphdiag.plots.bars import MOST_BARS, fits_log, gather


def size(requested: int, steps: float = 1.0, bucket: int | None = None) -> SizeCost:
    return SizeCost(
        requested=requested,
        steps=steps,
        bucket=bucket,
        padded_rows=None if bucket is None else bucket - requested,
        replay_ms=None,
        eager_ms=None,
        padded_ms=None,
        launch_saving_ms=None,
        net_ms=None,
    )


def test_few_sizes_have_a_bar_each():
    bars = gather([size(1, 8, 4), size(3, 2, 4), size(9, 5)], log=False)
    assert bars.first.tolist() == bars.last.tolist() == [1, 3, 9]
    assert bars.left.tolist() == [0.5, 2.5, 8.5]
    assert bars.right.tolist() == [1.5, 3.5, 9.5]
    assert bars.steps.tolist() == [8, 2, 5]
    assert bars.eager.tolist() == [0, 0, 5]
    assert bars.requested.tolist() == [8, 6, 0]
    assert bars.padded.tolist() == [24, 2, 0]
    assert bars.waste.tolist() == [0.75, 0.25, 0]
    assert bars.least.tolist() == bars.most.tolist() == [4, 4, 0]


def test_many_sizes_share_bars_of_one_width():
    bars = gather([size(n, 1, 16_384) for n in range(1, 16_385)], log=False)
    assert len(bars.first) <= MOST_BARS
    widths = bars.last - bars.first + 1
    assert set(widths[:-1].tolist()) == {69}
    assert bars.first[0] == 1
    assert bars.last[-1] == 16_384


@pytest.mark.parametrize("log", [False, True])
@given(
    counts=st.dictionaries(
        st.integers(1, 1 << 40), st.floats(0, 1e9), min_size=1, max_size=300
    ).filter(lambda found: sum(found.values()) > 0),
    bucket=st.integers(1, 1 << 40),
    most=st.integers(1, 50),
)
def test_bars_hold_every_step_and_every_row(log, counts, bucket, most):
    sizes = [size(n, counts[n], bucket if n <= bucket else None) for n in sorted(counts)]
    bars = gather(sizes, log=log, most=most)
    assert len(bars.first) <= most
    assert (bars.first <= bars.last).all()
    assert (bars.first[1:] > bars.last[:-1]).all()
    assert bars.steps.sum() == pytest.approx(sum(counts.values()))
    eager = [one.steps for one in sizes if one.bucket is None]
    assert bars.eager.sum() == pytest.approx(sum(eager))
    padded = [one.steps * (one.padded_rows or 0) for one in sizes]
    assert bars.padded.sum() == pytest.approx(sum(padded))
    assert ((bars.waste >= 0) & (bars.waste < 1)).all()
    covered = np.zeros(len(sizes), bool)
    for first, last in zip(bars.first.tolist(), bars.last.tolist(), strict=True):
        covered |= np.array([first <= one.requested <= last for one in sizes])
    assert covered.all()


def test_an_axis_is_logarithmic_where_a_linear_one_would_squeeze_the_steps():
    assert not fits_log([size(n) for n in range(1, 2001)])
    assert fits_log([*(size(n, 100) for n in range(1, 65)), size(8192)])
    assert not fits_log([size(n) for n in range(1, 33)])
    assert not fits_log([size(7)])
