import holoviews as hv
import pytest

from graphdiag import plots
from tests.build import step
from tests.plots import runs
from tests.plots.pictures import axes, layer, rows


@pytest.fixture(scope="module")
def told():
    return runs.both(runs.service(late=False), runs.service())


def test_the_terms_lead_from_base_to_candidate(told):
    found = told[0]
    picture = plots.change_terms(found)
    slower = rows(layer(picture, hv.Rectangles, "slower"))
    assert len(slower) == 1
    assert slower[0]["x0"] == pytest.approx(found.base_ms_per_step)
    assert slower[0]["x1"] == pytest.approx(found.candidate_ms_per_step)
    lanes = axes(picture).lanes
    assert lanes[0] == "base\n6.5 ms"
    assert lanes[-1] == "candidate\n9.83 ms"
    assert "shapes\n+3.33 ms" in lanes


def test_ledgers_stand_one_above_the_other(told):
    picture = plots.ledgers_of_both(told[0])
    base, candidate = (rows(layer(picture, hv.Rectangles, name)) for name in ("base", "candidate"))
    assert base[2]["x1"] == 0
    assert candidate[2]["x1"] == pytest.approx(2000 / 600)
    assert all(b["y0"] > c["y1"] for b, c in zip(base, candidate, strict=True))


def test_both_are_drawn_on_one_axis(told):
    found, base, candidate = told
    shares = plots.sizes_of_both(found)
    points = [rows(one) for one in shares if isinstance(one, hv.Scatter)]
    assert [one["steps"] for one in points[0]] == ["100 (16.7 %)"] * 6
    assert [one["size"] for one in points[1]] == list(runs.SIZES)
    costs = rows(layer(plots.costs_of_both(found), hv.Scatter, "candidate"))
    assert [one["bucket"] for one in costs] == ["8", "8", "16", "16", "32", "none"]
    times = plots.step_times_of_both(base, candidate)
    since = [layer(times, hv.Scatter, name).dframe()["since"] for name in ("base", "candidate")]
    assert [one.min() < 0.1 for one in since] == [True, True]
    assert since[1].max() > since[0].max() + 1.9
    fates = plots.outcomes_of_both(base, candidate)
    assert axes(fates).lanes == ["base\n600 steps", "candidate\n600 steps"]
    exact = rows(layer(fates, hv.Rectangles, "exact"))
    assert [one["x1"] for one in exact] == pytest.approx([100 / 3] * 2)


def test_reasons_of_both_have_one_colour_each():
    _, base, candidate = runs.both(
        runs.service(reasons=("over_max",), late=False),
        runs.service(reasons=("lora", "over_max", "lora"), late=False),
    )
    picture = plots.outcomes_of_both(base, candidate)
    over = layer(picture, hv.Rectangles, "fallback: over_max")
    lora = layer(picture, hv.Rectangles, "fallback: lora")
    assert (len(over), len(lora)) == (2, 1)


def test_what_one_of_the_two_does_not_record_is_said():
    untimed = runs.without(runs.service(60), "dur_ns")
    found, base, candidate = runs.both(untimed, runs.service(60))
    for picture, words in (
        (plots.change_terms(found), "cannot be split"),
        (plots.ledgers_of_both(found), "One of the two has no step times"),
        (plots.step_times_of_both(base, candidate), "One of the two has no step times"),
    ):
        assert isinstance(picture, hv.Div)
        assert words in picture.data
        assert "graphdiag record" in picture.data
    assert not isinstance(plots.costs_of_both(found), hv.Div)


def test_sizes_that_nobody_recorded_are_said():
    rows_ = [step(None, None, at, outcome=None, dur_ns=10**6) for at in range(20)]
    found, _, _ = runs.both(rows_, rows_)
    assert "asked for was not recorded" in plots.sizes_of_both(found).data
    assert "asked for was not recorded" in plots.costs_of_both(found).data
