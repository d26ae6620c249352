"""The thread that turns complete tails into Parquet parts, so that the live tail never waits."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue

from graphdiag_collectors.files import seal


class Sealer:
    """Seals one tail at a time; one that does not fit on the disk is tried again with the next.

    Attributes
    ----------
    error
        Why the last tail could not be sealed, or None.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._waiting: SimpleQueue[Path | None] = SimpleQueue()
        self._failed: list[Path] = []
        self._thread: threading.Thread | None = None

    def put(self, tail: Path) -> None:
        """Queue a tail that nobody appends to any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="graphdiag-sealer", daemon=True)
            self._thread.start()
        self._waiting.put(tail)

    def close(self) -> None:
        """Seal what waits and stop."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        self._seal(self._failed)

    def _work(self) -> None:
        while (tail := self._waiting.get()) is not None:
            self._seal([*self._failed, tail])

    def _seal(self, tails: list[Path]) -> None:
        self._failed = []
        for tail in tails:
            try:
                seal(tail)
            except FileNotFoundError:
                continue  # somebody removed it
            except Exception as error:  # the tail stays, and a reader reads it
                self._failed.append(tail)
                self.error = f"{tail.name} could not be sealed: {error}"
