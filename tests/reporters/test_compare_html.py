import html
import re
from pathlib import Path

import pytest

from graphdiag import cli
from graphdiag.reporters import compare_html
from tests.build import event
from tests.plots import runs

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def shown(base: runs.Rows, candidate: runs.Rows) -> str:
    return html.unescape(compare_html.render(*runs.both(base, candidate)))


@pytest.fixture(scope="module")
def text():
    return shown(runs.service(late=False), runs.service())


def test_the_change_is_on_top_with_its_cards(text):
    assert "<h1>Verdict: " in text
    assert "No difference beyond noise: +3.33 ms" in text  # one compilation tells no rate
    cards = re.findall(r'class="card[^"]*">\s*<h2>([^<]*)</h2>', text)
    assert cards == ["All steps", "On equal traffic", "Steady"]
    assert re.findall(r"<dd>([^<]*)</dd>", text) == ["+3.33 ms", "+3.33 ms", "+3.35 ms"]
    assert "+3.333 ms shapes" in text


def test_both_are_beside_each_other_in_every_picture(text):
    titles = re.findall(r"<figcaption>\s*<h2>([^<]*)</h2>\s*<p>[^<]+</p>", text)
    assert titles == [
        "What the change is made of",
        "Where a step's time goes in both",
        "Step time over time",
        "Outcomes",
        "Requested sizes",
        "Cost by size",
    ]
    assert text.count('class="plot"') == 6


def test_the_same_configuration_is_said(text):
    assert "None on record: both ran with the same configuration." in text
    assert "The audit found nothing." in text


def test_differences_damage_and_what_they_do_to_artifacts_are_told():
    base, candidate = runs.service(60, late=False), runs.service(60, late=False)
    key = {"artifact": "region", "dur_ns": 10**9, "key": '{"rows": 8}', "cache": "hit"}
    changed = event("run", -4000.0, config={"engine": "vllm", "torch": "2.9.0"})
    told = {"engine": "vllm", "torch": "2.8.0", "damage": ["A part is missing."]}
    text = shown(
        [event("run", -4000.0, config=told), *base[1:]],
        [changed, event("compile", -3950.0, **key), *candidate[1:]],
    )
    assert re.search(r'class="text">torch</td>\s*<td class="text">2.8.0</td>', text)
    assert re.search(r'class="severity (error|warn|info)">', text)
    assert '<p class="warning">Base: A part is missing.</p>' in text


def test_the_command_writes_the_page_beside_the_comparison(tmp_path, capsys):
    target = tmp_path / "out.html"
    pair = [str(SAMPLES / f"{name}.parquet") for name in ("practice_eager", "practice")]
    assert cli.run(["compare", *pair, "--slo-itl-ms", "8", "--html", str(target)]) == 0
    assert capsys.readouterr().out.startswith("Verdict: The candidate is faster")
    text = html.unescape(target.read_text(encoding="utf-8"))
    assert "<h2>Has it succeeded?</h2>" in text
    assert len(text) < 5 << 20


def test_the_page_overwrites_neither_of_the_two(tmp_path, capsys):
    base, candidate = (tmp_path / f"{name}.parquet" for name in ("base", "candidate"))
    for path in (base, candidate):
        path.write_bytes((SAMPLES / "practice.parquet").read_bytes())
    for target in (base, candidate):
        assert cli.run(["compare", str(base), str(candidate), "--html", str(target)]) == 2
        assert "is the source itself" in capsys.readouterr().err
