import html
from pathlib import Path

from graphdiag import cli
from graphdiag.buckets.planner import Wishes
from graphdiag.reporters import buckets_html
from tests.plots import answers

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def test_the_page_says_what_the_other_reports_say():
    answer = answers.practice(Wishes(what_if=(8, 32)))
    text = html.unescape(buckets_html.render(answer))
    assert f"<h1>{answer.sentence}</h1>" in text
    assert "--cudagraph-capture-sizes 5 9 16 24 32" in text
    assert "Paste for SGLang" in text
    for title in ("The best single change", "What if", "Sets", "The best set of each count"):
        assert f"<h2>{title}</h2>" in text
    assert text.count('class="plot"') == 3
    assert text.count('class="empty"') == 4  # three for want of JavaScript, one of step times
    assert "Spread evenly over their sizes: 2-4, 5-8, 9-16, 17-32." in text
    assert len(text) < 5 << 20


def test_only_the_recorded_engine_s_flag_is_shown():
    answer = answers.practice(engine="sglang")
    text = buckets_html.render(answer)
    assert "--cuda-graph-bs" in text
    assert "--cudagraph-capture-sizes" not in text


def test_eager_is_explained_where_it_is_drawn():
    text = buckets_html.render(answers.timed())
    assert text.count('class="plot"') == 4
    assert "the dashed line the same step run eager" in text


def test_the_command_writes_the_page(tmp_path, capsys):
    target = tmp_path / "buckets.html"
    source = str(SAMPLES / "practice.csv")
    assert cli.run(["buckets", source, "--current", "1,4,8,16,32", "--html", str(target)]) == 0
    assert capsys.readouterr().out.startswith("Answer: ")
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
