"""Bring the collectors into a process that was started without them.

Up to Python 3.13 with the debugger's interface of the system (``hypno``, the extra ``[attach]``),
from 3.14 on with ``sys.remote_exec``. Either runs one expression in the process's main thread,
which starts a thread and returns: the rest happens there, at no unsafe point.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from graphdiag import attaching, processes
from graphdiag.errors import GraphdiagError

LISTEN_SECONDS = 15.0
_REMOTE_EXEC = (3, 14)

_BOOT = """
import sys
if "graphdiag_collectors" not in sys.modules:
    # By its file, so that nothing else of our environment can be imported there.
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location(
        "graphdiag_collectors", {file!r}, submodule_search_locations=[{folder!r}]
    )
    module = sys.modules["graphdiag_collectors"] = module_from_spec(spec)
    spec.loader.exec_module(module)
from graphdiag_collectors import inject
inject.boot()
"""

# threading takes the thread that first imports it for the main one, so the main one imports it.
_PAYLOAD = (
    "__import__('threading') and __import__('_thread').start_new_thread(exec, ({boot!r}, {{}}))"
)


def inject(pid: int) -> list[int]:
    """Make ``pid`` listen, and the processes it started that use torch; return those brought to.

    Raises
    ------
    GraphdiagError
        When one runs no Python, may not be traced, or does not begin to listen.
    """
    processes.check_access(pid)
    brought = _targets(pid)
    for one in brought:
        version = processes.python_version(one)
        if version is None:
            raise GraphdiagError(f"{one}: runs no Python that graphdiag recognises.")
        if version >= _REMOTE_EXEC:
            with _script(payload()) as script:
                _by_remote_exec(one, version, script)
                listens = attaching.wait_until_listening(one, LISTEN_SECONDS)
        else:
            _by_debugger(one, payload())
            listens = attaching.wait_until_listening(one, LISTEN_SECONDS)
        if not listens:
            raise GraphdiagError(
                f"{one}: did not begin to listen within {LISTEN_SECONDS:.0f} s of bringing the "
                "collectors in; its stderr says why, or its main thread is busy in C code."
            )
    return brought


def payload() -> str:
    """Return the expression that the process evaluates in its main thread."""
    spec = find_spec("graphdiag_collectors")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).resolve()
    return _PAYLOAD.format(boot=_BOOT.format(file=str(file), folder=str(file.parent)))


def _targets(pid: int) -> list[int]:
    """Return the processes to bring to: those with torch, or ``pid`` alone; none that listens."""
    family = processes.family(pid)
    wanted = [one for one in family if processes.has_torch(one)] or [pid]
    return [one for one in wanted if not _listens(one)]


def _listens(pid: int) -> bool:
    return attaching.ask(pid, {"command": "ping"}, attaching.CONNECT_SECONDS).error is None


def _by_debugger(pid: int, code: str) -> None:
    try:
        hypno, pyinjector = import_module("hypno"), import_module("pyinjector")
    except ImportError as error:
        raise GraphdiagError(
            "bringing the collectors into a process needs hypno; pip install 'graphdiag[attach]'."
        ) from error
    try:
        hypno.inject_py(pid, code)
    except pyinjector.PyInjectorError as error:
        reason = str(error).partition("\n")[0]
        raise GraphdiagError(
            f"{pid}: may not be traced ({reason}); run graphdiag as root, give the container "
            "CAP_SYS_PTRACE, or end the debugger that traces it."
        ) from error


def _by_remote_exec(pid: int, version: tuple[int, int], script: Path) -> None:
    remote_exec: Callable[[int, str], None] | None = getattr(sys, "remote_exec", None)
    if remote_exec is None or sys.version_info[:2] != version:
        wanted = f"Python {version[0]}.{version[1]}"
        raise GraphdiagError(
            f"{pid}: runs {wanted}, which only the same Python may bring code into; run graphdiag "
            f"with {wanted}."
        )
    try:
        remote_exec(pid, str(script))
    except (OSError, RuntimeError) as error:
        raise GraphdiagError(
            f"{pid}: lets nothing be brought in ({error}); run graphdiag as root, or start the "
            "process without PYTHON_DISABLE_REMOTE_DEBUG."
        ) from error


@contextlib.contextmanager
def _script(code: str) -> Iterator[Path]:
    """Yield a file with ``code`` that every user may read; the process reads it some time later."""
    with tempfile.TemporaryDirectory(prefix="graphdiag-") as folder:
        Path(folder).chmod(0o755)
        script = Path(folder) / "boot.py"
        script.write_text(code)
        yield script
