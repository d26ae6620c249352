import holoviews as hv
import pytest
from msgspec.structs import replace

from graphdiag import plots
from graphdiag.plots import clock, palette
from graphdiag.plots.artifacts_served import MOST
from graphdiag.plots.step_ledger import signed
from tests.build import START_NS, event, step
from tests.plots import runs
from tests.plots.pictures import axes, layer, rows


@pytest.fixture(scope="module")
def told():
    return runs.all_of()


@pytest.fixture(scope="module")
def report(told):
    return told[0]


@pytest.fixture(scope="module")
def summary(told):
    return told[1]


def test_step_times_shade_start_up_and_mark_what_was_made(summary):
    picture = plots.step_times(summary)
    cold = rows(layer(picture, hv.Rectangles, "cold"))[0]
    assert cold["x0"] == pytest.approx(START_NS / 1e6 - 3900, abs=0.01)
    assert cold["x1"] == pytest.approx(START_NS / 1e6 - 910, abs=0.01)
    assert cold["cold"] == "0 steps, 22:13:16.1 to 22:13:19.0"
    again = rows(layer(picture, hv.Rectangles, "compilations"))[1]
    assert again["made"].startswith("1 in 2 s, 22:13:21.9")
    assert len(layer(picture, hv.Rectangles, "captures")) == 4
    eager = rows(layer(picture, hv.Scatter, "ran eager"))
    assert {one["mean"] for one in eager} == {"11 ms"}
    shown = axes(picture)
    assert shown.x == "time (UTC, 2023-11-14)"
    assert shown.y == "mean step time in ms"
    assert {"cold", "warm", "captures", "compilations", "replayed", "ran eager"} == {*shown.labels}


def test_a_line_of_step_times_breaks_where_no_step_ran(summary):
    line = layer(plots.step_times(summary), hv.Curve, "replayed").dframe()
    assert line["ms"].isna().sum() == 1  # the two seconds that a compilation took


def test_few_long_steps_make_the_axis_logarithmic():
    first = [step(8, 8, at, dur_ns=10**6) for at in range(0, 200, 2)]
    picture = plots.step_times(runs.summary([*first, step(8, 8, 300.0, dur_ns=10**9)]))
    figure = hv.render(picture, backend="bokeh")
    assert type(figure.y_scale).__name__ == "LogScale"
    assert figure.y_range.start > 0


def test_work_long_before_the_first_step_does_not_squeeze_the_steps():
    early = event("capture", -3_600_000.0, artifact="decode/8", size=8, dur_ns=10**6)
    picture = plots.step_times(runs.summary([early, *runs.service(60)]))
    start, end = hv.render(picture, backend="bokeh").x_range.start, START_NS / 1e6
    assert end - start < 3000


def test_outcomes_of_a_slice_are_a_hundred_percent(summary):
    picture = plots.outcomes_over_time(summary)
    highest: dict[float, float] = {}
    for box in picture:
        for one in rows(box):
            highest[one["x0"]] = max(highest.get(one["x0"], 0.0), one["y1"])
    assert list(highest.values()) == pytest.approx([100.0] * len(highest))
    first = rows(layer(picture, hv.Rectangles, "fallback: over_max"))[0]
    assert first["fate"] == "fallback: over_max"
    assert first["steps"].endswith(" %)")
    assert axes(picture).y == "share of steps in %"


