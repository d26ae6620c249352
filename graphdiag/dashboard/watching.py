"""The traces a page is about: opened as the command line names them, and watched as they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from graphdiag.cells import Sums
from graphdiag.errors import GraphdiagError, NoRowsYet
from graphdiag.live import LiveTrace
from graphdiag.paths import printable
from graphdiag.places import resolve
from graphdiag.sources import open_source
from graphdiag.trace import Trace, looks_like_trace, open_trace

INTERVAL_S = 0.25
"""Least seconds between two looks at a trace."""
_REST = 3
"""How much longer than a look takes to rest after it: the engine beside it has the processor."""
_LONGEST_S = 10.0
"""Most seconds to rest after a look; also after one at a source that could not be read."""


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
    """

    def __init__(self, path: str, opened: ExitStack) -> None:
        self.name = printable(path)
        places = resolve(path)
        is_trace = all(map(looks_like_trace, places))
        sealed = len(places) == 1 and places[0].path.endswith(".parquet")
        self.grows = is_trace and (not sealed or places[0].is_folder())
        self.error: str | None = None
        self._path = path
        self._read_once = None if is_trace else opened.enter_context(open_source([path]))
        self._live = LiveTrace(self._open)
        self._listeners: list[Callable[[], None]] = []

    @property
    def sums(self) -> Sums | None:
        """What was read last, which stays as it is; None before anything was."""
        return self._live.sums

    @property
    def version(self) -> int:
        """Counts what was found new; 0 before anything was read."""
        return 0 if self.sums is None else self.sums.version

    def read(self) -> None:
        """Look for what is new, where a recording may have only begun, or its folder wait for it.

        Raises
        ------
        GraphdiagError
            When it cannot be read.
        """
        try:
            self._live.refresh()
        except NoRowsYet:
            if self.version:  # there were rows
                raise

    def refresh(self) -> None:
        """Look for what is new, and tell those who listen; what goes wrong is in :attr:`error`."""
        before = (self.version, self.error)
        try:
            self.read()
            self.error = None
        except GraphdiagError as error:
            self.error = str(error)
        if (self.version, self.error) != before:
            for told in tuple(self._listeners):
                told()

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have ``told`` called, in the watching thread, when something is new; return its end."""
        self._listeners.append(told)
        return lambda: self._listeners.remove(told)

    def _open(self, known: Collection[str]) -> Trace:
        if self._read_once is not None:
            return self._read_once
        return open_trace(resolve(self._path), known)


class Watcher:
    """Looks at several sources in a thread of its own, first at the one whose turn is longest ago.

    Each rests as its own looks take: a large one does not hold up a small one.
    """

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
        due = {source: 0.0 for source in self.sources if source.grows}
        took = 0.0
        while due:
            source = min(due, key=due.__getitem__)
            if self._ended.wait(max(took, due[source] - time.monotonic())):
                return
            begin = time.monotonic()
            source.refresh()
            end = time.monotonic()
            took = end - begin  # looks take half of the thread's time at most
            rest = min(_LONGEST_S, max(INTERVAL_S, _REST * took))
            due[source] = end + (rest if source.error is None else _LONGEST_S)


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
            source.read()
        watcher = Watcher(sources)
        try:
            yield watcher
        finally:
            watcher.close()
