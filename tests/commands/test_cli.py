from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphdiag import __version__, cli
from graphdiag.errors import SourceError
from tests.build import step, write

HEAVY = ("polars", "pyarrow", "numpy", "rich", "msgspec", "scipy", "fsspec")


def _python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys; from graphdiag.cli import run; code = run({arguments}); "
        f"print(code, [name for name in {HEAVY} if name in sys.modules])"
    )
    result = _python(code)
    assert result.stdout.splitlines()[-1] == "0 []"
    assert result.stderr == ""


def test_a_report_and_its_page_do_without_pandas_and_holoviews(tmp_path: Path) -> None:
    steps = [step(8, 8, at, dur_ns=10**6) for at in range(20)]
    trace, page = write(steps, tmp_path / "t.parquet"), tmp_path / "out.html"
    arguments = ["report", str(trace), "--json", "-o", str(tmp_path / "out.json")]
    arguments += ["--html", str(page)]
    code = (
        f"import sys; from graphdiag.cli import run; code = run({arguments}); "
        "print(code, [name for name in ('pandas', 'holoviews', 'panel') if name in sys.modules])"
    )
    assert _python(code).stdout == "0 []\n"
    assert 'class="item"' in page.read_text()


def test_help_names_every_command_with_its_own_line(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.split("Commands:\n")[1].splitlines()]
    assert listed == list(cli.COMMANDS)
    assert "..." not in out.split("Commands:\n")[1]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {name} ")


def test_version(run: Callable[..., tuple[int, str, str]]) -> None:
    assert run("--version") == (0, f"graphdiag, version {__version__}\n", "")


def test_an_unknown_command_is_a_usage_error(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("frobnicate")
    assert (code, out) == (2, "")
    assert "No such command 'frobnicate'" in err


def test_a_source_error_is_one_sentence_and_exit_code_2(
    run: Callable[..., tuple[int, str, str]], failing: Callable[[BaseException], None]
) -> None:
    failing(SourceError("a.log: the file is empty; there is nothing to read."))
    expected = "graphdiag: a.log: the file is empty; there is nothing to read.\n"
    assert run("report", "a.log") == (2, "", expected)


def test_a_sentence_with_control_characters_stays_one_line(
    run: Callable[..., tuple[int, str, str]], failing: Callable[[BaseException], None]
) -> None:
    failing(SourceError("a\n\x1b[2J.log: no."))
    assert run("report", "x")[2] == "graphdiag: a\\n\\x1b[2J.log: no.\n"


def test_an_os_error_is_one_sentence(
    run: Callable[..., tuple[int, str, str]], failing: Callable[[BaseException], None]
) -> None:
    failing(OSError(5, "Input/output error", "a.log"))
    assert run("report", "a.log") == (2, "", "graphdiag: a.log: Input/output error.\n")
    failing(PermissionError(13, "Permission denied", "a.log"))
    sentence = "graphdiag: a.log: you may not use it; check its permissions.\n"
    assert run("report", "a.log") == (2, "", sentence)


def test_an_unexpected_error_says_that_it_is_a_bug(
    run: Callable[..., tuple[int, str, str]], failing: Callable[[BaseException], None]
) -> None:
    failing(ZeroDivisionError("division by zero"))
    code, out, err = run("report", "a.log")
    assert (code, out) == (70, "")
    assert err == (
        "graphdiag: this is a bug in graphdiag (ZeroDivisionError: division by zero); "
        "run it again with GRAPHDIAG_DEBUG=1 and report the traceback.\n"
    )


def test_debug_shows_the_traceback(
    failing: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(ZeroDivisionError("division by zero"))
    monkeypatch.setenv("GRAPHDIAG_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run(["report", "a.log"])


def test_an_interrupt_exits_with_130_and_no_traceback(
    run: Callable[..., tuple[int, str, str]], failing: Callable[[BaseException], None]
) -> None:
    failing(KeyboardInterrupt())
    code, out, err = run("report", "a.log")
    assert (code, out, err.strip()) == (130, "", "")


def test_the_console_command_collects_garbage_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, ...]] = []
    monkeypatch.setattr("gc.set_threshold", lambda *those: set_to.append(those))
    monkeypatch.setattr("gc.freeze", lambda: set_to.append(()))
    monkeypatch.setattr("sys.argv", ["graphdiag", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert set_to == [cli.COLLECTED, ()]  # and not at all when it ends


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "graphdiag", "schema"],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert result.stderr == b""


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize("arguments", ["schema", "report t.parquet", "report nothing"])
def test_closed_streams_are_no_bug(tmp_path: Path, closed: str, arguments: str) -> None:
    write([step(8, 8)], tmp_path / "t.parquet")
    result = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m graphdiag {arguments} {closed}'],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    fails = "nothing" in arguments
    assert (result.returncode, result.stdout) == (2 if fails else 0, b"")
    told = b"graphdiag: nothing: no such file; check the path.\n" if fails else b""
    assert result.stderr == (b"" if "2>&-" in closed else told)


def test_bytes_that_are_not_utf8_are_replaced(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = str(tmp_path / os.fsdecode(b"caf\xe9.log"))
    expected = f"graphdiag: {tmp_path}/caf\ufffd.log: no such file; check the path.\n"
    assert run("report", path) == (2, "", expected)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        result = subprocess.run(
            [sys.executable, "-m", "graphdiag", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert result.stderr == b"graphdiag: No space left on device.\n"
    assert result.returncode == 2


def test_a_terminal_that_is_not_utf8_gets_escapes() -> None:
    code = (
        "import click; from graphdiag.cli import run; "
        "run(['--version']); click.echo('gr\\xf6\\u6279')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        timeout=60,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == b"gr\xf6\\u6279"
