from __future__ import annotations

import shlex
import subprocess
import unicodedata

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text
from sample_reports import GOLDEN, NAMES, hostile, read

from graphdiag.findings import Metrics
from graphdiag.reporters import text


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_golden_text(name: str) -> None:
    assert text.render(read(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_says_the_verdict_first_then_why_then_what_to_do() -> None:
    shown = text.render(read("padding"))
    assert shown.startswith("Verdict: Case 4, padding outweighs what replay saves: ")
    titles = ["Why (the four", "What to do", "Audit of", "Rates in %", "Not identifiable from"]
    places = [shown.index(f"\n\n{title}") for title in titles]
    assert places == sorted(places)


def test_key_lines_say_unit_interval_and_what_they_are_over() -> None:
    lines = [line.strip() for line in text.render(read("padding")).splitlines()]
    assert "4 padding: padding and graph memory" in lines
    assert "- costs 0.56 ms/step (95 % interval 0.49 to 0.634)" in lines
    assert "2 shapes: nothing charged to it; exact-bucket hit rate 36.9 % of the 12,000" in lines
    assert "--cuda-graph-bs-decode 1 4 8 9 10 16 24 32" in lines
    assert any("Left out: 5 rows with 1,035 steps. n/a: not" in line for line in lines)
    assert not any("--cudagraph-capture-sizes" in line for line in lines)


def test_audit_prints_severity_as_a_word_and_info_last() -> None:
    shown = text.render(read("padding"))
    assert shown.index("  warn ceiling: ") < shown.index("  info unused_artifacts: ")


def test_every_engine_gets_its_flag_where_the_engine_is_unknown() -> None:
    report = msgspec.structs.replace(read("padding"), engine={})
    shown = text.render(report)
    assert "Paste for vLLM:\n    --cudagraph-capture-sizes 1 4 8" in shown
    assert "Paste for SGLang:\n" in shown
    assert "Paste for TensorRT-LLM:\n    cuda_graph_config: {" in shown


def test_null_is_said_and_never_zero() -> None:
    shown = text.render(read("fallback"))
    assert "ms/step not identifiable" in shown
    assert "Device memory of the graphs: not identifiable" in shown
    assert "identifiable: phase, mean ms." in shown


@pytest.mark.parametrize("width", [40, 59, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for report in (*map(read, NAMES), hostile()):
        lines = text.render(report, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width


def test_a_narrow_terminal_gets_rows_instead_of_folded_numbers() -> None:
    report = read("padding")
    many = msgspec.structs.replace(report.metrics, eligible_steps=123_456_789)
    shown = text.render(msgspec.structs.replace(report, metrics=many), width=40)
    assert "  - whole trace: steps 12,034, eligible\n    123,456,789, exact 37.0" in shown


def test_a_damaged_source_is_said_under_its_name() -> None:
    cut = "The trace is not whole: the file is cut short (it has no end)."
    report = msgspec.structs.replace(read("padding"), notes=[cut, "Other."], damage=[cut])
    shown = text.render(report)
    source, why = shown.index("\nSource: "), shown.index("\n\nWhy (")
    assert source < shown.index(f"\n  ! {cut}\n") < why
    assert shown.count("not whole") == 1
    assert "\n\nNotes\n  - Other.\n" in shown


def test_a_hundred_million_steps_fit_80_columns() -> None:
    report = read("padding")
    many = msgspec.structs.replace(
        report.metrics, steps=123_456_789, eligible_steps=123_456_789, step_ms_p99=123456.7
    )
    lines = text.render(msgspec.structs.replace(report, metrics=many)).splitlines()
    row = next(line for line in lines if line.startswith("  whole trace  123,456,789"))
    assert row.split()[2:] == ["123,456,789"] * 2 + ["37.0", "63.0", "0.01", "44.7", "30.9"]


def test_hostile_strings_are_shown_and_not_obeyed() -> None:
    shown = text.render(hostile())
    assert len(shown) < 200_000
    assert all(char == "\n" or unicodedata.category(char)[0] != "C" for char in shown)
    assert r"\x1b[31mred\x1b[0m [red]x[/red]" in shown


@pytest.mark.parametrize("name", NAMES)
def test_color_adds_codes_and_no_words(name: str) -> None:
    colored = text.render(read(name), color=True)
    assert "\x1b[" in colored
    plain = Text.from_ansi(colored).plain
    assert [line.rstrip() for line in plain.splitlines()] == text.render(read(name)).splitlines()


def test_no_control_codes_without_color_whatever_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "37")
    shown = text.render(read("padding"))
    assert shown == (GOLDEN / "padding.txt").read_text(encoding="utf-8")


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=300), st.integers(60, 120))
def test_a_folded_flag_is_the_same_flag_to_a_shell(sizes: list[int], width: int) -> None:
    flag = "--cudagraph-capture-sizes " + " ".join(map(str, sizes))
    lines = text.fold(flag, width)
    assert max(map(len, lines)) <= width
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == flag.split()


def test_a_folded_flag_reaches_a_real_shell_whole() -> None:
    flag = "--cudagraph-capture-sizes " + " ".join(map(str, range(1, 100)))
    lines = "\n".join(text.fold(flag, 80))
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s ' {lines}"], capture_output=True, text=True, check=True
    )
    assert shell.stdout.split() == flag.split()


def test_a_quoted_flag_folds_inside_its_quotes() -> None:
    sizes = ", ".join(map(str, range(1, 60)))
    flag = f"""-cc '{{"cudagraph_capture_sizes": [{sizes}]}}' --max-num-seqs 256"""
    words = shlex.split("\n".join(text.fold(flag, 60)).replace("\\\n", ""))
    assert msgspec.json.decode(words[1]) == {"cudagraph_capture_sizes": list(range(1, 60))}
    assert words[2:] == ["--max-num-seqs", "256"]


_rate = st.none() | st.floats(0, 1) | st.just(float("nan"))


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Metrics,
        steps=st.integers(0, 10**9),
        eligible_steps=st.integers(0, 10**9),
        exact_hit_rate=_rate,
        padded_share=_rate,
        fallback_rate=_rate,
        padding_ratio=st.none() | st.floats(0, 1e4),
        waste=_rate,
        compile_count=st.integers(0, 10**6),
        compile_seconds=st.floats(0, 1e6),
        capture_count=st.integers(0, 10**6),
        capture_seconds=st.floats(0, 1e6),
        graph_bytes=st.none() | st.integers(0, 2**45),
        unique_artifacts=st.integers(0, 10**6),
        dropped_rows=st.integers(0, 10**12),
        step_ms_mean=st.none() | st.floats(0, 1e6),
    )
)
def test_any_metrics_fit(metrics: Metrics) -> None:
    shown = text.render(msgspec.structs.replace(read("padding"), metrics=metrics))
    assert max(map(len, shown.splitlines())) <= 80
    assert "nan" not in shown.lower()
