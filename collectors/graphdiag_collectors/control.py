"""Switch this process's collectors on and off while it runs.

A collector offers itself with :func:`offer` where its plugin is loaded. That costs one sleeping
thread, which ``graphdiag attach`` speaks to; nothing heavy is imported before somebody attaches.
``GRAPHDIAG_ATTACH=0`` in the environment leaves the thread out.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdiag_collectors.control_listener import Listener, refusal

if TYPE_CHECKING:
    from graphdiag_collectors.guard import Hooks

PROTOCOL = 1
ATTACH_VARIABLE = "GRAPHDIAG_ATTACH"
TRACE_VARIABLE, RUN_VARIABLE = "GRAPHDIAG_TRACE", "GRAPHDIAG_RUN"
"""As in :mod:`graphdiag_collectors.recorder`, which imports Arrow and is not imported here."""

PROFILE_VARIABLES = ("GRAPHDIAG_PROFILE", "GRAPHDIAG_DEVICE_TIME")
FINISH_SECONDS = 5.0
"""How long detaching waits for the step that ends a profile window."""

Install = Callable[[], "Hooks | None"]
Command = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Refused(Exception):
    """The question cannot be answered with yes, and why, in words for a person."""


class _Offer:
    """A collector that can be switched on."""

    def __init__(self, install: Install, uninstall: Callable[[], None]) -> None:
        self._install = install
        self._uninstall = uninstall
        self._hooks: Hooks | None = None
        self.installed = False
        self.error: str | None = None

    def install(self) -> None:
        """Switch it on; what it raises is kept in :attr:`error`."""
        try:
            self._hooks = self._install()
            self.installed, self.error = True, None
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def uninstall(self) -> None:
        """Switch it off; what it raises is kept in :attr:`error`."""
        try:
            if self.installed:
                self._uninstall()
            self.error = None
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        self.installed, self._hooks = False, None

    def describe(self) -> dict[str, Any]:
        """Return whether it is on, why not, and its hooks: on, off, failures, missing."""
        told: dict[str, Any] = {"installed": self.installed, "error": self.error}
        for _ in range(3):
            try:
                return told | (self._hooks.describe() if self._hooks else {})
            except RuntimeError:  # the engine's thread adds a hook just now
                continue
        return told


_offers: dict[str, _Offer] = {}
_commands: dict[str, Command] = {}
_lock = threading.Lock()


def offer(name: str, install: Install, uninstall: Callable[[], None]) -> None:
    """Make a collector known, so that it can be switched on and off while the process runs.

    Where ``GRAPHDIAG_TRACE`` is set it is installed at once, else when somebody attaches. While it
    is on, ``graphdiag profile`` may open windows in this process; its steps are told of to
    :mod:`graphdiag_collectors.profiler`. Never raises, imports nothing, and a second offer of the
    same name does nothing.

    Parameters
    ----------
    name
        The engine, such as ``vllm``.
    install
        Patches the engine and returns its hooks. Called in another thread than the engine's, with
        ``GRAPHDIAG_TRACE`` set and no recorder open, and again after ``uninstall``: so it must
        take the recorder anew from ``session.recorder(config)``, at the first row.
    uninstall
        Puts the engine back as it was. The recorder is still open, and is sealed right after.
    """
    try:
        with _lock:
            if name not in _offers:
                _offers[name] = offered = _Offer(install, uninstall)
                _commands.setdefault("profile", _profile)
                if os.environ.get(TRACE_VARIABLE):
                    offered.install()
                    _profile_as_told()
                    if offered.error is not None:
                        print(
                            f"graphdiag: {name} is not recorded ({offered.error})", file=sys.stderr
                        )
        if os.environ.get(ATTACH_VARIABLE) != "0":
            listen()
    except Exception as error:
        print(f"graphdiag: {name} cannot be attached to ({error})", file=sys.stderr)


def listen() -> None:
    """Listen on this process's socket, in a thread that sleeps; does nothing where it runs."""
    _listener.start()


def add_command(name: str, command: Command) -> None:
    """Make the socket answer ``{"command": name, …}`` with what ``command`` returns for it.

    ``command`` runs in the socket's thread; what it raises is told to the peer.
    """
    _commands[name] = command


def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to one question of the socket's."""
    name = question.get("command")
    command = _commands.get(name) if isinstance(name, str) else None
    if command is None:
        return refusal(f"{str(name)[:40]!r} is not one of {', '.join(_commands)}")
    try:
        return {"ok": True, **command(question)}
    except Refused as error:
        return refusal(str(error))


def _ping(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid(), "protocol": PROTOCOL}


