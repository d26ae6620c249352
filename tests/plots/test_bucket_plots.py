import holoviews as hv
import pytest
from msgspec.structs import replace

from graphdiag import plots
from graphdiag.buckets.planner import Wishes
from graphdiag.plots.bars import MOST_BARS
from graphdiag.plots.bucket_costs import MOST_POINTS
from graphdiag.plots.picture import Words, plain
from tests.plots import answers
from tests.plots.pictures import axes, layer, rows

ALL = [plots.requested_sizes, plots.padding_by_size, plots.cost_by_size, plots.frontier]


def test_requested_sizes_of_the_practice_distribution():
    picture = plots.requested_sizes(answers.practice())
    solid = layer(picture, hv.Rectangles, "requested rows")
    orange = layer(picture, hv.Rectangles, "padded rows")
    assert len(solid) == len(orange) == 32
    nine, padded = rows(solid)[8], rows(orange)[8]
    assert (nine["x0"], nine["x1"], nine["y0"]) == (8.5, 9.5, 0)
    assert nine["y1"] == padded["y0"] == pytest.approx(29 / 8 * 9 / 16)
    assert padded["y1"] == pytest.approx(29 / 8)
    assert (nine["size"], nine["steps"], nine["bucket"]) == ("9", "3.6 %", "16")
    assert nine["padding"] == "77.8 % of requested"
    assert nine["share"] == "9.1 %"
    rulings = rows(layer(picture, hv.Segments, "captured now"))
    assert [one["x"] for one in rulings] == [1, 4, 8, 16, 32]
    assert [one["serves"] for one in rulings] == [
        "8.0 % of steps",
        "17.0 % of steps",
        "31.0 % of steps",
        "29.0 % of steps",
        "15.0 % of steps",
    ]
    triangles = rows(layer(picture, hv.Scatter, "recommended"))
    assert [one["x"] for one in triangles] == [5, 9, 16, 24, 32]
    shown = axes(picture)
    assert shown.x == "requested size (rows in a step)"
    assert shown.y == "share of steps in %"
    assert shown.labels == ["requested rows", "padded rows", "captured now", "recommended"]


def test_padding_by_size_adds_up():
    picture = plots.padding_by_size(answers.practice())
    bars = rows(layer(picture, hv.Rectangles, "padded rows"))
    assert sum(one["y1"] for one in bars) == pytest.approx(100)
    highest = max(bars, key=lambda one: one["y1"])
    assert (highest["size"], highest["bucket"]) == ("9", "16")
    assert axes(picture).y == "share of all padded rows in %"


def test_counts_of_steps_are_told_exactly():
    picture = plots.requested_sizes(answers.counted("3,1200\n4,50\n", (4,)))
    three = rows(layer(picture, hv.Rectangles, "requested rows"))[0]
    assert three["steps"] == "1,200 (96.0 %)"
    assert three["padding"] == "1,200 rows, 33.3 % of requested"
    assert three["share"] == "100 %"


def test_the_frontier_marks_the_sets_in_question():
    answer = answers.practice(Wishes(what_if=(8, 32)))
    picture = plots.frontier(answer)
    best = rows(layer(picture, hv.Scatter, "best of its count"))
    assert [one["graphs"] for one in best] == list(range(1, 33))
    now = rows(layer(picture, hv.Scatter, "now"))[0]
    assert now["graphs"] == 5
    assert now["cost"] == pytest.approx(28.02, abs=0.01)
    assert now["padding"] == "28.0 %"
    assert rows(layer(picture, hv.Scatter, "recommended"))[0]["cost"] < now["cost"]
    assert rows(layer(picture, hv.Scatter, "what if"))[0]["graphs"] == 2
    assert rows(layer(picture, hv.Scatter, "knee"))[0]["graphs"] == answer.knee
    assert axes(picture).x == "captured graphs"
    assert axes(picture).y == "padding in % of requested rows"


def test_cost_by_size_shows_where_eager_would_win():
    answer = answers.timed()
    picture = plots.cost_by_size(answer)
    points = rows(layer(picture, hv.Scatter))
    nine = points[8]
    assert (nine["bucket"], nine["replay"], nine["padding"]) == ("16", "6.27 ms", "1.68 ms")
    assert (nine["eager"], nine["net"]) == ("5.34 ms", "-0.93 ms")
    losing = rows(layer(picture, hv.Scatter, "eager would win"))
    assert 9 in {one["size"] for one in losing}
    assert {8, 16}.isdisjoint(one["size"] for one in losing)
    assert next(one for one in losing if one["size"] == 9)["net"] == "0.93 ms"
    shown = axes(picture)
    assert shown.y == "step time in ms"
    assert shown.x == "requested size (requests in a step)"
    assert shown.labels == ["padded rows", "replay now", "eager", "eager would win"]
    assert axes(plots.frontier(answer)).y == "mean step time in ms"


@pytest.mark.parametrize(
    ("plot", "words"),
    [
        (plots.padding_by_size, "give them as --current"),
        (plots.cost_by_size, "record the engine with graphdiag record"),
    ],
)
def test_what_was_not_recorded_is_said_in_words(plot, words):
    picture = plot(answers.counted("3,5\n4,6\n"))
    assert isinstance(picture, hv.Div)
    assert words in picture.data


def test_without_captured_sizes_the_histogram_stands_alone():
    picture = plots.requested_sizes(answers.counted("3,5\n4,6\n"))
    bars = rows(layer(picture, hv.Rectangles, "steps"))
    assert [one["y1"] for one in bars] == [5, 6]
    assert "bucket" not in bars[0]


def test_no_padding_is_said_in_words():
    picture = plots.padding_by_size(answers.counted("3,5\n4,6\n", (3, 4)))
    assert "No row was padded" in picture.data


def test_no_set_fits_is_said_in_words():
    answer = answers.practice(Wishes(max_graphs=1, keep=(1, 32)))
    assert answer.frontier == []
    assert "No set of sizes fits" in plots.frontier(answer).data


@pytest.mark.parametrize(
    "answer",
    [
        answers.counted("7,5\n", (8,)),
        answers.counted("7,5\n"),
        answers.counted("1,1\n1000000000,1\n", (8, 1_000_000_000)),
        answers.counted("4,1\n600,8\n", (8,)),
    ],
    ids=["one size", "one size, no captured sizes", "far apart", "above the largest"],
)
@pytest.mark.parametrize("plot", ALL)
def test_odd_traffic_is_drawn(plot, answer):
    picture = plot(answer)
    if not isinstance(picture, hv.Div):
        assert hv.render(picture, backend="bokeh").renderers


def test_many_sizes_stay_light():
    answer = answers.timed()
    one = answer.sizes[8]
    many = [replace(one, requested=size, bucket=16_384) for size in range(1, 16_385)]
    answer = replace(answer, sizes=many, steps=float(len(many)))
    picture = plots.requested_sizes(answer)
    assert len(layer(picture, hv.Rectangles, "requested rows")) <= MOST_BARS
    points = rows(layer(plots.cost_by_size(answer), hv.Scatter))
    assert len(points) <= MOST_POINTS
    assert (points[0]["size"], points[-1]["size"]) == (1, 16_384)


def test_words_of_a_trace_are_no_tex_and_no_markup():
    assert plain(r"$$\alpha$$ \[x\]") == "$ $/alpha$ $ /[x/]"
    assert plain("a\x1bb\n" + "c" * 100) == "a�b�" + "c" * 55 + "…"
    assert "<b>" not in Words("<b>bold</b>").html
