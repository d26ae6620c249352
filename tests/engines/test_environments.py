"""What decides how the engines' environments are built, and what a run says of the engines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.engines import environments
from tests.engines.environments import RECIPES, BuildError


def whole(folder: Path, engine: str) -> None:
    """Lay out what an environment is told by, its interpreter and its stamp."""
    python = environments.python_of(folder, engine)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / engine / "pyvenv.cfg").write_text("")
    (folder / engine / environments.STAMP).write_text(environments.stamp_of(engine))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been run; a command that makes an environment makes its folders."""
    ran: list[list[str]] = []

    def run(command: list[str], *_: Any) -> None:
        ran.append(command)
        if command[1:2] == ["venv"]:
            Path(command[-1], "lib", "python3.11", "site-packages").mkdir(parents=True)
            Path(command[-1], "pyvenv.cfg").write_text("")

    monkeypatch.setattr(environments, "run", run)
    monkeypatch.setattr(environments, "install_uv", lambda folder: {})
    return ran


def test_an_environment_that_is_whole_is_left_alone(
    tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    whole(tmp_path, "torch")
    assert environments.main([str(tmp_path), "torch"]) == 0
    assert commands == []
    assert "torch: whole already" in capsys.readouterr().err


@pytest.mark.parametrize("lacking", ["stamp", "interpreter", "another recipe"])
def test_one_that_is_not_whole_is_built_anew(
    tmp_path: Path, commands: list[list[str]], lacking: str
) -> None:
    whole(tmp_path, "torch")
    (tmp_path / "torch" / "rest").write_text("of an earlier build")
    stamp = tmp_path / "torch" / environments.STAMP
    if lacking == "stamp":
        stamp.unlink()
    elif lacking == "interpreter":
        environments.python_of(tmp_path, "torch").unlink()
    else:
        stamp.write_text(environments.stamp_of("vllm"))
    assert environments.main([str(tmp_path), "torch"]) == 0
    assert [command[1] for command in commands] == ["venv", "pip", "-c"]
    assert not (tmp_path / "torch" / "rest").exists()
    assert stamp.read_text() == environments.stamp_of("torch")


def test_an_engine_is_asked_for_with_what_replaces_and_what_is_left_out(
    tmp_path: Path, commands: list[list[str]]
) -> None:
    assert environments.main([str(tmp_path), "sglang", "vllm"]) == 0
    told = {command[4].split("/")[-3]: command for command in commands if command[1] == "pip"}
    assert told["sglang"][-5:] == list(RECIPES["sglang"].wanted)
    lists = tmp_path / "sglang-lists"
    assert (lists / "overrides").read_text() == "torch==2.13.0\n"
    assert {"sglang-kernel", "torchvision"} < set((lists / "excludes").read_text().split())
    assert "--overrides" not in told["vllm"]
    assert (tmp_path / "vllm-lists" / "excludes").read_text().split() == [
        *("torchaudio", "torchcodec", "torchvision")
    ]
    site = tmp_path / "vllm" / "lib" / "python3.11" / "site-packages"
    assert "Name: vllm\n" in (site / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()


def test_a_build_that_fails_is_told_in_a_sentence_and_leaves_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools" / "bin").mkdir(parents=True)
    uv = tmp_path / "tools" / "bin" / "uv"
    uv.write_text("#!/bin/sh\necho resolving\necho no such package\necho\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setattr(environments, "install_uv", lambda folder: {})
    assert environments.main([str(tmp_path), "torch"]) == 1
    log = tmp_path / "torch.log"
    said = f"error: {uv} venv --python … failed with 2 (all of it is in {log}): no such package\n"
    assert capsys.readouterr().err.endswith(said)
    assert not environments.is_whole(tmp_path, "torch")


def test_what_is_no_environment_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "precious").write_text("")
    with pytest.raises(BuildError, match="is no virtual environment"):
        environments.build(tmp_path, "vllm", {})
    assert (tmp_path / "vllm" / "precious").exists()


def test_uv_is_told_what_pip_is_told() -> None:
    config = (
        ":env:.find-links='/wheels'\n"
        "global.cert='/etc/ca.crt'\n"
        "global.extra-index-url='file:///more/simple'\n"
        "global.index-url='https://index.example/simple'\n"
    )
    assert environments.uv_variables(config) == {
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
    }
    several = environments.uv_variables("global.find-links='/one\\n/two /three'\n")
    assert several == {"UV_FIND_LINKS": "/one,/two,/three"}
    assert environments.uv_variables("") == {}


@pytest.mark.parametrize("engine", RECIPES)
def test_a_recipe_wants_nothing_that_it_leaves_out(engine: str) -> None:
    recipe = RECIPES[engine]
    pinned = environments.constraints_of(engine).read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pinned)
    names = {re.split("==", line)[0].lower() for line in (*recipe.wanted, *pinned)}
    assert not names & set(recipe.without)


def session(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a session of these tests' own kind, without the engines that are set here."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GRAPHDIAG_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, timeout=120
    )


def test_an_engine_that_is_missing_is_a_skip_that_tells_what_to_do() -> None:
    done = session("tests/engines/test_torch.py")
    assert done.returncode == 0
    assert "did not run: torch: GRAPHDIAG_TORCH_PYTHON is not set" in done.stdout
    assert "`python -m tests.engines.environments DIR torch`" in done.stdout


def test_an_engine_that_is_missing_is_a_failure_where_it_is_required(tmp_path: Path) -> None:
    told = {"GRAPHDIAG_ENGINES": str(tmp_path), "GRAPHDIAG_ENGINES_REQUIRED": "1"}
    done = session("tests/engines/test_torch_profiler.py", **told)
    assert done.returncode == 1
    assert "passed" not in done.stdout
    assert f"`python -m tests.engines.environments {tmp_path} torch`" in done.stdout


def test_required_engines_that_no_test_ran_on_are_told_by_the_exit_code(tmp_path: Path) -> None:
    for engine in RECIPES:
        whole(tmp_path, engine)
    told = {"GRAPHDIAG_ENGINES": str(tmp_path), "GRAPHDIAG_ENGINES_REQUIRED": "1"}
    done = session(f"{Path(__file__).relative_to(ROOT)}::test_uv_is_told_what_pip_is_told", **told)
    assert done.returncode == 6
    assert done.stdout.count("did not run: ") == len(RECIPES)
    assert "1 passed" in done.stdout
