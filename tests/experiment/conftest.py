import sys
from pathlib import Path

import pytest

from graphdiag.experiment import probe, run
from graphdiag.experiment.setting import Setting
from graphdiag.experiment.workloads import Wanted, make_workload


@pytest.fixture(scope="module")
def faked():
    """The bundled engine's place taken by the stand-in, which needs no torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run.WORKERS, "bundled", "fake_worker")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        patch.setattr(probe, "check_python", lambda *_: "cpu")
        yield


@pytest.fixture(scope="session")
def make_setting(tmp_path_factory):
    """Return a small experiment in a folder of its own."""

    def make(**told) -> Setting:
        folder = tmp_path_factory.mktemp("experiment") / "out"
        run.make_folder(folder)
        asked = {
            "workload": make_workload("practice", Wanted(number=200)),
            "python": sys.executable,
            "folder": folder,
            "modes": ("eager", "compiled", "graphs"),
            "buckets": (1, 4, 8, 16, 32),
        }
        return Setting(**{**asked, **told})

    return make
