"""What every process of an engine loads at its start: light until somebody records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attachable import Engines, engines

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parents[2]
HEAVY = ("pyarrow", "numpy", "torch", "vllm", "sglang", "polars", "asyncio", "multiprocessing")

PROCESS = f"""
import sys, time
{{}}
from graphdiag_collectors import control
control.add_command("look", lambda question: {{{{
    "heavy": [name for name in {HEAVY} if name in sys.modules],
}}}})
print("ready", flush=True)
time.sleep(600)
"""
STARTS = {
    "vllm": "from graphdiag_collectors.plugin import vllm; vllm(); vllm()",
    "sglang": "from graphdiag_collectors.plugin import sglang; sglang(); sglang()",
    "inject": (
        "import types; sys.modules['vllm'] = types.ModuleType('vllm')\n"
        "from graphdiag_collectors import inject; inject.boot()\n"
        "del sys.modules['vllm']"
    ),
}


@pytest.fixture(scope="module")
def started() -> Iterator[Engines]:
    with engines() as started:
        yield started


@pytest.mark.parametrize("start", STARTS)
def test_a_process_that_does_not_record_imports_nothing_heavy(
    started: Engines, folder: Path, start: str
) -> None:
    pid = started.start(PROCESS.format(STARTS[start])).pid
    for command in ("ping", "status", "detach"):
        assert started.ask(pid, command)["ok"]
    assert started.ask(pid, "profile", steps=1)["error"]
    assert started.ask(pid, "look")["heavy"] == []
    attached = started.ask(pid, "attach", trace=str(folder))
    (collector,) = attached["collectors"].values()
    assert (attached["ok"], collector["installed"]) == (True, True)
    assert "pyarrow" in started.ask(pid, "look")["heavy"]
    assert started.ask(pid, "detach")["was_recording"]


def test_torch_hooks_without_a_trace_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from graphdiag_collectors import torch_hooks\n"
        "torch_hooks.install()\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_an_engine_that_records_has_its_collector_at_once(
    started: Engines, folder: Path, name: str
) -> None:
    pid = started.start(PROCESS.format(STARTS[name]), GRAPHDIAG_TRACE=str(folder)).pid
    collector = started.ask(pid, "status")["collectors"][name]
    assert (collector["installed"], collector["error"]) == (True, None)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in Python 3.11")
def test_the_engines_load_these() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]
    assert points["vllm.general_plugins"] == {"graphdiag": "graphdiag_collectors.plugin:vllm"}
    assert points["sglang.srt.plugins"] == {"graphdiag": "graphdiag_collectors.plugin:sglang"}
