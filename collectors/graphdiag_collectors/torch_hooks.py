"""Record CUDA graphs and compiles of any process that uses torch: :func:`install`.

An engine's own collector, or a decode loop with a recorder, asks :func:`replays_since` and
:func:`compiles_since` for what happened inside its step.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Hooks
from graphdiag_collectors.torch_compile import Compiles
from graphdiag_collectors.torch_graphs import Graphs
from graphdiag_collectors.torch_metrics import frame_name
from graphdiag_collectors.torch_replays import Replays

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

BEAT_SECONDS = 1.0


class TorchHooks:
    """All of torch's hooks in this process, and the thread that tells what they counted.

    Parameters
    ----------
    recorder
        Where to record; by default the process's recorder, opened when there is something to say.
    compiles, captures
        Whether compiles and captures are recorded; replays always are.
    """

    def __init__(self, recorder: Recorder | None, compiles: bool, captures: bool) -> None:
        self._given = recorder
        self._seen: Recorder | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.hooks = Hooks(self.recorder)
        self.replays = Replays()
        self.graphs = Graphs(self.hooks, self.recorder, self.begin, self.replays, captures)
        self.compiles = Compiles(self.hooks, self.recorder, self.begin) if compiles else None

    def attach(self) -> None:
        """Patch what is imported now, and the rest when it is."""
        self.graphs.attach()
        if self.compiles is not None:
            self.compiles.attach()
        atexit.register(self.finish)

    def detach(self) -> None:
        """Put torch back as it was and tell what is not told yet."""
        atexit.unregister(self.finish)
        self.hooks.unpatch()
        self.graphs.detach()
        if self.compiles is not None:
            self.compiles.detach()
        self.finish()

    def recorder(self) -> Recorder | None:
        """Return where to record, opening it if need be."""
        recorder = self._given or session.current() or session.recorder(self._config())
        if recorder is not self._seen:
            self._seen = recorder
            atexit.unregister(self.finish)
            atexit.register(self.finish)  # before the recorder, which closes itself at exit
        return recorder

    def begin(self) -> None:
        """Start the thread if it does not run in this process."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            with self._lock:
                if thread is self._thread and not self._stopping.is_set():
                    self._thread = threading.Thread(
                        target=self._beat, name="graphdiag-torch", daemon=True
                    )
                    self._thread.start()

    def finish(self) -> None:
        """Stop the thread and tell everything."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join(BEAT_SECONDS)
        self._tell(everything=True)
        recorder = self._seen
        if recorder is not None:
            recorder.flush()  # one that was opened in an exiting process is not closed any more

    def forked(self) -> None:
        """Begin anew in a forked child: the thread and the counts are the parent's."""
        self._lock = threading.Lock()
        self._thread = None
        self._stopping = threading.Event()
        self.replays.reset()
        if self.compiles is not None:
            self.compiles.running = None

    def _beat(self) -> None:
        self.hooks.guard("torch.tell").run(self.recorder)
        while not self._stopping.wait(BEAT_SECONDS):
            self._tell()

    def _tell(self, everything: bool = False) -> None:
        self.hooks.guard("torch.tell").run(self._tell_all, everything)

    def _tell_all(self, everything: bool) -> None:
        if self.compiles is not None:
            self.compiles.tell()
        if self.replays.count:
            recorder = self.recorder()
            if recorder is not None:
                self.replays.tell(recorder, everything)

    def _config(self) -> dict[str, Any]:
        """Return what the run event says, where it is torch's hooks that open the recorder."""
        torch = sys.modules.get("torch")
        version = str(getattr(torch, "__version__", "")) or None
        cuda = getattr(torch, "cuda", None)
        device = None
        if cuda is not None and cuda.is_initialized():
            device = str(cuda.get_device_name())
        return {
            "engine": "torch",
            "engine_version": version,
            "torch": version,
            "device": device,
            "hooks": self.hooks.describe(),
        }


_installed: TorchHooks | None = None
_lock = threading.Lock()
_forks_watched = False


