"""Which artifact runs a batch: an exact one, a larger one, or none.

The keys held here are the only truth about what may be replayed. Dispatch relaxes in one direction:
a FULL graph where every row has one token, else a PIECEWISE one, else eager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

FULL, PIECEWISE, EAGER = "full", "piecewise", "eager"


class Choice(NamedTuple):
    """What runs a batch.

    Attributes
    ----------
    mode
        ``full``, ``piecewise`` or ``eager``.
    size
        Rows of the artifact, None for eager.
    reason
        Why it is eager, a word of the trace's ``schema.REASONS``; else None.
    """

    mode: str
    size: int | None
    reason: str | None


class Dispatcher:
    """Chooses by two tables that say for every number of tokens what is large enough.

    It has no keys until :meth:`initialize` is called, which is late: only when the backend is known
    is it known what can be captured. Until then every batch is eager.
    """

    def __init__(self) -> None:
        self._ready = False
        self._largest = 0
        self._beyond = Choice(EAGER, None, "not_captured")
        self._full: list[Choice | None] = []
        self._rest: list[Choice] = []

    def initialize(self, full: Iterable[int], piecewise: Iterable[int]) -> None:
        """Take the captured sizes of each mode, in tokens, and make the tables.

        Raises
        ------
        RuntimeError
            When it has its keys already: artifacts were captured by them.
        """
        if self._ready:
            raise RuntimeError("the dispatcher has its keys already")
        self._ready = True
        sizes, pieces = sorted(set(full)), sorted(set(piecewise))
        self._largest = max([*sizes, *pieces], default=0)
        self._beyond = Choice(EAGER, None, "over_max" if self._largest else "no_key")
        self._full = self._table(FULL, sizes)
        excluded = Choice(EAGER, None, "over_max" if pieces else "mode_excluded")
        self._rest = [choice or excluded for choice in self._table(PIECEWISE, pieces)]

    def dispatch(self, tokens: int, uniform: bool) -> Choice:
        """Return what runs a batch of ``tokens``; ``uniform`` is one token a row."""
        if tokens > self._largest:
            return self._beyond
        if uniform:
            choice = self._full[tokens]
            if choice is not None:
                return choice
        return self._rest[tokens]

    def _table(self, mode: str, sizes: Sequence[int]) -> list[Choice | None]:
        """Round every number of tokens up to the next size of ``sizes``, which ascend."""
        table: list[Choice | None] = []
        for size in sizes:
            table += [Choice(mode, size, None)] * (size + 1 - len(table))
        return table + [None] * (self._largest + 1 - len(table))
