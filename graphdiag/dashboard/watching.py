"""The traces a page is about: opened as the command line names them, and watched as they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from graphdiag.errors import GraphdiagError, NoRowsYet
from graphdiag.live import LiveTrace
from graphdiag.paths import printable
from graphdiag.places import resolve
from graphdiag.sources import open_source
from graphdiag.trace import Trace, looks_like_trace, open_trace

INTERVAL_S = 0.5
"""Seconds between two looks at a trace."""
_REST = 4
"""How much longer than a look takes to rest after it: the engine beside it has the processor."""
_AFTER_TROUBLE = 20
"""A source that could not be read is looked at every so many times only."""


class Watched:
    """One source, read when asked to; a recording's folder is read on, a single file once.

    Attributes
    ----------
    name
        What it is called.
    grows
        Whether it is looked at again.
    error
        Why the last look failed; None where it did not.
    lock
        Held by whoever reads or changes :attr:`live`.
    """

    def __init__(self, path: str, opened: ExitStack) -> None:
        self.name = printable(path)
        places = resolve(path)
        is_trace = all(map(looks_like_trace, places))
        sealed = len(places) == 1 and places[0].path.endswith(".parquet")
        self.grows = is_trace and (not sealed or places[0].is_folder())
        self.error: str | None = None
        self.lock = threading.Lock()
        self._path = path
        self._read_once = None if is_trace else opened.enter_context(open_source([path]))
        self.live = LiveTrace(self._open)

    @property
    def version(self) -> int:
        """Counts what was found new; 0 before anything was read."""
        return self.live.version

    def refresh(self) -> None:
        """Look for what is new; what goes wrong is in :attr:`error`."""
        try:
            with self.lock:
                self.live.refresh()
            self.error = None
        except GraphdiagError as error:
            self.error = str(error)

    def _open(self, known: Collection[str]) -> Trace:
        if self._read_once is not None:
            return self._read_once
        return open_trace(resolve(self._path), known)


class Watcher:
    """Looks at several sources in a thread of its own, in turn."""

    def __init__(self, sources: Sequence[Watched]) -> None:
        self.sources = tuple(sources)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="graphdiag-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()
        self._thread.join(timeout=10)

    def _watch(self) -> None:
        looks, took = 0, 0.0
        while not self._ended.wait(max(INTERVAL_S, _REST * took)):
            looks, begin = looks + 1, time.monotonic()
            for source in self.sources:
                rests = source.error is not None and looks % _AFTER_TROUBLE
                if source.grows and not rests and not self._ended.is_set():
                    source.refresh()
            took = time.monotonic() - begin


@contextmanager
def watching(paths: Sequence[str]) -> Iterator[Watcher]:
    """Yield a watcher of ``paths``, each a trace of its own, read once already.

    Raises
    ------
    GraphdiagError
        When one is missing or no source at all. A folder in which a recording has only begun is
        waited for.
    """
    with ExitStack() as opened:
        sources = [Watched(path, opened) for path in paths]
        for source in sources:
            with suppress(NoRowsYet):
                source.live.refresh()
        watcher = Watcher(sources)
        try:
            yield watcher
        finally:
            watcher.close()
