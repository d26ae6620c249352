"""How the collector comes into a process, with a package of SGLang's module paths on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.rows import steps

COLLECTORS = Path(__file__).parents[2] / "collectors"

MODEL_RUNNER = """
from sglang.srt.model_executor import forward_batch_info
class ModelRunner:
    device, is_draft_worker, server_args = "cpu", False, None
    def forward(self, forward_batch):
        return forward_batch.batch_size, False
"""
SPAWN = """
import multiprocessing as mp, sys
def child(size):
    from enum import IntEnum
    from types import SimpleNamespace
    from sglang.srt.model_executor.model_runner import ModelRunner
    mode = IntEnum("ForwardMode", "EXTEND DECODE").DECODE
    one = SimpleNamespace(forward_mode=mode, batch_size=size, input_ids=None, seq_lens_sum=None)
    assert ModelRunner().forward(one) == (size, False)
if __name__ == "__main__":
    assert "sglang" not in sys.modules
    assert "pyarrow" not in sys.modules
    mp.set_start_method(sys.argv[1])
    ps = [mp.Process(target=child, args=(n,)) for n in (3, 5)]
    [p.start() for p in ps]; [p.join() for p in ps]
    assert [p.exitcode for p in ps] == [0, 0]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "path" / "sglang" / "srt" / "model_executor"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parents[1]):
        (folder / "__init__.py").write_text("")
    (package / "forward_batch_info.py").write_text("")
    (package / "model_runner.py").write_text(MODEL_RUNNER)
    # What a line in a .pth file does at start-up, done by the module that Python imports there.
    line = (
        'import os\nos.environ.get("GRAPHDIAG_TRACE") and '
        '__import__("graphdiag_collectors.sglang_site", fromlist=["watch"]).watch()\n'
    )
    (tmp_path / "path" / "sitecustomize.py").write_text(line)
    (tmp_path / "main.py").write_text(SPAWN)
    return tmp_path


def run(tree: Path, *arguments: str, trace: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree / "path"), str(COLLECTORS)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("GRAPHDIAG_TRACE", None)
    if trace is not None:
        environment["GRAPHDIAG_TRACE"] = str(trace)
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_the_import_hook_reaches_the_engines_children(tree: Path, method: str) -> None:
    trace = tree / "trace.parquet"
    done = run(tree, str(tree / "main.py"), method, trace=trace)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(row["requested"] for row in steps(trace)) == [3, 5]
    assert len({row["pid"] for row in steps(trace)}) == 2


def test_without_the_variable_nothing_happens(tree: Path) -> None:
    done = run(tree, str(tree / "main.py"), "spawn")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tree / "trace.parquet").exists()
    check = (
        "import sys, graphdiag_collectors.sglang as one; one.register(); "
        "from graphdiag_collectors import import_hook; "
        "assert import_hook._FINDER not in sys.meta_path"
    )
    assert run(tree, "-c", check).returncode == 0


def test_registering_imports_neither_engine_nor_torch_and_twice_is_once(tree: Path) -> None:
    check = (
        "import sys; from graphdiag_collectors import sglang as one, import_hook\n"
        "one.register()\n"
        "before = {k: len(v) for k, v in import_hook._FINDER.waiting.items()}\n"
        "one.register()\n"
        "assert {k: len(v) for k, v in import_hook._FINDER.waiting.items()} == before\n"
        "assert not {'torch', 'sglang'} & set(sys.modules)\n"
    )
    done = run(tree, "-c", check, trace=tree / "trace.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tree / "trace.parquet").exists()


def test_an_engine_imported_before_is_patched_too(tree: Path) -> None:
    check = (
        "import sglang.srt.model_executor.model_runner as m\n"
        "from graphdiag_collectors.sglang import HOOKS, install, uninstall\n"
        "plain = m.ModelRunner.forward\n"
        "install()\n"
        "assert m.ModelRunner.forward.__wrapped__ is plain\n"
        "uninstall()\n"
        "assert m.ModelRunner.forward is plain\n"
    )
    done = run(tree, "-c", check)
    assert (done.returncode, done.stderr) == (0, "")


def test_register_never_raises(tree: Path) -> None:
    check = (
        "from graphdiag_collectors import sglang as one\n"
        "def broken(*_): raise RuntimeError('no hooks today')\n"
        "one.sglang_site.when_imported = broken\n"
        "one.sglang_site.forget()\n"
        "one.register()\n"
    )
    done = run(tree, "-c", check, trace=tree / "trace.parquet")
    assert done.returncode == 0
    assert done.stderr == "graphdiag: sglang is not recorded (RuntimeError: no hooks today)\n"
