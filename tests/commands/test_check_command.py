from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., tuple[int, str, str]]
Serve = Callable[[str], None]


def test_one_line_when_every_limit_holds(run: Run, diagnosed: Serve) -> None:
    diagnosed("healthy")
    code, out, err = run("check", "trace.parquet", "--max-fallback", "1%", "--min-exact-hit", "0.9")
    assert (code, err) == (0, "")
    assert out == (
        "all 2 limits hold: fallback rate 0 % of 2,800 steps that graphs should have served (at "
        "most 1 %), exact-hit rate 100 % of 2,800 steps that graphs should have served (at least "
        "90 %)\n"
    )


def test_one_line_a_broken_limit_and_exit_code_1(run: Run, diagnosed: Serve) -> None:
    diagnosed("fallback")
    code, out, err = run(
        "check",
        "server.log",
        *("--max-fallback", "1%", "--max-padding", "10%", "--max-waste", "50%"),
        *("--min-exact-hit", "90%", "--max-compile-seconds", "10", "--max-dropped", "0"),
    )
    assert code == 1
    assert out.splitlines() == [
        "fallback rate 75.8 % of 1,076 sampled steps that graphs should have served is over the "
        "limit of 1 %",
        "padding ratio 14.3 % of the rows requested in sampled replayed steps is over the limit of "
        "10 %",
        "exact-hit rate 0 % of 1,076 sampled steps that graphs should have served is under the "
        "limit of 90 %",
        "compile time 21.4 s in 1 compile is over the limit of 10 s",
    ]
    assert err == "graphdiag: 4 of 6 limits broken by server.log.\n"


def test_a_metric_the_source_cannot_tell_breaks_its_limit(run: Run, diagnosed: Serve) -> None:
    diagnosed("empty")
    code, out, _ = run("check", "captures.parquet", "--max-fallback", "1%")
    assert code == 1
    assert out == (
        "fallback rate is not identifiable, so the limit of 1 % cannot hold: "
        "the trace has no steps\n"
    )


def test_limits_of_a_phase(run: Run, diagnosed: Serve) -> None:
    diagnosed("padding")
    assert run("check", "x", "--max-padding", "10%", "--phase", "prefill")[0] == 0
    code, out, _ = run("check", "x", "--max-padding", "10%", "--phase", "decode")
    assert code == 1
    assert out == (
        "padding ratio 44.7 % of the rows requested in replayed decode steps is over the limit of "
        "10 %\n"
    )


def test_a_phase_that_the_trace_lacks_breaks_the_limit(run: Run, diagnosed: Serve) -> None:
    diagnosed("padding")
    code, out, _ = run("check", "x", "--max-fallback", "5 %", "--phase", "verify")
    assert code == 1
    assert out == (
        "fallback rate is not identifiable, so the limit of 5 % cannot hold: the trace has no "
        "verify steps (phases with steps: decode, prefill)\n"
    )


def test_a_period_narrows_capture_time_and_a_phase_does_not(run: Run, diagnosed: Serve) -> None:
    diagnosed("padding")
    limit = ("check", "x", "--max-capture-seconds", "1")
    assert run(*limit, "--period", "steady")[0] == 0
    code, out, _ = run(*limit, "--period", "cold")
    assert (code, out) == (1, "capture time 4.2 s in 6 cold captures is over the limit of 1 s\n")
    code, out, _ = run(*limit, "--phase", "decode")
    assert (code, out) == (1, "capture time 4.2 s in 6 captures is over the limit of 1 s\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No limit given; give at least one, such as --max-fallback 1%."),
        (["--max-fallback", "5"], "'5' may mean percent or a fraction; write it with a % sign."),
        (["--max-fallback", "few"], "'few' is no limit; write 1% or 0.01."),
        (["--max-dropped", "1.5"], "'1.5' is no limit; write 0."),
        (["--max-waste", "1%", "--phase", "decode", "--period", "cold"], "not both"),
        (["--max-waste", "1%", "--phase", "lunch"], "'lunch' is not one of"),
    ],
)
def test_usage_errors(run: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = run("check", "x", *arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
