"""``graphdiag experiment`` on input that cannot be used: a sentence, exit code 2, nothing run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphdiag.experiment import probe
from graphdiag.experiment import run as running


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to work in, where every Python has what is needed and no engine may start."""

    def forbidden(*_: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(probe, "check_python", lambda *_: "cpu")
    monkeypatch.setattr(running, "run_all", forbidden)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--workload", "nosuch"], "--workload nosuch is none; give practice, sweep"),
        (["--modes", "eager,fast"], "'fast' is no mode; give some of eager,compiled,graphs."),
        (["--modes", "eager,eager"], "names a mode twice"),
        (["--buckets", "0,4"], "0"),
        (["--buckets", "4,99999999"], "--buckets 99999999: a batch of the bundled engine has 256"),
        (["--piecewise", "8,512"], "--piecewise 512: a batch of the bundled engine has 256 tokens"),
        (["--workload", "poisson:1e-9"], "--workload poisson:1e-9: the last of 400 requests would"),
        (["--rounds", "0"], "0"),
        (["--fault", "nosuch"], "--fault nosuch: no fault is called so; give one of no_warmup"),
        (["--slo-itl-ms", "0"], "0"),
        (["--speed", "0"], "--speed 0: no request would ever come"),
        (["--speed", "nan"], "nan is not in the range"),
        (["--engine", "vllm"], "--engine vllm and --model PATH go together."),
        (["--model", "x"], "--engine vllm and --model PATH go together."),
        (["--engine", "vllm", "--model", "gone"], "--model gone: no such file or folder"),
        (["--engine", "vllm", "--model", ".", "--fault", "no_warmup"], "--fault is of the bundled"),
        (["--engine", "vllm", "--model", ".", "--piecewise", "8"], "--piecewise is of the bundled"),
        (["--engine", "vllm", "--model", ".", "--modes", "graphs"], "no CUDA graphs on a CPU"),
        (["--workload", "azure:gone.csv"], "gone.csv: no such file"),
        (["--max-requests", "16"], "give --max-requests 32"),
        (["--json", "--markdown"], "Give --json or --markdown, not both."),
        (["--out", "taken"], "taken: exists already; name another folder with --out."),
        (["-o", "none/x.txt"], "none/x.txt: its folder does not exist"),
    ],
)
def test_bad_input_gets_a_sentence(run, ready, arguments, told):
    (ready / "taken").write_text("mine")
    code, out, err = run("experiment", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert not (ready / "experiment").exists()


def test_a_bad_row_is_named_by_its_line(run, ready):
    Path("rows.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n2,many,3\n")
    code, _, err = run("experiment", "--workload", "azure:rows.csv")
    assert code == 2
    assert err == (
        "graphdiag: rows.csv, line 3: ContextTokens is 'many', which is no number of tokens from 1 "
        "to 10,000,000; mend or drop the line.\n"
    )


MISSING = """#!{python}
import sys
print('{{"missing": {missing}}}')
"""


def program(folder: Path, text: str) -> str:
    file = folder / "python"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("missing", "engine", "told"),
    [
        ('["torch", "msgspec"]', "bundled", 'pip install "graphdiag[torch]"'),
        ('["msgspec", "pyarrow"]', "bundled", "-m pip install msgspec pyarrow."),
        ('["vllm"]', "vllm", "has no vllm; name the Python of the engine's own environment"),
    ],
)
def test_what_the_engines_python_lacks_is_told(run, tmp_path, monkeypatch, missing, engine, told):
    monkeypatch.chdir(tmp_path)
    python = program(tmp_path, MISSING.format(python=sys.executable, missing=missing))
    more = ("--engine", "vllm", "--model", ".") if engine == "vllm" else ()
    code, _, err = run("experiment", "--python", python, *more)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        (
            'print(\'{"missing": [], "torch": "2.0", "cuda": false}\')',
            ("--device", "cuda"),
            "--device cuda: torch 2.0 of",
        ),
        (
            'print(\'{"missing": [], "torch": "2.0", "compiler": false}\')',
            (),
            "--modes compiled,graphs: torch.compile needs a C++ compiler",
        ),
        ("raise SystemExit('broken by hand')", (), "cannot be used (broken by hand)"),
        ("pass", (), "cannot be used (it says nothing)"),
    ],
)
def test_what_the_machine_lacks_is_told(run, tmp_path, monkeypatch, text, more, told):
    monkeypatch.chdir(tmp_path)
    python = program(tmp_path, f"#!{sys.executable}\n{text}\n")
    code, _, err = run("experiment", "--python", python, *more)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


def test_a_python_that_is_none_gets_a_sentence(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("experiment", "--python", "./gone")
    assert code == 2
    assert f"--python {tmp_path}/gone: No such file or directory; name a Python that runs." in err


@pytest.mark.parametrize(
    ("engine", "asked", "device"),
    [("bundled", None, "cpu"), ("bundled", "cuda", "cuda"), ("vllm", None, "cuda")],
)
def test_an_installed_engine_runs_where_it_finds_itself(tmp_path, engine, asked, device):
    told = 'print(\'{"missing": [], "torch": "2.0", "cuda": true, "compiler": false}\')'
    python = program(tmp_path, f"#!{sys.executable}\n{told}\n")
    modes = ("eager",) if device == "cpu" else ("eager", "compiled", "graphs")
    assert probe.check_python(python, engine, asked, modes) == device