def _status(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this process is, whether it records, and how far it is."""
    session = sys.modules.get("graphdiag_collectors.session")
    recorder = session.current() if session is not None else None
    trace = os.environ.get(TRACE_VARIABLE)
    return {
        "pid": os.getpid(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "engine": _engine(),
        "trace": str(Path(trace).absolute()) if trace else None,
        "run": os.environ.get(RUN_VARIABLE) if trace else None,
        "collectors": {name: offered.describe() for name, offered in tuple(_offers.items())},
        **_progress(recorder),
    }


def _progress(recorder: Any) -> dict[str, Any]:
    """Return rows, dropped rows, bytes and the last error; nulls where nothing was recorded yet."""
    names = ("rows", "dropped", "bytes", "last_error")
    told = recorder.status() if recorder is not None else (None,) * len(names)
    return dict(zip(names, told, strict=True))


def _engine() -> str | None:
    """Return the engine this process has imported, with its version."""
    for name in ("vllm", "sglang", "torch"):
        module = sys.modules.get(name)
        if module is not None:
            version = getattr(module, "__version__", None)
            return f"{name} {version}" if isinstance(version, str) else name
    return None


def _flush(question: Mapping[str, Any]) -> dict[str, Any]:
    """Write what was recorded so far: this process may be killed next."""
    session = sys.modules.get("graphdiag_collectors.session")
    recorder = session.current() if session is not None else None
    if recorder is not None:
        recorder.flush()
    return {"pid": os.getpid(), **_progress(recorder)}


def _attach(question: Mapping[str, Any]) -> dict[str, Any]:
    """Switch every collector on, recording into ``trace`` under the run id ``run``."""
    trace, run = question.get("trace"), question.get("run")
    if not isinstance(trace, str) or not trace.startswith("/") or "\0" in trace:
        raise Refused("attach needs the absolute path of a folder as trace")
    session = _session()
    with _lock:
        now = os.environ.get(TRACE_VARIABLE)
        if now and Path(now).absolute() != Path(trace):
            raise Refused(f"it records into {now} already; detach it first")
        if not _offers:
            raise Refused("no collector of graphdiag knows what runs in it")
        if not now:
            _make(trace)
            session.close()  # one that could not be opened before may be tried again
            os.environ[TRACE_VARIABLE] = trace
            if isinstance(run, str) and run:
                os.environ[RUN_VARIABLE] = run
        for offered in _offers.values():
            if not offered.installed:
                offered.install()
        _profile_as_told()
        if not any(offered.installed for offered in _offers.values()):
            problems = [f"{name}: {offered.error}" for name, offered in _offers.items()]
            if not now:
                _forget_trace()
            raise Refused(f"no collector could be switched on ({'; '.join(problems)})")
    return {**_status(question), "already": bool(now)}


def _detach(question: Mapping[str, Any]) -> dict[str, Any]:
    """Switch every collector off and seal what was recorded."""
    with _lock:
        before = _status(question)
        if before["trace"] is None:
            return {**before, "was_recording": False}
        _end_profiling()
        for offered in _offers.values():
            offered.uninstall()
        _forget_trace()
        session = _session()
        recorder = session.current()
        session.close()
        errors = {name: offered.error for name, offered in _offers.items() if offered.error}
        return {**before, **_progress(recorder), "was_recording": True, "left": errors}


def _profile(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Open a profile window, or say how far one is; what that takes is imported only now."""
    from graphdiag_collectors import profiler

    return profiler.command(question)


def _profile_as_told() -> None:
    """Begin what the environment asks of the profiler, if it does."""
    if any(os.environ.get(variable) for variable in PROFILE_VARIABLES):
        from graphdiag_collectors import profiler

        profiler.offer()


def _end_profiling() -> None:
    """Record what waits for a profile, while the steps that end it are still told of."""
    profiler = sys.modules.get("graphdiag_collectors.profiler")
    if profiler is not None and not profiler.finish(FINISH_SECONDS):
        raise Refused(
            "only its next step can stop torch's profiler, and it makes none; send it a request "
            "and detach again"
        )


def _session() -> Any:
    """Return the module of the process's recorder; imports Arrow, here and in no engine thread."""
    try:
        from graphdiag_collectors import recorder, session  # noqa: F401 (what is missing, now)
    except ImportError as error:
        raise Refused(f"recording needs pyarrow and numpy in its environment ({error})") from error
    return session


def _make(trace: str) -> None:
    try:
        Path(trace).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}; name another folder with -o") from error
    if not os.access(trace, os.W_OK | os.X_OK):
        raise Refused(f"it may not write into {trace}; name another folder with -o")


def _forget_trace() -> None:
    for variable in (TRACE_VARIABLE, RUN_VARIABLE):
        os.environ.pop(variable, None)


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


_listener = Listener(answer)
for _name, _command in (
    ("ping", _ping),
    ("status", _status),
    ("flush", _flush),
    ("attach", _attach),
    ("detach", _detach),
):
    add_command(_name, _command)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