def install(
    recorder: Recorder | None = None, *, compiles: bool = True, captures: bool = True
) -> Hooks:
    """Record every CUDA graph and every ``torch.compile`` of this process from now on.

    Torch need not be imported yet and is not imported here. Installing twice is installing once.

    Parameters
    ----------
    recorder
        Where to record. By default the process's own recorder, into the folder that
        ``GRAPHDIAG_TRACE`` names; without either, nothing is hooked.
    compiles, captures
        Whether compiles and captures are recorded: an engine's own collector may know more of
        them. Replays are always counted.

    Returns
    -------
    Hooks
        What is hooked, and what could not be.
    """
    global _installed, _forks_watched
    with _lock:
        if _installed is not None:
            return _installed.hooks
        torch_hooks = TorchHooks(recorder, compiles, captures)
        if recorder is None and not os.environ.get("GRAPHDIAG_TRACE"):
            torch_hooks.hooks.missing["torch"] = "GRAPHDIAG_TRACE is not set"
            return torch_hooks.hooks
        if not _forks_watched and hasattr(os, "register_at_fork"):
            _forks_watched = True
            os.register_at_fork(after_in_child=_forked)
        _installed = torch_hooks
        torch_hooks.attach()
        return torch_hooks.hooks


def uninstall() -> None:
    """Put torch back as it was, and record what was counted and not told yet."""
    global _installed
    with _lock:
        torch_hooks, _installed = _installed, None
    if torch_hooks is not None:
        torch_hooks.detach()


def name_graph(graph: Any, artifact: str, size: int | None = None, **columns: Any) -> None:
    """Say what a ``torch.cuda.CUDAGraph`` is called in the trace, and which bucket it serves.

    Say it before its capture. Without, it is named after the place that captured it. ``columns``
    are further ones of its capture's event, such as ``key`` and ``identity``. Does nothing where
    the hooks are not installed.
    """
    if _installed is not None:
        tally = _installed.replays.tally(graph, artifact)
        tally.artifact, tally.size, tally.columns = artifact, size, columns


def identify_compiles(identity: Mapping[str, Any] | None) -> None:
    """Say what influences all that is compiled from now on: weights, code, device, configuration.

    Each compile's event carries it as ``identity``. Does nothing where the hooks are not installed.
    """
    if _installed is not None and _installed.compiles is not None:
        _installed.compiles.identity = identity


def artifact_of(function: Any) -> str:
    """Return what the compiles of a function or method are called in the trace.

    Raises
    ------
    TypeError
        When ``function`` is neither, or is written in C.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        raise TypeError(f"{function!r} has no code that torch.compile could compile")
    return frame_name(code).name


def replays() -> tuple[int, int]:
    """Return how many graphs were replayed so far, and the host time (ns) inside them."""
    if _installed is None:
        return 0, 0
    return _installed.replays.count, _installed.replays.launch_ns


def replays_since(before: tuple[int, int]) -> tuple[int | None, int | None]:
    """Return replays, and host ns inside them, since :func:`replays` returned ``before``.

    The caller accounts for them in a step of its own, so that they are in no mark. None where they
    are not counted, or their time is not measured.
    """
    if _installed is None or not _installed.graphs.on:
        return None, None
    return _installed.replays.claim(before)


def compiles() -> tuple[int, int]:
    """Return how many regions were compiled so far, and the time (ns) that took."""
    if _installed is None or _installed.compiles is None:
        return 0, 0
    return _installed.compiles.count, _installed.compiles.total_ns


def compiles_since(before: tuple[int, int]) -> tuple[int | None, int | None]:
    """Return compiles, and ns spent in them, since :func:`compiles` returned ``before``.

    None where they are not counted. Time is spent without a compile where one failed.
    """
    if _installed is None or _installed.compiles is None or not _installed.compiles.on:
        return None, None
    count, total_ns = compiles()
    return count - before[0], total_ns - before[1]


def _forked() -> None:
    global _lock
    _lock = threading.Lock()
    if _installed is not None:
        _installed.forked()
