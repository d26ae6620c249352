import builtins
import socket
import sys

import pytest

from tests.commands.conftest import Run
from tests.conftest import ROOT

PRACTICE = str(ROOT / "sample_traces" / "practice.parquet")


def test_without_panel_one_sentence_says_how_to_get_it(run: Run, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("graphdiag.dashboard")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.partition(".")[0] in ("panel", "param"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    code, out, err = run("dashboard", PRACTICE)
    assert (code, out) == (2, "")
    assert err == 'graphdiag: The dashboard needs Panel: pip install "graphdiag[dashboard]".\n'


def test_mistakes_get_one_sentence(run: Run, tmp_path) -> None:
    pytest.importorskip("panel", reason='needs pip install "graphdiag[dashboard]"')
    other = tmp_path / "notes.txt"
    other.write_text("no trace\n")
    for path, port in (("nothing.parquet", 0), (str(other), 0), ("-", 0), (PRACTICE, 99999)):
        code, out, err = run("dashboard", path, "--port", str(port))
        assert (code, out) == (2, "")
        assert "Traceback" not in err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = run("dashboard", PRACTICE, "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "is in use; give another" in err
