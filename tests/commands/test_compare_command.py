from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import MS, event, write
from tests.comparison.runs import Rows, chapter_one, replayed, steps
from tests.conftest import ROOT

Run = Callable[..., tuple[int, str, str]]
SAMPLES = ROOT / "sample_traces"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    base, candidate = chapter_one(120)
    return str(write(base, folder / "base.parquet")), str(write(candidate, folder / "new.parquet"))


def test_prints_text_json_and_markdown(run: Run, pair: tuple[str, str]) -> None:
    code, out, err = run("compare", *pair)
    assert (code, err) == (0, "")
    assert out.startswith("Verdict: The candidate is slower by 0.5 ms")
    assert max(map(len, out.splitlines())) <= 80
    code, out, err = run("compare", *pair, "--json")
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (code, err) == (0, "")
    assert found["delta_ms_per_step"] == pytest.approx(0.5)
    assert found["verdict"]["case"] == "padding"
    assert [found["base_source"], found["candidate_source"]] == list(pair)
    assert found["objectives"] is None
    code, out, err = run("compare", *pair, "--markdown")
    assert (code, err) == (0, "")
    assert out.startswith("### graphdiag compare\n\n**Verdict:** The candidate is slower by 0.5 ms")


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_fits_the_page(
    run: Run, pair: tuple[str, str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run("compare", *pair, "--slo-itl-ms", "6")
    assert max(map(len, out.splitlines())) <= columns


def test_an_objective_is_answered(run: Run, pair: tuple[str, str]) -> None:
    code, out, _ = run("compare", *pair, "--slo-itl-ms", "5.5", "--slo-ttft-ms", "200", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["objectives"]["succeeded"] is False
    assert told["objectives"]["slo_ttft_ms"] == 200
    assert any("first token" in sentence for sentence in told["not_identifiable"])


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_an_objective_is_a_time(run: Run, pair: tuple[str, str], value: str) -> None:
    code, out, err = run("compare", *pair, "--slo-itl-ms", value)
    assert (code, out) == (2, "")
    assert "Invalid value for '--slo-itl-ms'" in err


def test_writes_to_a_file_and_never_over_a_source(
    run: Run, pair: tuple[str, str], tmp_path: Path
) -> None:
    target = tmp_path / "out.md"
    assert run("compare", *pair, "--markdown", "-o", str(target)) == (0, "", "")
    assert target.read_text(encoding="utf-8").startswith("### graphdiag compare")
    for source in pair:
        code, _, err = run("compare", *pair, "-o", source)
        assert code == 2
        assert "is the source itself" in err


def test_the_same_file_twice_is_no_difference(run: Run, pair: tuple[str, str]) -> None:
    code, out, _ = run("compare", pair[0], pair[0])
    assert code == 0
    assert out.startswith("Verdict: No difference beyond noise: 0 ms")
    assert "Base and candidate are the same source." in out


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_file_is_one_sentence(run: Run, pair: tuple[str, str], which: int) -> None:
    given = [*pair]
    given[which] = "nowhere.parquet"
    code, out, err = run("compare", *given)
    assert (code, out) == (2, "")
    assert err.startswith("graphdiag: nowhere.parquet: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a"], "Missing argument 'CANDIDATE'"),
        (["a", ""], "an empty string names no file"),
        (["a", "b", "--json", "--markdown"], "Give --json or --markdown, not both."),
        (["-", "-"], "standard input can be read once"),
    ],
)
def test_usage_errors(run: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = run("compare", *arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_a_log_against_a_trace_gives_what_both_tell(run: Run, pair: tuple[str, str], shared: Path):
    log = shared / "cases" / "vllm_truncated_max" / "server.log"
    for given in ((str(log), pair[1]), (pair[0], str(log)), (str(log), str(log))):
        code, out, err = run("compare", *given, "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert found["terms"] is None
        assert found["verdict"]["sentence"].startswith("No verdict on time, because ")
        assert found["not_identifiable"]


def test_logs_of_one_engine_are_held_by_their_rates(run: Run, shared: Path) -> None:
    logs = [str(shared / "cases" / name / "server.log") for name in ("vllm_healthy",)]
    worse = str(shared / "cases" / "vllm_truncated_max" / "server.log")
    code, out, _ = run("compare", logs[0], worse)
    assert code == 0
    assert "fallback in %" in out
    assert "capture_sizes" in out


def test_the_practice_against_eager_is_as_the_formulas_say(run: Run) -> None:
    """0.75 ms of launches against 0.24 ms for each padded row."""
    sources = [str(SAMPLES / f"{name}.parquet") for name in ("practice_eager", "practice")]
    _, out, _ = run("compare", *sources, "--json")
    found = json.loads(out)
    rows = [row for row in found["candidate"]["sizes"] if row["bucket"]]
    padded = sum((row["bucket"] - row["requested"]) * row["steps"] for row in rows)
    padding = 0.24 * padded / found["candidate"]["steps"]
    terms, ends = found["terms"], found["terms_ci95"]
    assert ends["padding"][0] < padding < ends["padding"][1]
    assert ends["launch_saving"][0] < -0.75 < ends["launch_saving"][1]
    assert terms["traffic_mix"] == pytest.approx(0, abs=1e-9)
    assert sum(terms.values()) == pytest.approx(found["delta_ms_per_step"], rel=1e-9)


def test_a_cold_start_is_compile(run: Run) -> None:
    sources = [str(SAMPLES / f"{name}.parquet") for name in ("healthy", "cold_start")]
    code, out, _ = run("compare", *sources, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["terms"]["compile"] > 0.5
    assert found["steady_ms_per_step"] < found["delta_ms_per_step"]
    assert sum(found["terms"].values()) == pytest.approx(found["delta_ms_per_step"], rel=1e-9)


# --- graphdiag check --baseline ------------------------------------------------------------------


def test_check_fails_on_a_regression(run: Run, pair: tuple[str, str]) -> None:
    code, out, err = run("check", pair[1], "--baseline", pair[0])
    assert code == 1
    assert out.startswith("a step is 0.5 ms (95 %: 0.")
    assert out.endswith(
        ", 9.62 %) slower than the baseline's on equal traffic, which is over the limit of 1 %\n"
    )
    assert err == f"graphdiag: 1 of 1 limits broken by {pair[1]}.\n"


@pytest.mark.parametrize("limit", ["10%", "0.11", "0.6ms"])
def test_check_holds_within_the_limit(run: Run, pair: tuple[str, str], limit: str) -> None:
    code, out, err = run("check", pair[1], "--baseline", pair[0], "--max-slowdown", limit)
    assert (code, err) == (0, "")
    assert out.startswith("the limit holds: a step 0.5 ms (95 %: ")


def test_check_holds_where_the_candidate_is_faster(run: Run, pair: tuple[str, str]) -> None:
    code, out, _ = run("check", pair[0], "--baseline", pair[1], "--max-slowdown", "0")
    assert code == 0
    assert "faster than the baseline's on equal traffic (at most 0 %)" in out


def test_check_holds_other_limits_beside_it(run: Run, pair: tuple[str, str]) -> None:
    limits = ("--max-slowdown", "10%", "--max-padding", "20%", "--max-fallback", "1%")
    code, out, err = run("check", pair[1], "--baseline", pair[0], *limits)
    assert code == 1
    assert out.startswith("padding ratio 36.6 % of the rows")
    assert err == f"graphdiag: 1 of 3 limits broken by {pair[1]}.\n"


def test_check_leaves_start_up_out_of_the_steady_period(run: Run, pair: tuple[str, str]) -> None:
    arguments = ("--max-slowdown", "10%", "--period", "steady")
    code, out, _ = run("check", pair[1], "--baseline", pair[0], *arguments)
    assert code == 0
    assert "a step 0.5 ms (" in out
    assert " slower than the baseline's on equal traffic and without start-up (at most" in out


def test_check_says_why_a_slowdown_is_not_identifiable(
    run: Run, pair: tuple[str, str], tmp_path: Path
) -> None:
    rows = [{**row, "dur_ns": None} for row in chapter_one(60)[0]]
    untimed = str(write(rows, tmp_path / "untimed.parquet"))
    code, out, err = run("check", pair[1], "--baseline", untimed, "--max-slowdown", "50%")
    assert code == 2
    assert err == f"graphdiag: {pair[1]} cannot be held against the baseline.\n"
    assert out == (
        "slowdown against the baseline is not identifiable, so the limit of 50 % cannot hold: The "
        "change in step time: the 60 steps of the base carry no times; record its engine to get "
        "them (graphdiag record, graphdiag attach)\n"
    )
    code, out, err = run("check", pair[1], "--baseline", untimed, "--max-padding", "1%")
    assert code == 1
    assert err == f"graphdiag: 2 of 2 limits broken by {pair[1]}.\n"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (chapter_one(5)[1], "Whether the change is more than noise: the candidate is too short"),
        (
            [{**row, "phase": "verify"} for row in chapter_one(60)[1]],
            "the base's times tell nothing of verify steps",
        ),
    ],
)
def test_check_is_no_pass_where_the_two_cannot_be_held_against_each_other(
    run: Run, pair: tuple[str, str], tmp_path: Path, rows: Rows, why: str
) -> None:
    other = str(write(rows, tmp_path / "other.parquet"))
    code, out, err = run("check", other, "--baseline", pair[1])
    assert (code, err) == (2, f"graphdiag: {other} cannot be held against the baseline.\n")
    assert why in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max-slowdown", "1%"], "--max-slowdown needs --baseline"),
        (["--baseline", "b", "--max-slowdown", "5"], "'5' may mean percent or a fraction"),
        (["--baseline", "b", "--max-slowdown", "few"], "'few' is no limit; write 2% or 0.1ms."),
        (["--baseline", "-"], "standard input can be read once"),
        (["--baseline", "nowhere.parquet"], "nowhere.parquet: "),
    ],
)
def test_check_usage_errors(run: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = run("check", "-", *arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_a_run_in_several_files_is_one_run(run: Run, tmp_path: Path) -> None:
    base, candidate = chapter_one(60)
    half = len(candidate) // 2
    paths = [
        str(write(rows, tmp_path / f"{name}.parquet"))
        for name, rows in (("a", base), ("b", candidate[:half]), ("c", candidate[half:]))
    ]
    code, out, _ = run("compare", paths[0], paths[1], "--candidate", paths[2], "--json")
    assert code == 0
    found = json.loads(out)
    assert found["candidate"]["steps"] == 60
    assert found["candidate_source"] == f"{paths[1]}, {paths[2]}"
    code, out, _ = run("compare", paths[1], paths[0], "--base", paths[2], "--json")
    assert json.loads(out)["base"]["steps"] == 60
    code, out, _ = run("check", paths[0], "--baseline", paths[1], "--baseline", paths[2])
    assert code == 0
    assert "faster than the baseline's" in out


def test_requests_are_held_against_the_first_token(run: Run, tmp_path: Path) -> None:
    paths = []
    for name, ttft in (("a", 120), ("b", 80)):
        asked = [
            event("request", 5.0 * i, dur_ns=400 * MS, ttft_ns=ttft * MS, tokens_out=20)
            for i in range(100)
        ]
        rows = [*steps((8,), 200, replayed), *asked]
        paths.append(str(write(rows, tmp_path / f"{name}.parquet")))
    code, out, _ = run("compare", *paths, "--slo-ttft-ms", "100")
    assert code == 0
    assert "The first token came within 100 ms for 100 %" in " ".join(out.split())
    assert "Goodput: requests whose first token came within 100 ms" in out
    code, out, _ = run("compare", *paths, "--slo-ttft-ms", "100", "--markdown")
    assert "| candidate | 100 | 100 | 100 |" in out