def test_the_ledger_adds_up_to_the_mean(report):
    picture = plots.step_ledger(report)
    bars = [one for box in picture if isinstance(box, hv.Rectangles) for one in rows(box)]
    by_row = {round(one["y0"] + one["y1"]) // 2: one for one in bars}
    assert by_row[0]["x0"] == 0
    for row in range(5):
        assert by_row[-row - 1]["x0"] == pytest.approx(by_row[-row]["x1"])
    assert by_row[-6]["x1"] == pytest.approx(by_row[-5]["x1"])
    assert axes(picture).lanes == [
        "best achievable\n5.75 ms",
        "1 compile\n0 ms",
        "2 shapes\n+3.33 ms",
        "3 fallback\n+0.5 ms",
        "4 padding\n+0.25 ms",
        "unexplained\n0 ms",
        "mean step\n9.83 ms",
    ]


def test_less_than_a_microsecond_is_about_nothing_either_way():
    assert [signed(one) for one in (-2e-7, 2e-7, 1e-12, 0.25, -0.25)] == [
        *("about 0", "about 0", "0", "+0.25", "-0.25"),
    ]


def test_artifacts_show_memory_that_serves_nothing(report):
    picture = plots.artifacts_served(report)
    assert axes(picture).lanes == ["decode/8", "decode/16", "decode/32", "1 that served none"]
    served = rows(layer(picture, hv.Rectangles, "steps served"))
    assert [one["x1"] for one in served] == [40.0, 40.0, 20.0, 0.0]
    held = rows(layer(picture, hv.Rectangles, "graph memory"))
    assert [round(one["x1"], 1) for one in held] == [6.7, 13.3, 26.7, 53.3]
    assert "64 MiB (53.3 %)" in held[-1].values()


def test_many_artifacts_share_a_row(report):
    one = report.artifacts[0]
    many = [replace(one, artifact=f"decode/{n}", served=1000 - n) for n in range(300)]
    lanes = axes(plots.artifacts_served(replace(report, artifacts=many))).lanes
    assert len(lanes) == MOST + 1
    assert lanes[-1] == f"{300 - MOST} others"


def test_gpu_rows_say_busy_gap_and_launches(report):
    times = plots.gpu_times(report)
    assert axes(times).lanes == ["decode: host\n2 ms", "decode: GPU\n3.17 ms"]
    gap = rows(layer(times, hv.Rectangles, "GPU gap"))[0]
    assert (gap["x0"], gap["x1"]) == pytest.approx((3.0, 3.0 + 1 / 6))
    launches = plots.gpu_launches(report)
    assert axes(launches).lanes == ["decode: launches\n70.8", "decode: kernels\n420"]


def test_sizes_served_show_what_fell_back(report):
    picture = plots.sizes_served(report)
    eager = rows(layer(picture, hv.Rectangles, "ran eager"))
    assert [one["y1"] - one["y0"] for one in eager] == [0, 0, 0, 0, 0, 100]
    assert eager[-1]["bucket"] == "none, eager"
    rulings = rows(layer(picture, hv.Segments, "captured now"))
    assert [(one["x"], one["serves"]) for one in rulings] == [
        (8, "33.3 % of steps"),
        (16, "33.3 % of steps"),
        (32, "16.7 % of steps"),
    ]
    assert axes(picture).x == "requested size (requests in a step)"


def test_the_plan_beside_a_report_recommends_what_the_report_recommends(told):
    report, _, plan = told
    assert plan is not None
    assert plan.recommended is not None
    assert report.recommendation is not None
    assert plan.recommended.buckets == report.recommendation.buckets
    assert plan.what_if is None


@pytest.mark.parametrize(
    ("columns", "plot", "words"),
    [
        (("t_ns",), "step_times", "does not say when each step ran"),
        (("t_ns",), "outcomes_over_time", "does not say when each step ran"),
        (("dur_ns",), "step_times", "The time of a step was not recorded"),
        (("dur_ns",), "step_ledger", "The time of a step was not recorded"),
        (("artifact",), "artifacts_served", "No artifact has a name"),
        (("requested", "bucket", "outcome"), "sizes_served", "What a step asked for"),
        (("bucket", "outcome"), "sizes_served", "No step is known to be one that graphs"),
        (("host_ns", "blocked_ns", "gpu_ns"), "gpu_times", "open a profiler window"),
        (("gpu_ns",), "gpu_launches", "Launches were not counted"),
    ],
)
def test_what_was_not_recorded_is_said_with_how_to_record_it(columns, plot, words):
    report, summary, _ = runs.all_of(runs.without(runs.service(60), *columns))
    over_time = plot in ("step_times", "outcomes_over_time")
    picture = getattr(plots, plot)(summary if over_time else report)
    assert isinstance(picture, hv.Div)
    assert words in picture.data
    assert "record" in picture.data or "profile" in picture.data


def test_no_step_is_no_clock():
    only = runs.summary([event("run", config={"engine": "mine"})])
    assert "holds no step" in plots.step_times(only).data
    assert "holds no step" in plots.outcomes_over_time(only).data


def test_one_step_is_drawn():
    report, summary, plan = runs.all_of([step(8, 8, dur_ns=10**6)])
    assert plan is not None
    for picture in (
        *(plots.step_times(summary), plots.outcomes_over_time(summary), plots.step_ledger(report)),
        *(plots.artifacts_served(report), plots.sizes_served(report)),
        *(plots.cost_by_size(plan), plots.frontier(plan)),
    ):
        if not isinstance(picture, hv.Div):
            hv.render(picture, backend="bokeh")


def test_a_stretch_of_time_is_written_with_the_digits_that_tell_its_ends_apart():
    assert clock.stretch(START_NS, START_NS + 60 * 10**9) == "22:13:20 to 22:14:20"
    assert clock.stretch(START_NS, START_NS + 2_000_000) == "22:13:20.0000 to 22:13:20.0020"
    assert clock.label(START_NS, START_NS + 86_400 * 10**9) == "time (UTC, from 2023-11-14)"


def test_colours_that_stand_beside_each_other_differ():
    fates = [palette.EXACT, palette.PADDING, *palette.FALLBACK, palette.CAPTURED, palette.UNKNOWN]
    assert len({*fates}) == len(fates)
    assert len({palette.ACHIEVABLE, *palette.CASES.values(), palette.UNEXPLAINED}) == 6
