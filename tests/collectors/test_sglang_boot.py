"""``graphdiag record`` and engines without plugins, with packages of SGLang's shape on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphdiag_collectors
from tests.collectors.rows import read, steps

BOOT = Path(graphdiag_collectors.__file__).parent / "boot"
COMMON = """
from types import SimpleNamespace
from sglang.srt.model_executor.forward_batch_info import ForwardMode
class ModelRunner:
    device, is_draft_worker, server_args, spec_algorithm = "cuda", False, None, None
    def __init__(self):
        from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner
        self.{owner} = CudaGraphRunner(self)
    def forward(self, forward_batch, skip_attn_backend_init=False, pp_proxy_tensors=None):
        runner = self.{owner}
        if runner.can_run(forward_batch):
            return runner.replay(forward_batch, pp_proxy_tensors=pp_proxy_tensors), True
        return "eager", False
"""
RUNNER = """
class CudaGraphRunner:
    def __init__(self, model_runner):
        self.model_runner, self.capture_bs, self.max_bs = model_runner, [2, 4], 4
        self.capture()
    def capture(self):
        for size in self.capture_bs:
            self.capture_one_batch_size(size, None)
    def capture_one_batch_size(self, bs, forward): ...
    def can_run(self, forward_batch):
        return forward_batch.batch_size <= self.max_bs
    def replay(self, forward_batch, skip_attn_backend_init=False, pp_proxy_tensors=None):
        self.bs = min(size for size in self.capture_bs if size >= forward_batch.batch_size)
        return "graph"
"""
MODES = """
from enum import IntEnum
ForwardMode = IntEnum("ForwardMode", "EXTEND DECODE")
"""
# Both ways an engine starts its scheduler: the engine's module imports the scheduler's, or not.
LAUNCH = """
import multiprocessing as mp
def scheduler(sizes):
    from types import SimpleNamespace
    from sglang.srt.model_executor.model_runner import ForwardMode, ModelRunner
    model = ModelRunner()
    for size in sizes:
        model.forward(
            SimpleNamespace(forward_mode=ForwardMode.DECODE, batch_size=size, seq_lens_sum=9 * size,
                            spec_info=None),
            pp_proxy_tensors=None,
        )
if __name__ == "__main__":
    mp.set_start_method("spawn")
    child = mp.Process(target=scheduler, args=([1, 4, 7],))
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
"""


@pytest.fixture(params=["cuda_graph_runner", "graph_runner"], ids=["0.4.6", "0.5.6"])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder to put on the path, with the package ``sglang`` in it."""
    place = tmp_path / "site" / "sglang" / "srt" / "model_executor"
    place.mkdir(parents=True)
    for folder in (place, place.parent, place.parents[1]):
        (folder / "__init__.py").write_text("")
    (place / "forward_batch_info.py").write_text(MODES)
    (place / "model_runner.py").write_text(COMMON.format(owner=request.param))
    (place / "cuda_graph_runner.py").write_text(RUNNER)
    imports = "import sglang.srt.model_executor.model_runner\n" if "cuda" in request.param else ""
    (place.parents[1] / "launch_server.py").write_text(imports + LAUNCH)
    return tmp_path / "site"


def record(
    folder: Path, *command: str, path: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(path), **more}
    environment.pop("GRAPHDIAG_RUN", None)
    return subprocess.run(
        [sys.executable, "-m", "graphdiag", "record", "--", sys.executable, *command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_scheduler_of_an_engine_without_plugins_is_recorded(
    engine: Path, tmp_path: Path
) -> None:
    done = record(tmp_path, "-m", "sglang.launch_server", path=engine)
    assert done.returncode == 0, done.stderr
    trace = tmp_path / "trace.parquet"
    told = [
        (row["requested"], row["bucket"], row["outcome"], row["reason"]) for row in steps(trace)
    ]
    assert told == [
        (1, 2, "padded", None),
        (4, 4, "exact", None),
        (7, None, "fallback", "over_max"),
    ]
    assert [row["artifact"] for row in read(trace, "capture")][:2] == ["decode/2", "decode/4"]


def test_an_engine_with_plugins_is_hooked_once(engine: Path, tmp_path: Path) -> None:
    """As from 0.5.11 on: the engine calls the entry point as well."""
    launch = engine / "sglang" / "launch_server.py"
    text = launch.read_text().replace(
        "    model = ModelRunner()",
        "    from graphdiag_collectors import plugin\n"
        "    plugin.sglang()\n    model = ModelRunner()",
    )
    launch.write_text(text)
    done = record(tmp_path, "-m", "sglang.launch_server", path=engine)
    assert done.returncode == 0, done.stderr
    assert [row["requested"] for row in steps(tmp_path / "trace.parquet")] == [1, 4, 7]


def test_the_sitecustomize_of_before_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = __file__\n")
    check = (
        "import sys; print(theirs, sys.modules['sitecustomize'].__file__, "
        "len(sys.meta_path), 'pyarrow' in sys.modules)"
    )
    done = record(tmp_path, "-c", check, path=tmp_path)
    theirs = tmp_path / "sitecustomize.py"
    assert done.stdout.split()[:2] == [str(theirs), str(theirs)]
    assert done.stdout.split()[3] == "False"


def boot(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options],
        env={**os.environ, "PYTHONPATH": str(BOOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_variable_nothing_is_imported() -> None:
    check = "import sys; print([m for m in sys.modules if 'graphdiag_collectors.' in m])"
    assert boot("-c", check).stdout == "[]\n"


def test_a_python_without_graphdiag_starts_all_the_same(tmp_path: Path) -> None:
    check = "import sys; print(sys.modules['sitecustomize'].__file__)"
    done = boot("-S", "-c", "import sitecustomize; " + check, GRAPHDIAG_TRACE=str(tmp_path / "t"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{BOOT / 'sitecustomize.py'}\n"


def test_starting_twice_is_starting_once() -> None:
    check = (
        "import sys\nfrom graphdiag_collectors import sglang_site\n"
        "before = len(sys.meta_path)\nsglang_site.start()\nsglang_site.start()\n"
        "print(len(sys.meta_path) - before)"
    )
    assert boot("-c", check).stdout == "1\n"
